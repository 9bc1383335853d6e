//! The connector's error branches, against a store that does exactly what each test says.

use std::{future::Future, sync::Arc, time::Duration};

use mockall::{Sequence, mock};
use springtide::{
    connector::{
        Availability, Config, DeliverError, HEADER_BYTES, Header, ItemRequest, LoadOrder,
        LoadTarget, Namespace, NamespaceParts, OrderId, PayloadChecksum, Role, Scheduler,
        StartError, Worker, object_bytes,
    },
    env::{
        Clock, DType, ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError,
        StoreLimits, TensorSpec, Time,
    },
    pool::{PoolConfig, Region},
    runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
};

mock! {
    Calls {
        fn register(
            &self,
            region: Arc<Region>,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;
        fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError>;
        fn put(
            &self,
            items: Vec<PutItem>,
        ) -> std::pin::Pin<Box<dyn Future<Output = Vec<Outcome<()>>> + Send>>;
        fn get(
            &self,
            items: Vec<GetItem>,
        ) -> std::pin::Pin<Box<dyn Future<Output = Vec<Outcome<u64>>> + Send>>;
        fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>>;
        fn size(&self, key: Key) -> Result<u64, StoreError>;
        fn remove(&self, key: Key, force: bool) -> Result<(), StoreError>;
        fn close(&self) -> std::pin::Pin<Box<dyn Future<Output = Fence> + Send>>;
    }
}

/// The mock behind a handle that can be cloned.
#[derive(Clone)]
struct MockStore(Arc<MockCalls>);

impl Store for MockStore {
    fn limits(&self) -> StoreLimits {
        StoreLimits { buffers_per_object: 8, fragments_per_batch: 1024, object_bytes_max: None }
    }

    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        self.0.register(region).await
    }

    async fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError> {
        self.0.unregister(region)
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        self.0.put(items)
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        self.0.get(items)
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        self.0.exists(keys)
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        self.0.size(key)
    }

    async fn remove(&self, key: Key, force: bool) -> Result<(), StoreError> {
        self.0.remove(key, force)
    }

    fn close(&self) -> impl Future<Output = Fence> + Send {
        self.0.close()
    }
}

type TestEnv = Runtime<MockStore>;

const WIDTH: u64 = 32;

fn error(code: ErrorCode) -> StoreError {
    StoreError::new(code, Duration::from_millis(1))
}

fn parts() -> NamespaceParts {
    NamespaceParts { model: "m".into(), dtype: DType::Bf16, width: WIDTH, ..Default::default() }
}

fn spec(rows: u64) -> TensorSpec {
    Namespace::new(&parts()).spec(rows).unwrap()
}

fn key(identifier: &str) -> Key {
    Namespace::new(&parts()).key(identifier)
}

fn tensor(rows: u64, fill: u8) -> HostTensor {
    HostTensor::new(spec(rows), vec![fill; spec(rows).bytes() as usize]).unwrap()
}

fn item(identifier: &str, rows: u64) -> ItemRequest {
    ItemRequest { identifier: identifier.into(), rows }
}

/// A small pool: 16 units of 512 + 64 bytes.
fn config(role: Role) -> Config {
    let pool = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(16 * 576) };
    Config { role, namespace: parts(), pool, ..Config::default() }
}

fn mocked(expect: impl FnOnce(&mut MockCalls)) -> TestEnv {
    let mut calls = MockCalls::new();
    expect(&mut calls);
    calls.expect_register().returning(|_| Box::pin(async { Ok(()) }));
    let store = MockStore(Arc::new(calls));
    Runtime::new(tokio::runtime::Handle::current(), TokioClock::new(), store, HostDevice)
}

fn from_now(env: &TestEnv, millis: u64) -> Time {
    use springtide::env::Env as _;
    env.clock().now() + Duration::from_millis(millis)
}

/// Lets time pass for everything that runs.
async fn pass(env: &TestEnv, millis: u64) {
    use springtide::env::Env as _;
    env.clock().sleep(Duration::from_millis(millis)).await;
}

fn ended<T>(result: Result<T, StoreError>, transfer: springtide::pool::Transfer) -> Outcome<T> {
    Outcome::Ended { buffer: transfer.finish(), result }
}

