//! The store over a network: real TCP on the loopback interface, and simulated TCP under turmoil.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod malformed;
mod simulated;
mod transfers;

use std::{sync::Arc, time::Duration};

use fake_store::{
    Client, ClientConfig, Faults, Knobs,
    master::Placement,
    protocol::{ClientId, SegmentId},
    server::{MasterServer, NodeServer, NodeSpec},
    service::{NodeConfig, NodeService, Pacing},
    transport::{NetConfig, NetTransport},
};
use springtide::{
    env::Clock,
    pool::Pool,
    runtime::{TokioClock, TokioNetwork},
};

use self::common::*;

type TestClient = Client<NetTransport<TokioNetwork, TokioClock>, TokioClock>;

const MIB: u64 = 1 << 20;
/// Scaled down from 60 s.
const TRANSFER_LIMIT: Duration = Duration::from_millis(400);

/// A master, two nodes and a client on the loopback interface.
struct Bed {
    clock: TokioClock,
    faults: Faults,
    master: MasterServer<TokioClock>,
    a: NodeServer<TokioClock>,
    b: NodeServer<TokioClock>,
    pool: Pool,
    client: TestClient,
}

impl Bed {
    async fn new() -> Self {
        let (clock, faults, network) = (TokioClock::new(), Faults::default(), TokioNetwork);
        let knobs = Knobs { placement: Placement::FirstFit, ..Knobs::default() };
        let broken = faults.clone();
        let listen = "127.0.0.1:0";
        let master = MasterServer::start(&network, clock, &spawner(), broken, listen, knobs, 1)
            .await
            .unwrap();
        let node = async |number: u64, name: &str| {
            let spec = NodeSpec {
                client: ClientId(100 + number),
                segment: SegmentId(number),
                name: name.into(),
                bytes: 16 * MIB,
                listen: "127.0.0.1:0".into(),
                endpoint: None,
                master: master.address.clone(),
                ping_timeout: secs(1),
            };
            let pacing = Pacing { chunk_bytes: 16 << 10, ..Pacing::default() };
            let config = NodeConfig { pacing, transfer_limit: TRANSFER_LIMIT };
            let broken = faults.clone();
            NodeServer::start(&network, clock, &spawner(), broken, spec, config).await.unwrap()
        };
        let a = node(1, "a").await;
        until("the first node is mounted", || capacity(&master) == 16 * MIB).await;
        let b = node(2, "b").await;
        until("both nodes are mounted", || capacity(&master) == 32 * MIB).await;
        let client = client(clock, &faults, &master, 1, Vec::new());
        Self { clock, faults, master, a, b, pool: pool(8 * MIB), client }
    }

    /// Another client, in the process of these nodes.
    fn client_with(&self, id: u64, own: Vec<Arc<NodeService<TokioClock>>>) -> TestClient {
        client(self.clock, &self.faults, &self.master, id, own)
    }

    async fn put(&self, key: &str, bytes: &[u8]) -> i64 {
        put(&self.client, &self.pool, key, bytes).await
    }

    async fn get(&self, key: &str, len: usize) -> Result<Vec<u8>, i64> {
        get(&self.client, &self.pool, key, len).await
    }
}

fn client(
    clock: TokioClock,
    faults: &Faults,
    master: &MasterServer<TokioClock>,
    id: u64,
    own: Vec<Arc<NodeService<TokioClock>>>,
) -> TestClient {
    let net = NetConfig {
        master: master.address.clone(),
        pacing: Pacing { chunk_bytes: 16 << 10, ..Pacing::default() },
        window_chunks: 2,
        status_timeout: ms(250),
        ..NetConfig::default()
    };
    let config = ClientConfig {
        rpc_timeout: ms(300),
        reconnect: ms(200),
        transfer_limit: TRANSFER_LIMIT,
        ..ClientConfig::new(ClientId(id), format!("client:{id}"))
    };
    let transport = NetTransport::new(TokioNetwork, clock, net, own);
    Client::new(transport, clock, spawner(), faults.clone(), config)
}

fn capacity(master: &MasterServer<TokioClock>) -> u64 {
    master.service.with(|master| master.usage().capacity_bytes)
}

/// Waits for something that other tasks bring about.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep_until(tokio::time::Instant::now() + ms(10)).await;
    }
    panic!("waited 5 s until {what}");
}

async fn sleep(clock: &TokioClock, time: Duration) {
    clock.sleep(time).await;
}
