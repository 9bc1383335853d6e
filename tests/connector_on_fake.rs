//! The connector against the fake store: what a producer saves, a consumer gets, or a counted miss.

use std::{sync::Arc, time::Duration};

use fake_store::{
    Client, ClientConfig, ClusterConfig, FakeCluster, Knobs,
    protocol::{ClientId, ReplicaConfig},
    transport::LocalTransport,
};
use springtide::{
    connector::{
        Availability, Config, ItemDecision, ItemRequest, LoadTarget, Namespace, NamespaceParts,
        Role, Scheduler, Worker, object_bytes,
    },
    env::{Clock, DType, Env, Shape, TensorSpec},
    pool::PoolConfig,
    runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
};

type FakeClient = Client<LocalTransport<TokioClock>, TokioClock>;
type FakeEnv = Runtime<FakeClient>;

/// A store of one 1 MiB node, and whoever uses it.
struct World {
    clock: TokioClock,
    cluster: FakeCluster<TokioClock>,
    clients: std::cell::Cell<u64>,
}

impl World {
    fn new(knobs: Knobs) -> Self {
        let clock = TokioClock::new();
        let spawner = Arc::new(|task| drop(tokio::runtime::Handle::current().spawn(task)));
        let config = ClusterConfig { master: knobs, ..ClusterConfig::default() };
        let cluster = FakeCluster::new(clock, spawner, config).unwrap();
        cluster.add_node("node0:1", 1 << 20);
        drop(tokio::runtime::Handle::current().spawn(cluster.clone().run()));
        Self { clock, cluster, clients: std::cell::Cell::new(0) }
    }

    fn client(&self, tune: impl FnOnce(ClientConfig) -> ClientConfig) -> FakeClient {
        let id = self.clients.get() + 1;
        self.clients.set(id);
        self.cluster.client(tune(ClientConfig::new(ClientId(id), format!("client{id}:1"))))
    }

    fn env(&self, tune: impl FnOnce(ClientConfig) -> ClientConfig) -> FakeEnv {
        let handle = tokio::runtime::Handle::current();
        Runtime::new(handle, self.clock, self.client(tune), HostDevice)
    }

    async fn producer(&self, parts: &NamespaceParts) -> Producer {
        let env = self.env(|client| client);
        let worker = Worker::start(env.clone(), config(Role::Producer, parts), None).await;
        Producer { env, worker: worker.unwrap() }
    }

    async fn consumer(&self, parts: &NamespaceParts) -> Consumer {
        let env = self.env(|client| client);
        let config = config(Role::Consumer, parts);
        let scheduler = Scheduler::start(env.clone(), config.clone()).await.unwrap();
        let worker = Worker::start(env.clone(), config, scheduler.mapper()).await.unwrap();
        let namespace = Namespace::new(parts);
        Consumer { env, namespace, scheduler, worker, requests: std::cell::Cell::new(0) }
    }
}

struct Producer {
    env: FakeEnv,
    worker: Worker<FakeEnv>,
}

impl Producer {
    /// Saves and waits; how it ended.
    async fn save(&self, identifier: &str, tensor: &HostTensor) -> String {
        self.worker.save(identifier, tensor.clone(), HostEvent::ready());
        let deadline = self.env.clock().now() + Duration::from_secs(1);
        let report = self.worker.wait_for_save(deadline).await;
        assert_eq!(self.worker.counters().check(), Ok(()));
        assert_eq!(report.entries.len(), 1);
        report.to_string()
    }
}

struct Consumer {
    env: FakeEnv,
    namespace: Namespace,
    scheduler: Scheduler<FakeEnv>,
    worker: Worker<FakeEnv>,
    requests: std::cell::Cell<u64>,
}

impl Consumer {
    /// One request for one item, as an engine makes it: the tensor's bytes, or why they are encoded locally.
    async fn load(&self, identifier: &str, rows: u64) -> Result<Vec<u8>, String> {
        self.requests.set(self.requests.get() + 1);
        let request = format!("r{}", self.requests.get());
        let item = ItemRequest { identifier: identifier.into(), rows };
        while self.scheduler.ensure_available(&request, std::slice::from_ref(&item))
            == Availability::Wait
        {
            self.env.clock().sleep(Duration::from_millis(1)).await;
        }
        let has = self.scheduler.has_item(identifier);
        let decision = self.scheduler.decision(&request, identifier);
        self.scheduler.allocated(&request, identifier);
        let plan = self.scheduler.build_step(&[]);
        let mut loaded = Vec::new();
        for order in plan.orders {
            let (id, tensor) = (order.id, HostTensor::zeros(order.spec));
            let target = LoadTarget { order, tensor: tensor.clone(), free: HostEvent::ready() };
            assert_eq!(self.worker.load(vec![target]).await[0].result, Ok(()));
            self.scheduler.acknowledge(0, &[id]);
            loaded = tensor.to_vec();
        }
        self.scheduler.request_finished(&request);
        self.scheduler.build_step(&[identifier.to_owned()]);
        let after = self.scheduler.counters();
        assert_eq!(after.check(), Ok(()));
        assert_eq!(self.scheduler.pool().unwrap().usage().pinned, 0);
        if has {
            assert_eq!(loaded.len() as u64, self.namespace.spec(rows).unwrap().bytes());
            return Ok(loaded);
        }
        match decision {
            Some(ItemDecision::Local(reason)) => Err(reason.to_string()),
            other => panic!("neither delivered nor declined: {other:?}"),
        }
    }
}