async fn outcomes(worker: &Worker<TestEnv>, deadline: Time) -> Vec<String> {
    let report = worker.wait_for_save(deadline).await;
    assert_eq!(worker.counters().check(), Ok(()));
    report.entries.iter().map(|entry| entry.outcome.to_string()).collect()
}

/// The object of a tensor filled with one byte.
fn object(identifier: &str, rows: u64, fill: u8) -> Vec<u8> {
    let payload = vec![fill; spec(rows).bytes() as usize];
    let mut checksum = PayloadChecksum::default();
    checksum.update(&payload);
    let header = Header::new(&key(identifier), spec(rows), Some(checksum.finish()));
    [header.encode().as_slice(), &payload].concat()
}

/// A get that delivers these bytes, as many as fit, and reports `reported` of them.
fn delivers(bytes: Vec<u8>, reported: impl Fn(u64) -> u64, mut item: GetItem) -> Outcome<u64> {
    let len = item.dest.len().min(bytes.len() as u64) as usize;
    item.dest.write_at(0, &bytes[..len]);
    ended(Ok(reported(len as u64)), item.dest)
}

/// Runs a request's scheduling passes until its items are decided.
async fn decide(scheduler: &Scheduler<TestEnv>, request: &str, items: &[ItemRequest]) {
    for _ in 0..10_000 {
        if scheduler.ensure_available(request, items) == Availability::Ready {
            return;
        }
        tokio::time::advance(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
    }
    panic!("still waiting: {:?}", scheduler.counters());
}

fn misses(scheduler: &Scheduler<TestEnv>) -> Vec<(String, u64)> {
    let counters = scheduler.counters();
    assert_eq!(counters.check(), Ok(()));
    counters.misses.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn f011_a_refused_registration_fails_the_start_and_names_the_code() {
    let mut calls = MockCalls::new();
    calls.expect_register().returning(|_| Box::pin(async { Err(error(ErrorCode::InvalidParams)) }));
    let store = MockStore(Arc::new(calls));
    let handle = tokio::runtime::Handle::current();
    let env = Runtime::new(handle, TokioClock::new(), store, HostDevice);
    let Err(refused) = Worker::start(env.clone(), config(Role::Producer), None).await else {
        panic!("started without registered memory");
    };
    insta::assert_snapshot!(refused, @"registering 9216 bytes with the store: INVALID_PARAMS (-600) after 0.001 s");
    assert!(matches!(
        Scheduler::start(env, config(Role::Consumer)).await,
        Err(StartError::Register { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_never_ends_fails_the_start() {
    let mut calls = MockCalls::new();
    calls.expect_register().returning(|_| Box::pin(std::future::pending()));
    let store = MockStore(Arc::new(calls));
    let handle = tokio::runtime::Handle::current();
    let env = Runtime::new(handle, TokioClock::new(), store, HostDevice);
    let Err(refused) = Worker::start(env, config(Role::Producer), None).await else {
        panic!("started without registered memory");
    };
    insta::assert_snapshot!(refused, @"registering 9216 bytes with the store: no answer within the I/O timeout");
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_work_fails_the_start() {
    let env = mocked(|_| {});
    let config = Config { tensor_parallel: 0, ..config(Role::Producer) };
    let Err(refused) = Worker::start(env.clone(), config, None).await else {
        panic!("started with no ranks");
    };
    insta::assert_snapshot!(refused, @"configuration: tensor_parallel is 0, expected 1 to 1024");
    let Err(refused) = Worker::start(env, self::config(Role::Both), None).await else {
        panic!("started without a region to load from");
    };
    insta::assert_snapshot!(refused, @"role consumer needs a mapping of the scheduler's region");
}

#[tokio::test(start_paused = true)]
async fn f001_a_put_that_never_ends_keeps_its_block_and_the_wait_ends() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(false); keys.len()]);
        calls.expect_put().returning(|items| {
            Box::pin(async move {
                let _held = items;
                std::future::pending().await
            })
        });
    });
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    let pool = worker.pool().unwrap().clone();
    worker.save("a", tensor(100, 1), HostEvent::ready());
    assert_eq!(outcomes(&worker, from_now(&env, 50)).await, ["timed out"]);
    assert!(pool.usage().in_flight >= object_bytes(&spec(100)));
    // 16 units: 12 are held, so a second item of that size has no room.
    worker.save("b", tensor(100, 2), HostEvent::ready());
    assert_eq!(outcomes(&worker, from_now(&env, 50)).await, ["dropped(pool_full)"]);
    pool.verify().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_put_quarantines_its_block_until_the_fence() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(false); keys.len()]);
        calls.expect_put().returning(|items| {
            Box::pin(async move {
                let error = StoreError::new(ErrorCode::TransferFail, Duration::from_secs(60));
                let uncertain = |item: PutItem| Outcome::Uncertain { buffer: item.source, error };
                items.into_iter().map(uncertain).collect()
            })
        });
        let mut order = Sequence::new();
        calls
            .expect_close()
            .times(1)
            .in_sequence(&mut order)
            .returning(|| Box::pin(async { Fence::Fenced }));
        calls.expect_unregister().times(1).in_sequence(&mut order).returning(|_| Ok(()));
    });
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    let pool = worker.pool().unwrap().clone();
    worker.save("a", tensor(100, 1), HostEvent::ready());
    let outcome = outcomes(&worker, from_now(&env, 50)).await;
    assert_eq!(outcome, ["failed(uncertain TRANSFER_FAIL (-800))"]);
    let quarantined = pool.usage().quarantined;
    assert!(quarantined >= object_bytes(&spec(100)));
    let report = worker.close(from_now(&env, 1000)).await;
    assert_eq!(report.released_bytes, quarantined);
    assert_eq!((report.abandoned, report.leaked_bytes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn f023_close_ends_by_its_deadline_and_leaks_what_may_be_written() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(false); keys.len()]);
        calls.expect_put().returning(|items| {
            Box::pin(async move {
                let _held = items;
                std::future::pending().await
            })
        });
        calls.expect_close().times(1).returning(|| Box::pin(std::future::pending()));
        calls.expect_unregister().never();
    });
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    worker.save("a", tensor(100, 1), HostEvent::ready());
    pass(&env, 10).await;
    let deadline = from_now(&env, 2000);
    let report = worker.close(deadline).await;
    assert_eq!(from_now(&env, 0), deadline);
    assert_eq!(report.abandoned, 1);
    assert_eq!(report.leaked_bytes, 16 * 576);
    worker.save("b", tensor(10, 1), HostEvent::ready());
    let outcome = outcomes(&worker, from_now(&env, 10)).await;
    assert_eq!(outcome, ["timed out", "dropped(closed)"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_too_little_loses_nothing_and_hangs_nothing() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|_| Vec::new());
        calls.expect_put().returning(|items| {
            Box::pin(async move {
                drop(items);
                Vec::new()
            })
        });
    });
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    worker.save("a", tensor(10, 1), HostEvent::ready());
    assert_eq!(outcomes(&worker, from_now(&env, 1000)).await, ["timed out"]);
    assert_eq!(worker.counters().lost, 1);
    assert!(worker.pool().unwrap().usage().quarantined > 0, "dropped in flight: quarantined");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_saved_ends_with_its_reason() {
    let env = mocked(|_| {});
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    worker.save("large", tensor(1000, 1), HostEvent::ready());
    worker.save("empty", tensor(0, 1), HostEvent::ready());
    let other = TensorSpec { dtype: DType::F32, ..spec(4) };
    let other = HostTensor::zeros(other);
    worker.save("other", other, HostEvent::ready());
    let expected = ["dropped(too_large)", "dropped(empty)", "dropped(wrong_spec)"];
    assert_eq!(outcomes(&worker, from_now(&env, 1000)).await, expected);
    let usage = worker.pool().unwrap().usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test(start_paused = true)]
