//! A whole store within one process: a master, nodes and clients that share memory and a clock.
//!
//! The form for unit tests: no sockets, time as the injected clock has it, every operation stoppable at
//! every fault point. Nothing turns by itself: call [`FakeCluster::tick`] every
//! [`TICK`], or run [`FakeCluster::run`] beside the test.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use springtide::env::{Clock, StoreError, Time};

use crate::{
    client::{Client, ClientConfig, Spawner},
    faults::Faults,
    master::{KnobError, Knobs, TICK},
    memory::lock,
    protocol::{Call, ClientId, ClientStatus, Reply, Request, Segment, SegmentId},
    service::{Answer, Health, MasterService, NodeConfig, NodeService, Pacing, pause},
    transport::{LocalTransport, STATUS_TIMEOUT},
};

/// How often a node pings the master.
pub(crate) const PING_PERIOD: Duration = Duration::from_secs(1);

/// The world that a cluster lives in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// The master's knobs.
    pub master: Knobs,
    /// The seed of random placement.
    pub seed: u64,
    /// How long a call takes to reach the master.
    #[serde(rename = "rpc_latency_ms", with = "crate::millis")]
    pub rpc_latency: Duration,
    /// How fast nodes move bytes.
    pub pacing: Pacing,
    /// How long a transfer waits for the first sign of a silent peer (-800 then, and it ends).
    #[serde(rename = "status_timeout_ms", with = "crate::millis")]
    pub status_timeout: Duration,
    /// The clients' transfer limit, which late writes outlast.
    #[serde(rename = "transfer_limit_ms", with = "crate::millis")]
    pub transfer_limit: Duration,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            master: Knobs::default(),
            seed: 0,
            rpc_latency: Duration::ZERO,
            pacing: Pacing::default(),
            status_timeout: STATUS_TIMEOUT,
            transfer_limit: StoreError::MOONCAKE_TRANSFER_LIMIT,
        }
    }
}

/// A store in this process. Clones are the same store.
#[derive(Debug)]
pub struct FakeCluster<C>(Arc<Shared<C>>);

impl<C> Clone for FakeCluster<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// What a cluster's clients reach.
pub(crate) struct Shared<C> {
    pub(crate) clock: C,
    pub(crate) status_timeout: Duration,
    spawner: Spawner,
    faults: Faults,
    config: ClusterConfig,
    master: MasterService<C>,
    nodes: Mutex<Vec<Arc<NodeService<C>>>>,
    last_ping: Mutex<Time>,
}

impl<C> std::fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<C: Clock> Shared<C> {
    pub(crate) fn node_of(&self, segment: SegmentId) -> Option<Arc<NodeService<C>>> {
        lock(&self.nodes).iter().find(|node| node.segment().id == segment).cloned()
    }

    pub(crate) fn can_connect(&self) -> bool {
        self.master.health() != Health::Refused
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        (self.spawner)(Box::pin(task));
    }

    pub(crate) async fn call(&self, request: Request) -> Answer {
        pause(&self.clock, self.config.rpc_latency).await;
        self.master.call(request).await
    }
}

impl<C: Clock> FakeCluster<C> {
    /// A master without nodes. `spawner` runs what outlives its caller.
    ///
    /// # Errors
    /// [`KnobError`] as the master gives it.
    pub fn new(clock: C, spawner: Spawner, config: ClusterConfig) -> Result<Self, KnobError> {
        let faults = Faults::default();
        let (knobs, seed) = (config.master.clone(), config.seed);
        let master = MasterService::new(clock.clone(), faults.clone(), knobs, seed)?;
        let last_ping = Mutex::new(clock.now());
        let (status_timeout, nodes) = (config.status_timeout, Mutex::default());
        let shared =
            Shared { clock, status_timeout, spawner, faults, config, master, nodes, last_ping };
        Ok(Self(Arc::new(shared)))
    }

    /// Adds a node named `name` that lends `bytes` bytes, and mounts its segment. Its client is numbered
    /// from a million on, its segment from 1.
    pub fn add_node(&self, name: &str, bytes: u64) -> Arc<NodeService<C>> {
        let shared = &self.0;
        let number = lock(&shared.nodes).len() as u64 + 1;
        let owner = ClientId(1_000_000 + number);
        let (id, endpoint) = (SegmentId(number), format!("{name}:17"));
        let segment = Segment { id, name: name.to_owned(), endpoint, bytes };
        let ClusterConfig { pacing, transfer_limit, .. } = shared.config;
        let config = NodeConfig { pacing, transfer_limit };
        let (clock, faults) = (shared.clock.clone(), shared.faults.clone());
        let node = Arc::new(NodeService::new(clock, faults, config, owner, segment.clone()));
        lock(&shared.nodes).push(node.clone());
        self.ask(owner, Call::Mount { segment });
        node
    }

    /// A client without segments of its own.
    pub fn client(&self, config: ClientConfig) -> Client<LocalTransport<C>, C> {
        self.client_with(config, &[])
    }

    /// A client in the process of these nodes: it reads their replicas first, by copying memory.
    pub fn client_with(
        &self,
        config: ClientConfig,
        own: &[&NodeService<C>],
    ) -> Client<LocalTransport<C>, C> {
        let shared = &self.0;
        let own = own.iter().map(|node| node.segment().id).collect();
        let transport = LocalTransport::new(shared.clone(), own);
        let (clock, spawner) = (shared.clock.clone(), shared.spawner.clone());
        Client::new(transport, clock, spawner, shared.faults.clone(), config)
    }

    /// The faults of master, nodes and clients.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The master, to look at it, stop it or restart it.
    pub fn master(&self) -> &MasterService<C> {
        &self.0.master
    }

    /// Takes a node's segment back in good order: its objects are gone at once.
    pub fn unmount(&self, node: &NodeService<C>) {
        let segment = node.segment().id;
        lock(&self.0.nodes).retain(|other| other.segment().id != segment);
        self.ask(node.owner(), Call::Unmount { segment });
    }

    /// One turn of the master's loops, and once a second a ping from every node that is up.
    pub fn tick(&self) {
        let now = self.0.clock.now();
        let due = {
            let mut last_ping = lock(&self.0.last_ping);
            let due = now - *last_ping >= PING_PERIOD;
            if due {
                *last_ping = now;
            }
            due
        };
        if due {
            let nodes = lock(&self.0.nodes).clone();
            nodes
                .iter()
                .filter(|node| node.health() == Health::Up)
                .for_each(|node| self.ping(node));
        }
        self.0.master.tick();
    }

    /// Ticks for ever, in the cluster's own time. To be spawned beside a test.
    pub async fn run(self) {
        loop {
            self.0.clock.sleep(TICK).await;
            self.tick();
        }
    }

    /// A node's sign of life: without faults, but only if the master is up.
    fn ping(&self, node: &NodeService<C>) {
        let owner = node.owner();
        let pong = (self.0.master.health() == Health::Up).then(|| self.ask(owner, Call::Ping));
        node.set_pings_ok(pong.is_some());
        if pong == Some(Reply::Pong(ClientStatus::NeedRemount)) {
            self.ask(owner, Call::Remount { segments: vec![node.segment().clone()] });
        }
    }

    fn ask(&self, client: ClientId, call: Call) -> Reply {
        let now = self.0.clock.now();
        self.0.master.with(|master| master.handle(now, Request { client, call }))
    }
}