fn parts(dtype: DType) -> NamespaceParts {
    NamespaceParts { model: "m".into(), dtype, width: 24, ..NamespaceParts::default() }
}

fn config(role: Role, parts: &NamespaceParts) -> Config {
    let pool = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) };
    Config { role, namespace: parts.clone(), pool, ..Config::default() }
}

fn tensor(parts: &NamespaceParts, rows: u64, seed: u8) -> HostTensor {
    let spec = Namespace::new(parts).spec(rows).unwrap();
    HostTensor::new(spec, bytes(spec.bytes(), seed)).unwrap()
}

fn bytes(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31) ^ (n >> 8) as u8 ^ seed).collect()
}

#[tokio::test(start_paused = true)]
async fn f021_every_dtype_comes_back_byte_exact() {
    let world = World::new(Knobs::default());
    for dtype in DType::ALL {
        let parts = parts(dtype);
        let (producer, consumer) = (world.producer(&parts).await, world.consumer(&parts).await);
        for rows in [1, 2, 7, 100] {
            let identifier = format!("{dtype}-{rows}");
            let tensor = tensor(&parts, rows, rows as u8);
            assert_eq!(producer.save(&identifier, &tensor).await, "1 stored");
            assert_eq!(consumer.load(&identifier, rows).await, Ok(tensor.to_vec()));
        }
        let close = world.clock.now() + Duration::from_secs(1);
        assert_eq!(producer.worker.close(close).await.leaked_bytes, 0);
        assert_eq!(consumer.scheduler.close(close).await.leaked_bytes, 0);
        world.client(|client| client).remove_all(true).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn f022_an_empty_tensor_is_skipped_with_a_reason_and_takes_no_block() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::Bf16));
    let (producer, consumer) = (world.producer(&parts).await, world.consumer(&parts).await);
    assert_eq!(producer.save("empty", &tensor(&parts, 0, 0)).await, "1 dropped(empty)");
    assert_eq!(consumer.load("empty", 0).await, Err("empty".into()));
    for pool in [producer.worker.pool(), consumer.scheduler.pool()] {
        let usage = pool.unwrap().usage();
        assert_eq!(usage.free, usage.total);
    }
}

#[tokio::test(start_paused = true)]
async fn other_shapes_of_the_namespace_are_saved_and_other_types_are_not() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::F16));
    let producer = world.producer(&parts).await;
    for dims in [vec![24], vec![2, 24], vec![2, 3, 24], vec![1, 2, 3, 24]] {
        let spec = TensorSpec::new(DType::F16, Shape::new(&dims).unwrap()).unwrap();
        let tensor = HostTensor::zeros(spec);
        assert_eq!(producer.save(&format!("{dims:?}"), &tensor).await, "1 stored");
    }
    let spec = TensorSpec::new(DType::F16, Shape::new(&[24, 2]).unwrap()).unwrap();
    let refused = producer.save("turned", &HostTensor::zeros(spec)).await;
    assert_eq!(refused, "1 dropped(wrong_spec)");
}

