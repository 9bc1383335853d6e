//! The client against a store in the same process, in virtual time.

#[path = "../common/mod.rs"]
mod common;

mod gets;
mod late;
mod masters;
mod ownership;
mod puts;
mod random;
mod rows;

use std::sync::Arc;

use fake_store::{
    Client, ClientConfig, ClusterConfig, FakeCluster, Knobs,
    master::Placement,
    protocol::ClientId,
    service::{NodeService, Pacing},
    transport::LocalTransport,
};
use springtide::{
    env::{Clock, Outcome},
    pool::Pool,
    runtime::TokioClock,
};

use self::common::*;

type TestClient = Client<LocalTransport<TokioClock>, TokioClock>;

const MIB: u64 = 1 << 20;

/// A cluster that turns by itself, two nodes, a pool and a client without segments.
struct Bed {
    clock: TokioClock,
    cluster: FakeCluster<TokioClock>,
    a: Arc<NodeService<TokioClock>>,
    b: Arc<NodeService<TokioClock>>,
    pool: Pool,
    client: TestClient,
}

impl Bed {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: ClusterConfig) -> Self {
        let clock = TokioClock::new();
        let cluster = FakeCluster::new(clock, spawner(), config).unwrap();
        let (a, b) = (cluster.add_node("a", 64 * MIB), cluster.add_node("b", 64 * MIB));
        spawner()(Box::pin(cluster.clone().run()));
        let client = cluster.client(ClientConfig::new(ClientId(1), "client:1"));
        Self { clock, cluster, a, b, pool: pool(8 * MIB), client }
    }

    async fn put(&self, key: &str, bytes: &[u8]) -> i64 {
        put(&self.client, &self.pool, key, bytes).await
    }

    async fn get(&self, key: &str, len: usize) -> Result<Vec<u8>, i64> {
        get(&self.client, &self.pool, key, len).await
    }

    async fn sleep(&self, time: std::time::Duration) {
        self.clock.sleep(time).await;
    }
}

/// Everything on node `a` while it has room; 1 MiB takes 100 ms.
fn config() -> ClusterConfig {
    ClusterConfig {
        master: Knobs { placement: Placement::FirstFit, ..Knobs::default() },
        pacing: Pacing { bytes_per_sec: Some(10 * MIB), ..Pacing::default() },
        ..ClusterConfig::default()
    }
}

/// The length that was read, or the code.
fn code(outcome: &Outcome<u64>) -> i64 {
    match outcome {
        Outcome::Ended { result: Ok(bytes), .. } => *bytes as i64,
        Outcome::Ended { result: Err(error), .. } | Outcome::Uncertain { error, .. } => {
            error.code.number().into()
        }
    }
}
