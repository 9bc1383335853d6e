//! The fake store's servers as hosts, and the clients of everybody else.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fake_store::{
    Client, ClientConfig, Knobs, Master, Spawner,
    client::{Closing, Protocol},
    master::Event,
    protocol::{ClientId, ReplicaConfig, SegmentId},
    server::{MasterServer, NodeServer, NodeSpec},
    service::{MasterService, NodeConfig, Pacing},
    transport::{NetConfig, NetTransport},
};
use springtide::env::Time;

use crate::{
    plan::Plan,
    world::{clock::SimClock, host::Host, transport::SimTransport},
};

/// The master's address.
const MASTER: &str = "master:50051";
/// The port of the nodes.
const NODE_PORT: u16 = 12_300;
/// Bytes that a transfer moves in a second: 1 GB/s, scaled down like the items.
const BYTES_PER_SEC: u64 = 1_000_000_000 / crate::plan::SCALE;
/// Bytes that move at once.
const CHUNK_BYTES: usize = 16 << 10;

/// A store client in the simulation.
pub type StoreClient = Client<SimTransport, SimClock>;

/// The master's state, for whoever judges it. Outlives the master's process.
#[derive(Clone, Debug, Default)]
pub struct MasterHandle(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    service: Option<Arc<MasterService<SimClock>>>,
    /// History of masters that have died.
    history: Vec<Event>,
}

impl MasterHandle {
    /// Works on the state of the present master; `None` if there is none.
    pub fn with<R>(&self, work: impl FnOnce(&mut Master) -> R) -> Option<R> {
        self.lock().service.as_ref().map(|service| service.with(work))
    }

    /// What has happened since the last call, to any master.
    pub fn drain_history(&self) -> Vec<Event> {
        let mut history = std::mem::take(&mut self.lock().history);
        history.extend(self.with(|master| master.drain_history()).unwrap_or_default());
        history
    }

    /// The master has died at `now`, and everything it knew.
    pub fn died(&self, now: Time) {
        let mut inner = self.lock();
        if let Some(service) = inner.service.take() {
            let history = service.with(|master| {
                master.restart(now);
                master.drain_history()
            });
            inner.history.extend(history);
        }
    }

    fn started(&self, service: Arc<MasterService<SimClock>>) {
        self.lock().service = Some(service);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while held")
    }
}

/// The identity of a store client: its host, the host's life, and the part of the host's software.
pub fn client_id(plan: &Plan, host: &str, life: u64, part: u32) -> ClientId {
    let number = plan.hosts().iter().position(|other| other == host).unwrap_or(0) as u64;
    ClientId((number + 1) * 1_000_000 + life * 100 + u64::from(part))
}

fn spawner(host: &Host) -> Spawner {
    let process = host.process.clone();
    Arc::new(move |task| process.spawn(task))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pacing() -> Pacing {
    Pacing { bytes_per_sec: Some(BYTES_PER_SEC), chunk_bytes: CHUNK_BYTES, ..Pacing::default() }
}

/// Runs a master, which begins with nothing.
pub async fn master(host: Host) {
    let plan = &host.world.plan;
    let store = &plan.store;
    let knobs = Knobs {
        lease_ttl: ms(store.lease_ttl_ms),
        eviction_ratio: store.eviction_permille as f64 / 1000.0,
        eviction_high_watermark_ratio: store.watermark_permille as f64 / 1000.0,
        put_start_discard_timeout: ms(store.put_discard_ms),
        put_start_release_timeout: ms(store.put_release_ms),
        client_ttl: ms(store.client_ttl_ms),
        ..Knobs::default()
    };
    let (faults, spawner) = (host.world.faults.clone(), spawner(&host));
    let server =
        MasterServer::start(&host.network, host.clock, &spawner, faults, MASTER, knobs, plan.seed);
    let server = server.await.expect("a checked plan has valid knobs, and the port is free");
    host.world.master.started(server.service);
}

/// Runs a node, which lends an empty segment.
pub async fn node(host: Host) {
    let plan = &host.world.plan;
    let name = host.process.host();
    let client = client_id(plan, name, host.process.life(), 0);
    let address = format!("{name}:{NODE_PORT}");
    let spec = NodeSpec {
        client,
        segment: SegmentId(client.0),
        name: name.to_owned(),
        bytes: plan.store.segment_bytes,
        listen: address,
        endpoint: None,
        master: MASTER.to_owned(),
        ping_timeout: ms(plan.store.rpc_timeout_ms),
    };
    let config = NodeConfig { pacing: pacing(), transfer_limit: ms(plan.store.transfer_limit_ms) };
    let (faults, spawner) = (host.world.faults.clone(), spawner(&host));
    let server = NodeServer::start(&host.network, host.clock, &spawner, faults, spec, config);
    server.await.expect("the port is free");
}

/// A client for one part of a host's software.
pub fn client(host: &Host, part: u32) -> StoreClient {
    let plan = &host.world.plan;
    let store = &plan.store;
    let name = host.process.host();
    let net = NetConfig {
        master: MASTER.to_owned(),
        pacing: pacing(),
        // A small window leaves even a small object unsent when its node stops in the middle.
        window_chunks: 2,
        connect_timeout: ms(store.rpc_timeout_ms),
        // Half of the transfer limit, as in Mooncake.
        status_timeout: ms(store.transfer_limit_ms) / 2,
        ..NetConfig::default()
    };
    let transport = NetTransport::new(host.network.clone(), host.clock, net, Vec::new());
    let transport = SimTransport::new(transport, host.process.clone(), host.world.desk.clone());
    // The stranger registers nothing; a connector that forgot to would fail.
    let protocol = if name == "client" { Protocol::Tcp } else { Protocol::Rdma };
    let config = ClientConfig {
        protocol,
        replica: ReplicaConfig { replica_num: store.replicas.into(), ..ReplicaConfig::default() },
        buffers_per_object: plan.connector.extents_max as usize,
        rpc_timeout: ms(store.rpc_timeout_ms),
        reconnect: ms(store.rpc_timeout_ms) / 2,
        transfer_limit: ms(store.transfer_limit_ms),
        closing: if store.close_fences { Closing::Fences } else { Closing::LeavesTransfers },
        ..ClientConfig::new(client_id(plan, name, host.process.life(), part), name)
    };
    let faults = host.world.faults.clone();
    Client::new(transport, host.clock, spawner(host), faults, config)
}