#[tokio::test(start_paused = true)]
async fn a_store_with_one_buffer_an_object_is_served_whole_blocks() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::Bf16));
    let env = world.env(ClientConfig::single_buffer);
    let worker = Worker::start(env.clone(), config(Role::Producer, &parts), None).await.unwrap();
    let producer = Producer { env, worker };
    let consumer = world.consumer(&parts).await;
    let tensor = tensor(&parts, 100, 5);
    assert_eq!(producer.save("a", &tensor).await, "1 stored");
    assert_eq!(producer.worker.pool().unwrap().usage().allocations, 1);
    assert_eq!(consumer.load("a", 100).await, Ok(tensor.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn f049_a_damaged_object_is_removed_and_the_next_save_makes_it_good() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::Bf16));
    let (producer, consumer) = (world.producer(&parts).await, world.consumer(&parts).await);
    let (vandal, key) = (world.client(|client| client), Namespace::new(&parts).key("a"));
    let tensor = tensor(&parts, 10, 5);
    let spec = Namespace::new(&parts).spec(10).unwrap();
    for (garbage, reason) in [
        (bytes(object_bytes(&spec), 1), "rejected magic"),
        (bytes(object_bytes(&spec) - 1, 1), "rejected length"),
        (bytes(object_bytes(&spec) + 1, 1), "rejected length"),
    ] {
        vandal.remove_all(true).await.unwrap();
        vandal.put_bytes(key.as_str(), garbage, &ReplicaConfig::default()).await.unwrap();
        // The producer believes what it sees; only a reader looks inside.
        assert_eq!(producer.save("a", &tensor).await, "1 already there");
        let fresh = world.consumer(&parts).await;
        assert_eq!(fresh.load("a", 10).await, Err(reason.into()));
        fresh.env.clock().sleep(Duration::from_millis(10)).await;
        assert_eq!(fresh.scheduler.counters().removed, 1, "{reason}");
        assert_eq!(producer.save("a", &tensor).await, "1 stored");
        assert_eq!(world.consumer(&parts).await.load("a", 10).await, Ok(tensor.to_vec()));
    }
    assert_eq!(consumer.load("a", 10).await, Ok(tensor.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn f050_f051_adapters_and_their_revisions_never_meet() {
    let world = World::new(Knobs::default());
    let adapters = ["", "a", "b", "a@2"]
        .map(|adapter| NamespaceParts { adapter: adapter.into(), ..parts(DType::Bf16) });
    for (n, parts) in adapters.iter().enumerate() {
        let (producer, consumer) = (world.producer(parts).await, world.consumer(parts).await);
        assert_eq!(consumer.load("image", 10).await, Err("absent".into()));
        let tensor = tensor(parts, 10, n as u8);
        assert_eq!(producer.save("image", &tensor).await, "1 stored");
    }
    for (n, parts) in adapters.iter().enumerate() {
        let consumer = world.consumer(parts).await;
        assert_eq!(consumer.load("image", 10).await, Ok(tensor(parts, 10, n as u8).to_vec()));
    }
}

#[tokio::test(start_paused = true)]
async fn f085_two_producers_of_one_key_leave_one_good_object() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::Bf16));
    let (one, two) = (world.producer(&parts).await, world.producer(&parts).await);
    let tensor = tensor(&parts, 50, 5);
    let outcomes = tokio::join!(one.save("a", &tensor), two.save("a", &tensor));
    for outcome in [outcomes.0, outcomes.1] {
        assert!(["1 stored", "1 already there"].contains(&outcome.as_str()), "{outcome}");
    }
    assert_eq!(world.consumer(&parts).await.load("a", 50).await, Ok(tensor.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn f081_a_key_that_a_dead_writer_holds_is_stored_after_its_discard() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::Bf16));
    let (producer, consumer) = (world.producer(&parts).await, world.consumer(&parts).await);
    let key = Namespace::new(&parts).key("a");
    let dead = world.client(|client| client);
    let session = dead.start_put(key.as_str(), 1000, &ReplicaConfig::default()).await.unwrap();
    drop(session);
    let tensor = tensor(&parts, 10, 5);
    // A put over it returns 0 and stores nothing: never "stored".
    assert_eq!(producer.save("a", &tensor).await, "1 timed out");
    assert!(producer.worker.counters().invisible > 0);
    assert_eq!(consumer.load("a", 10).await, Err("not ready".into()));
    producer.env.clock().sleep(Duration::from_secs(31)).await;
    assert_eq!(producer.save("a", &tensor).await, "1 stored");
    assert_eq!(consumer.load("a", 10).await, Ok(tensor.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn what_a_restarted_master_forgot_is_published_again_from_the_pool() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::Bf16));
    let (producer, consumer) = (world.producer(&parts).await, world.consumer(&parts).await);
    let tensor = tensor(&parts, 10, 5);
    assert_eq!(producer.save("a", &tensor).await, "1 stored");
    world.cluster.master().restart();
    assert_eq!(consumer.load("a", 10).await, Err("absent".into()));
    consumer.env.clock().sleep(Duration::from_secs(2)).await;
    assert_eq!(producer.save("a", &tensor).await, "1 stored");
    assert_eq!(producer.worker.counters().reused, 1);
    assert_eq!(consumer.load("a", 10).await, Ok(tensor.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn f107_f123_a_thousand_items_leak_nothing() {
    let (world, parts) = (World::new(Knobs::default()), parts(DType::Bf16));
    let (producer, consumer) = (world.producer(&parts).await, world.consumer(&parts).await);
    for n in 0..1000u64 {
        let (identifier, rows) = (n.to_string(), 1 + n % 60);
        let tensor = tensor(&parts, rows, n as u8);
        assert_eq!(producer.save(&identifier, &tensor).await, "1 stored", "{n}");
        assert_eq!(consumer.load(&identifier, rows).await, Ok(tensor.to_vec()), "{n}");
        // Leases last 10 s: let the store evict.
        world.clock.sleep(Duration::from_secs(1)).await;
    }
    for pool in [producer.worker.pool().unwrap(), consumer.scheduler.pool().unwrap()] {
        let usage = pool.usage();
        assert_eq!((usage.pinned, usage.in_flight, usage.filling, usage.quarantined), (0, 0, 0, 0));
        assert_eq!(usage.free + usage.resident, usage.total);
        pool.verify().unwrap();
    }
    assert_eq!(
        producer.env.store().registered_bytes(),
        producer.worker.pool().unwrap().region().len()
    );
}
