//! A producer and consumers on the fake store, all in this process and on one thread: no network, no waiting
//! for other threads, so that what is left is the connector's own work and the copies of the bytes.

use std::{future::Future, sync::Arc};

use fake_store::{
    Client, ClientConfig, ClusterConfig, FakeCluster, Knobs, protocol::ClientId,
    transport::LocalTransport,
};
use springtide::{
    connector::{
        Availability, Config, ItemRequest, LoadConfig, Namespace, NamespaceParts, Role, Scheduler,
        Worker,
    },
    env::{Clock, DType, Env, TensorSpec},
    pool::PoolConfig,
    runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
};

use std::time::Duration;

type FakeClient = Client<LocalTransport<TokioClock>, TokioClock>;

/// The world that the instances of this module live in.
pub type FakeEnv = Runtime<FakeClient>;

/// Elements of a row: with bf16, rows of 2 KiB.
pub const WIDTH: u64 = 1024;

/// Longer than any call here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store with room for everything, and who uses it.
pub struct World {
    clock: TokioClock,
    cluster: FakeCluster<TokioClock>,
    clients: std::cell::Cell<u64>,
    pool_bytes: u64,
}

/// Runs `work` in a world whose instances have pools of `pool_bytes`.
pub fn run<F: Future>(pool_bytes: u64, work: impl FnOnce(World) -> F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let clock = TokioClock::new();
        let spawner = Arc::new(|task| drop(tokio::runtime::Handle::current().spawn(task)));
        // Nothing is to be evicted or to run out of its lease while it is measured.
        let master = Knobs { lease_ttl: Duration::from_secs(3600), ..Knobs::default() };
        let config = ClusterConfig { master, ..ClusterConfig::default() };
        let cluster = FakeCluster::new(clock, spawner, config).expect("the knobs are in range");
        cluster.add_node("node:1", 2 << 30);
        work(World { clock, cluster, clients: std::cell::Cell::new(0), pool_bytes }).await
    })
}

impl World {
    /// An encoder instance.
    pub async fn producer(&self) -> Producer {
        let env = self.env();
        let worker = Worker::start(env.clone(), self.config(Role::Producer), None).await;
        Producer { env, worker: worker.expect("a worker") }
    }

    /// A prefill instance.
    pub async fn consumer(&self) -> Consumer {
        let scheduler = Scheduler::start(self.env(), self.config(Role::Consumer)).await;
        Consumer { scheduler: scheduler.expect("a scheduler"), requests: 0 }
    }

    fn env(&self) -> FakeEnv {
        let id = self.clients.get() + 1;
        self.clients.set(id);
        let client = self.cluster.client(ClientConfig::new(ClientId(id), format!("client{id}:1")));
        Runtime::new(tokio::runtime::Handle::current(), self.clock, client, HostDevice)
    }

    fn config(&self, role: Role) -> Config {
        Config {
            role,
            namespace: namespace(),
            pool: PoolConfig::with_bytes(self.pool_bytes),
            loads: LoadConfig {
                deadline: PATIENCE,
                absent_ttl: Duration::from_secs(600),
                ..LoadConfig::default()
            },
            ..Config::default()
        }
    }
}

fn namespace() -> NamespaceParts {
    NamespaceParts {
        model: "bench".into(),
        dtype: DType::Bf16,
        width: WIDTH,
        ..NamespaceParts::default()
    }
}

/// An encoder instance.
pub struct Producer {
    env: FakeEnv,
    worker: Worker<FakeEnv>,
}

impl Producer {
    /// Saves these items of `rows` rows and waits until all are stored.
    ///
    /// # Panics
    /// If one is not.
    pub async fn save(&self, names: &[String], rows: u64) {
        let spec: TensorSpec = Namespace::new(&namespace()).spec(rows).expect("rows in range");
        let tensor =
            HostTensor::new(spec, vec![7; spec.bytes() as usize]).expect("the right length");
        for name in names {
            self.worker.save(name, tensor.clone(), HostEvent::ready());
        }
        let report = self.worker.wait_for_save(self.env.clock().now() + PATIENCE).await;
        assert_eq!(report.to_string(), format!("{} stored", names.len()));
    }
}

/// A prefill instance.
pub struct Consumer {
    scheduler: Scheduler<FakeEnv>,
    requests: u64,
}

impl Consumer {
    /// One request for these items, until the workers have what could be had. How many of them the store
    /// was asked to deliver.
    pub async fn request(&mut self, names: &[String], rows: u64) -> u64 {
        let before = self.scheduler.counters().gets;
        self.requests += 1;
        let request = format!("request-{}", self.requests);
        let item = |name: &String| ItemRequest { identifier: name.clone(), rows };
        let items: Vec<_> = names.iter().map(item).collect();
        while self.scheduler.ensure_available(&request, &items) == Availability::Wait {
            tokio::task::yield_now().await;
        }
        for name in names {
            if self.scheduler.has_item(name) {
                self.scheduler.allocated(&request, name);
            }
        }
        let orders = self.scheduler.build_step(&[]).orders;
        let orders: Vec<_> = orders.iter().map(|order| order.id).collect();
        self.scheduler.acknowledge(0, &orders);
        self.scheduler.request_finished(&request);
        // The engine keeps nothing: what it has itself, nobody asks a connector for.
        self.scheduler.build_step(names);
        self.scheduler.counters().gets - before
    }

    /// Items found in the pool or in the store, and those not found.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let counters = self.scheduler.counters();
        (counters.hits, counters.misses.values().sum())
    }
}