async fn f020_one_put_for_four_ranks_and_no_pool_in_the_scheduler() {
    let env = mocked(|calls| {
        let mut asked = 0;
        calls.expect_exists().times(2).returning(move |keys| {
            asked += 1;
            vec![Ok(asked > 1); keys.len()]
        });
        calls.expect_put().times(1).returning(|items| {
            Box::pin(
                async move { items.into_iter().map(|item| ended(Ok(()), item.source)).collect() },
            )
        });
    });
    let mut tickets = 0;
    for rank in 0..4 {
        let config = Config { rank, tensor_parallel: 4, ..config(Role::Producer) };
        let worker = Worker::start(env.clone(), config, None).await.unwrap();
        tickets += usize::from(worker.save("a", tensor(10, 1), HostEvent::ready()).is_some());
        let outcomes = outcomes(&worker, from_now(&env, 1000)).await;
        assert_eq!(outcomes, if rank == 0 { vec!["stored"] } else { vec![] });
        assert_eq!(worker.pool().is_some(), rank == 0);
    }
    assert_eq!(tickets, 1);
    let scheduler = Scheduler::start(env, config(Role::Producer)).await.unwrap();
    assert!(scheduler.pool().is_none());
    assert_eq!(scheduler.ensure_available("r", &[item("a", 10)]), Availability::Ready);
    assert!(!scheduler.has_item("a"));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_the_store_has_lost_is_published_again_without_a_copy() {
    let env = mocked(|calls| {
        let mut puts = Sequence::new();
        for _ in 0..2 {
            for exists in [false, true] {
                let times = calls.expect_exists().times(1).in_sequence(&mut puts);
                times.returning(move |keys| vec![Ok(exists); keys.len()]);
            }
        }
        calls.expect_put().times(2).returning(|items| {
            Box::pin(
                async move { items.into_iter().map(|item| ended(Ok(()), item.source)).collect() },
            )
        });
    });
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    for _ in 0..2 {
        worker.save("a", tensor(10, 1), HostEvent::ready());
        assert_eq!(outcomes(&worker, from_now(&env, 1000)).await, ["stored"]);
        pass(&env, 1).await;
    }
    assert_eq!(worker.counters().reused, 1);
    assert_eq!(worker.residents(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loaded_item_is_delivered_to_every_rank_and_then_unpinned() {
    let env = mocked(|calls| {
        calls.expect_exists().times(1).returning(|keys| vec![Ok(true); keys.len()]);
        calls.expect_get().times(1).returning(|items| {
            Box::pin(async move {
                let deliver = |item| delivers(object("a", 10, 7), |n| n, item);
                items.into_iter().map(deliver).collect()
            })
        });
    });
    let config = Config { tensor_parallel: 2, ..config(Role::Consumer) };
    let scheduler = Scheduler::start(env.clone(), config.clone()).await.unwrap();
    decide(&scheduler, "r1", &[item("a", 10)]).await;
    assert!(scheduler.has_item("a"));
    scheduler.allocated("r1", "a");
    let plan = scheduler.build_step(&[]);
    assert_eq!(plan.orders.len(), 1);
    assert!(scheduler.pool().unwrap().usage().pinned > 0);
    scheduler.request_finished("r1");
    for rank in 0..2 {
        let config = Config { rank, ..config.clone() };
        let worker = Worker::start(env.clone(), config, scheduler.mapper()).await.unwrap();
        let tensor = HostTensor::zeros(spec(10));
        let target = LoadTarget {
            order: plan.orders[0].clone(),
            tensor: tensor.clone(),
            free: HostEvent::ready(),
        };
        let deliveries = worker.load(vec![target]).await;
        assert_eq!(deliveries[0].result, Ok(()));
        assert!(tensor.to_vec().iter().all(|byte| *byte == 7));
        assert_eq!(scheduler.build_step(&[]).orders.len(), 1, "sent until all have acknowledged");
        scheduler.acknowledge(rank, &[deliveries[0].order]);
    }
    assert_eq!(scheduler.build_step(&[]).orders, []);
    assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
    // Repeated items come from the pool: `times(1)` above.
    scheduler.build_step(&["a".to_owned()]);
    assert_eq!(scheduler.ensure_available("r2", &[item("a", 10)]), Availability::Ready);
    assert!(scheduler.has_item("a"));
    assert_eq!(scheduler.counters().resident_hits, 1);
    scheduler.request_finished("r2");
    assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_item_is_a_miss_and_is_removed() {
    let mut foreign = object("b", 10, 7);
    foreign[100] = 8;
    let mut flipped = object("a", 10, 7);
    flipped[HEADER_BYTES as usize] ^= 1;
    type Reported = fn(u64) -> u64;
    let cases: Vec<(_, Reported, _)> = vec![
        (object("a", 10, 7), |n| n - 512, "rejected length"),
        (object("a", 10, 7), |_| 0, "rejected length"),
        (foreign, |n| n, "rejected key"),
        (flipped, |n| n, "rejected checksum"),
        (vec![0; 704], |n| n, "rejected magic"),
        (object("a", 20, 7), |n| n, "rejected shape"),
    ];
    for (bytes, reported, reason) in cases {
        let env = mocked(|calls| {
            calls.expect_exists().returning(|keys| vec![Ok(true); keys.len()]);
            calls.expect_get().times(1).returning(move |items| {
                let bytes = bytes.clone();
                Box::pin(async move {
                    let deliver = |item| delivers(bytes.clone(), reported, item);
                    items.into_iter().map(deliver).collect()
                })
            });
            let bad = key("a");
            calls
                .expect_remove()
                .withf(move |key, force| *key == bad && *force)
                .times(1)
                .returning(|_, _| Ok(()));
        });
        let scheduler = Scheduler::start(env.clone(), config(Role::Consumer)).await.unwrap();
        decide(&scheduler, "r", &[item("a", 10)]).await;
        assert!(!scheduler.has_item("a"));
        assert_eq!(misses(&scheduler), [(reason.to_owned(), 1)]);
        pass(&env, 1).await;
        assert_eq!(scheduler.counters().removed, 1);
        let usage = scheduler.pool().unwrap().usage();
        assert_eq!(usage.free, usage.total, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn f014_a_failed_batch_is_misses_and_gives_its_memory_back() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(true); keys.len()]);
        calls.expect_size().returning(|_| Ok(object_bytes(&spec(10))));
        calls.expect_get().returning(|items| {
            Box::pin(async move {
                let fail = |item: GetItem| ended(Err(error(ErrorCode::InvalidParams)), item.dest);
                items.into_iter().map(fail).collect()
            })
        });
    });
    let scheduler = Scheduler::start(env, config(Role::Consumer)).await.unwrap();
    let items = ["a", "b", "c", "d"].map(|name| item(name, 10));
    decide(&scheduler, "r", &items).await;
    assert_eq!(misses(&scheduler), [("INVALID_PARAMS (-600)".to_owned(), 4)]);
    let usage = scheduler.pool().unwrap().usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test(start_paused = true)]
async fn f015_an_item_without_room_does_not_hold_up_its_batch() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(true); keys.len()]);
        calls.expect_get().returning(|items| {
            Box::pin(async move {
                let deliver = |item: GetItem| {
                    let name = item.key.as_str().rsplit('/').next().unwrap().to_owned();
                    delivers(object(&name, 48, 7), |n| n, item)
                };
                items.into_iter().map(deliver).collect()
            })
        });
    });
    let scheduler = Scheduler::start(env, config(Role::Consumer)).await.unwrap();
    // Each takes 6 of 16 units, and all are pinned by the request.
    let items = ["a", "b", "c"].map(|name| item(name, 48));
    decide(&scheduler, "r", &items).await;
    assert!(scheduler.has_item("a") && scheduler.has_item("b") && !scheduler.has_item("c"));
    assert_eq!(misses(&scheduler), [("pool full".to_owned(), 1)]);
    scheduler.request_finished("r");
    assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
}

#[tokio::test(start_paused = true)]
async fn f118_a_load_that_never_ends_is_a_miss_and_its_block_is_not_reused() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(true); keys.len()]);
        calls.expect_get().returning(|items| {
            Box::pin(async move {
                let _held = items;
                std::future::pending().await
            })
        });
    });
    let scheduler = Scheduler::start(env.clone(), config(Role::Consumer)).await.unwrap();
    let started = from_now(&env, 0);
    decide(&scheduler, "r", &[item("a", 100)]).await;
    assert_eq!(misses(&scheduler), [("deadline".to_owned(), 1)]);
    assert!(from_now(&env, 0) - started <= config(Role::Consumer).loads.deadline);
    assert!(scheduler.pool().unwrap().usage().in_flight >= object_bytes(&spec(100)));
}

#[tokio::test(start_paused = true)]
async fn an_aborted_request_gives_back_what_it_holds() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(true); keys.len()]);
        calls.expect_get().returning(|items| {
            Box::pin(async move {
                let deliver = |item| delivers(object("a", 10, 7), |n| n, item);
                items.into_iter().map(deliver).collect()
            })
        });
    });
    let scheduler = Scheduler::start(env, config(Role::Consumer)).await.unwrap();
    decide(&scheduler, "r", &[item("a", 10)]).await;
    assert!(scheduler.pool().unwrap().usage().pinned > 0);
    scheduler.request_finished("r");
    assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
    // Withdrawn before it was decided.
    scheduler.ensure_available("r2", &[item("new", 10)]);
    scheduler.request_finished("r2");
    assert_eq!(scheduler.counters().withdrawn, 1);
    assert_eq!(scheduler.counters().check(), Ok(()));
    assert_eq!(scheduler.gauges().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_refuses_orders_that_it_cannot_carry_out() {
    let env = mocked(|calls| {
        calls.expect_exists().returning(|keys| vec![Ok(true); keys.len()]);
        calls.expect_get().returning(|items| {
            Box::pin(async move {
                let deliver = |item| delivers(object("a", 10, 7), |n| n, item);
                items.into_iter().map(deliver).collect()
            })
        });
    });
    let scheduler = Scheduler::start(env.clone(), config(Role::Consumer)).await.unwrap();
    decide(&scheduler, "r", &[item("a", 10)]).await;
    assert!(scheduler.has_item("a"));
    scheduler.allocated("r", "a");
    let order = scheduler.build_step(&[]).orders.remove(0);
    let mapper = scheduler.mapper();
    let worker = Worker::start(env.clone(), config(Role::Consumer), mapper).await.unwrap();
    let load = async |order: &LoadOrder, rows| {
        let (order, tensor) = (order.clone(), HostTensor::zeros(spec(rows)));
        let target = LoadTarget { order, tensor, free: HostEvent::ready() };
        worker.load(vec![target]).await.remove(0).result
    };
    assert!(matches!(load(&order, 9).await, Err(DeliverError::Tensor { .. })));
    assert_eq!(load(&order, 10).await, Ok(()));
    scheduler.acknowledge(0, &[order.id]);
    // The pin has gone; the next large item takes the memory, and the old order is stale.
    let pool = scheduler.pool().unwrap();
    let large = 16 * 576 - 576;
    let _ = pool.evict_until_fits(large, springtide::pool::Contiguity::Extents);
    let _lease = pool.allocate(large, springtide::pool::Contiguity::Extents).unwrap();
    assert!(matches!(load(&order, 10).await, Err(DeliverError::Stale(_))));
    assert_eq!(order.id, OrderId(0));
}

#[tokio::test(start_paused = true)]
async fn f017_a_copy_waits_for_its_event_and_a_late_save_still_becomes_readable() {
    let env = mocked(|calls| {
        let mut put = false;
        calls
            .expect_exists()
            .times(2)
            .returning(move |keys| vec![Ok(std::mem::replace(&mut put, true)); keys.len()]);
        calls.expect_put().times(1).returning(|items| {
            Box::pin(
                async move { items.into_iter().map(|item| ended(Ok(()), item.source)).collect() },
            )
        });
    });
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    let (event, signal) = HostEvent::pending();
    worker.save("a", tensor(10, 1), event);
    assert_eq!(outcomes(&worker, from_now(&env, 100)).await, ["timed out"]);
    assert_eq!(worker.counters().puts, 0);
    signal.signal();
    pass(&env, 1).await;
    assert_eq!((worker.counters().puts, worker.counters().late), (1, 1));
    assert_eq!(outcomes(&worker, from_now(&env, 100)).await, [""; 0]);
}
