//! Attempts to break the connector's promises: calls in the wrong order or twice, a store and a device that
//! panic, lie, answer late or never, limits at their ends, a shutdown at any moment.

use std::{
    future::{Future, pending, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use springtide::{
    connector::{
        Availability, Config, DeliverError, Header, ItemDecision, ItemRequest, LoadOrder,
        LoadTarget, MissReason, Namespace, NamespaceParts, PayloadChecksum, Role, Scheduler,
        Worker,
    },
    env::{
        Clock, DType, Device, DeviceError, Env, ErrorCode, Fence, GetItem, Key, Outcome, PutItem,
        Shape, Store, StoreError, StoreLimits, TensorSpec, Time,
    },
    pool::{PoolConfig, Region, Transfer, View},
    runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
};

const WIDTH: u64 = 32;

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Call<A, T> = Arc<dyn Fn(usize, A) -> Answer<T> + Send + Sync>;

/// A store that does what the test says; each closure also gets the number of its call, from 0.
#[derive(Clone)]
struct Scripted {
    exists: Call<Vec<Key>, Vec<Result<bool, StoreError>>>,
    put: Call<Vec<PutItem>, Vec<Outcome<()>>>,
    get: Call<Vec<GetItem>, Vec<Outcome<u64>>>,
    calls: Arc<Calls>,
}

#[derive(Default)]
struct Calls {
    exists: AtomicUsize,
    put: AtomicUsize,
    get: AtomicUsize,
    close: AtomicUsize,
    unregister: AtomicUsize,
}

fn count(counter: &AtomicUsize) -> usize {
    counter.fetch_add(1, Ordering::Relaxed)
}

fn counted(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::Relaxed)
}

impl Store for Scripted {
    fn limits(&self) -> StoreLimits {
        StoreLimits { buffers_per_object: 8, fragments_per_batch: 1024, object_bytes_max: None }
    }

    async fn register(&self, _: Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unregister(&self, _: Arc<Region>) -> Result<(), StoreError> {
        count(&self.calls.unregister);
        Ok(())
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        (self.put)(count(&self.calls.put), items)
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        (self.get)(count(&self.calls.get), items)
    }

    fn exists(&self, keys: Vec<Key>) -> impl Future<Output = Vec<Result<bool, StoreError>>> + Send {
        (self.exists)(count(&self.calls.exists), keys)
    }

    async fn size(&self, _: Key) -> Result<u64, StoreError> {
        Err(StoreError::new(ErrorCode::ObjectNotFound, Duration::ZERO))
    }

    async fn remove(&self, _: Key, _: bool) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) -> Fence {
        count(&self.calls.close);
        Fence::Fenced
    }
}

/// A store that has nothing at the first question, then everything, and takes and gives what it should.
fn honest() -> Scripted {
    Scripted {
        exists: Arc::new(|call, keys| Box::pin(async move { vec![Ok(call > 0); keys.len()] })),
        put: Arc::new(|_, items| Box::pin(async move { items.into_iter().map(stored).collect() })),
        get: Arc::new(|_, items| {
            Box::pin(async move { items.into_iter().map(|item| delivers(10, item)).collect() })
        }),
        calls: Arc::default(),
    }
}

/// A store that has everything.
fn full() -> Scripted {
    Scripted {
        exists: Arc::new(|_, keys| Box::pin(async move { vec![Ok(true); keys.len()] })),
        ..honest()
    }
}

fn stored(item: PutItem) -> Outcome<()> {
    Outcome::Ended { buffer: item.source.finish(), result: Ok(()) }
}

/// Delivers the object of `rows` rows of sevens under the item's own key, as much as fits.
fn delivers(rows: u64, mut item: GetItem) -> Outcome<u64> {
    let object = object(&item.key, spec(rows), 7);
    let len = item.dest.len().min(object.len() as u64);
    item.dest.write_at(0, &object[..len as usize]);
    Outcome::Ended { buffer: item.dest.finish(), result: Ok(len) }
}

fn object(key: &Key, spec: TensorSpec, fill: u8) -> Vec<u8> {
    let payload = vec![fill; spec.bytes() as usize];
    let mut checksum = PayloadChecksum::default();
    checksum.update(&payload);
    [Header::new(key, spec, Some(checksum.finish())).encode().as_slice(), &payload].concat()
}

fn parts() -> NamespaceParts {
    NamespaceParts { model: "m".into(), dtype: DType::Bf16, width: WIDTH, ..Default::default() }
}

fn spec(rows: u64) -> TensorSpec {
    Namespace::new(&parts()).spec(rows).unwrap()
}

fn tensor(rows: u64) -> HostTensor {
    HostTensor::new(spec(rows), vec![7; spec(rows).bytes() as usize]).unwrap()
}

fn item(identifier: &str, rows: u64) -> ItemRequest {
    ItemRequest { identifier: identifier.into(), rows }
}

/// A small pool: 16 units of 512 + 64 bytes.
fn config(role: Role) -> Config {
    let pool = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(16 * 576) };
    Config { role, namespace: parts(), pool, ..Config::default() }
}

fn env(store: &Scripted) -> Runtime<Scripted> {
    env_on(store, HostDevice)
}

fn env_on<D: Device>(store: &Scripted, device: D) -> Runtime<Scripted, D> {
    Runtime::new(tokio::runtime::Handle::current(), TokioClock::new(), store.clone(), device)
}

async fn producer(store: &Scripted) -> (Runtime<Scripted>, Worker<Runtime<Scripted>>) {
    let env = env(store);
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    (env, worker)
}

async fn consumer(store: &Scripted) -> (Runtime<Scripted>, Scheduler<Runtime<Scripted>>) {
    let env = env(store);
    let scheduler = Scheduler::start(env.clone(), config(Role::Consumer)).await.unwrap();
    (env, scheduler)
}

fn from_now<E: Env>(env: &E, millis: u64) -> Time {
    env.clock().now() + Duration::from_millis(millis)
}

async fn pass<E: Env>(env: &E, millis: u64) {
    env.clock().sleep(Duration::from_millis(millis)).await;
}

async fn outcomes<E: Env>(worker: &Worker<E>, deadline: Time) -> Vec<String> {
    let report = worker.wait_for_save(deadline).await;
    assert_eq!(worker.counters().check(), Ok(()));
    report.entries.iter().map(|entry| entry.outcome.to_string()).collect()
}

/// Runs a request's scheduling passes until its items are decided; how long that took.
async fn decide<E: Env>(
    env: &E,
    scheduler: &Scheduler<E>,
    request: &str,
    items: &[ItemRequest],
) -> Duration {
    let started = env.clock().now();
    for _ in 0..10_000 {
        if scheduler.ensure_available(request, items) == Availability::Ready {
            assert_eq!(scheduler.counters().check(), Ok(()));
            return env.clock().now() - started;
        }
        pass(env, 1).await;
    }
    panic!("still waiting: {:?}", scheduler.counters());
}

/// One scheduling pass that takes the item; the orders of its step.
fn take<E: Env>(scheduler: &Scheduler<E>, request: &str, identifier: &str) -> Vec<LoadOrder> {
    assert!(scheduler.has_item(identifier));
    scheduler.allocated(request, identifier);
    scheduler.build_step(&[]).orders
}

fn target<E: Env<Device = HostDevice>>(
    order: &LoadOrder,
    free: HostEvent,
) -> LoadTarget<E::Device> {
    LoadTarget { order: order.clone(), tensor: HostTensor::zeros(order.spec), free }
}

// -- a shutdown at any moment ---------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_save_after_the_close_is_dropped_even_if_its_item_is_being_put() {
    let store = Scripted { put: Arc::new(|_, items| held(items)), ..honest() };
    let (env, worker) = producer(&store).await;
    worker.save("a", tensor(10), HostEvent::ready());
    pass(&env, 1).await;
    worker.close(from_now(&env, 100)).await;
    worker.save("a", tensor(10), HostEvent::ready());
    let started = env.clock().now();
    assert_eq!(outcomes(&worker, from_now(&env, 60_000)).await, ["timed out", "dropped(closed)"]);
    assert_eq!(env.clock().now(), started, "nothing will come any more");
    assert_eq!(worker.counters().open, 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_close_that_ends_its_saves() {
    let store = Scripted { put: Arc::new(|_, items| held(items)), ..honest() };
    let (env, worker) = producer(&store).await;
    worker.save("a", tensor(10), HostEvent::ready());
    let started = env.clock().now();
    let waiting = outcomes(&worker, from_now(&env, 60_000));
    let closing = worker.close(from_now(&env, 100));
    let (outcomes, report) = tokio::join!(biased; waiting, closing);
    assert_eq!((outcomes, report.abandoned), (vec!["timed out".to_owned()], 1));
    assert!(env.clock().now() - started <= Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_after_the_close() {
    let store = Scripted {
        exists: Arc::new(|_, keys| {
            Box::pin(async move {
                TokioClock::new().sleep(Duration::from_millis(50)).await;
                vec![Ok(true); keys.len()]
            })
        }),
        ..honest()
    };
    let (env, scheduler) = consumer(&store).await;
    assert_eq!(scheduler.ensure_available("r", &[item("a", 10)]), Availability::Wait);
    pass(&env, 10).await;
    let report = scheduler.close(from_now(&env, 1000)).await;
    pass(&env, 100).await;
    assert_eq!((report.abandoned, counted(&store.calls.get)), (0, 0));
    assert_eq!(scheduler.gauges().keys, 0);
    assert_eq!(scheduler.decision("r", "a"), Some(ItemDecision::Local(MissReason::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_second_close_closes_nothing_twice() {
    let store = honest();
    let (env, worker) = producer(&store).await;
    let (_, scheduler) = consumer(&store).await;
    let deadline = from_now(&env, 100);
    let (first, second) = tokio::join!(biased; worker.close(deadline), worker.close(deadline));
    assert_eq!((first, first), (second, worker.close(from_now(&env, 100)).await));
    let first = scheduler.close(from_now(&env, 100)).await;
    assert_eq!(first, scheduler.close(from_now(&env, 100)).await);
    let calls = (counted(&store.calls.close), counted(&store.calls.unregister));
    assert_eq!(calls, (2, 2), "one by each side");
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_without_a_close_keeps_nothing_alive() {
    let store = Scripted { put: Arc::new(|_, items| held(items)), ..full() };
    let (env, worker) = producer(&store).await;
    let (_, scheduler) = consumer(&store).await;
    let regions =
        [worker.pool(), scheduler.pool()].map(|pool| Arc::downgrade(pool.unwrap().region()));
    worker.save("a", tensor(10), HostEvent::ready());
    decide(&env, &scheduler, "r", &[item("a", 10)]).await;
    assert!(scheduler.has_item("a"));
    scheduler.ensure_available("r2", &[item("b", 10)]);
    drop((worker, scheduler));
    pass(&env, 1000).await;
    assert!(regions.iter().all(|region| region.upgrade().is_none()));
}

// -- a store or a device that panics, lies or never answers --------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_lookup_or_a_get_costs_its_items_and_nothing_else() {
    let panics = |call: usize| assert!(call > 0, "the store panics");
    let honest = full();
    let (exists, get) = (honest.exists.clone(), honest.get.clone());
    for store in [
        Scripted {
            exists: Arc::new(move |call, keys| {
                panics(call);
                exists(call, keys)
            }),
            ..honest.clone()
        },
        Scripted {
            get: Arc::new(move |call, items| {
                let answer = get(call, items);
                Box::pin(async move {
                    panics(call);
                    answer.await
                })
            }),
            ..honest.clone()
        },
    ] {
        let store = Scripted { calls: Arc::default(), ..store };
        let (env, scheduler) = consumer(&store).await;
        decide(&env, &scheduler, "r1", &[item("a", 10)]).await;
        assert_eq!(scheduler.gauges().in_flight_bytes, 0);
        scheduler.request_finished("r1");
        pass(&env, 2000).await;
        decide(&env, &scheduler, "r2", &[item("a", 10)]).await;
        assert!(scheduler.has_item("a"), "{:?}", scheduler.decision("r2", "a"));
        let started = env.clock().now();
        assert_eq!(scheduler.close(from_now(&env, 1000)).await.abandoned, 0);
        assert_eq!(env.clock().now(), started);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_put_or_a_probe_ends_its_saves() {
    let panics = |call: usize| assert!(call > 0, "the store panics");
    let store = honest();
    let (exists, put) = (store.exists.clone(), store.put.clone());
    let store = Scripted {
        exists: Arc::new(move |call, keys| {
            panics(call);
            exists(call - 1, keys)
        }),
        put: Arc::new(move |call, items| {
            panics(call);
            put(call, items)
        }),
        ..store
    };
    let (env, worker) = producer(&store).await;
    worker.save("a", tensor(10), HostEvent::ready());
    assert_eq!(outcomes(&worker, from_now(&env, 1000)).await, ["timed out"]);
    assert_eq!((worker.in_flight_bytes(), worker.counters().lost), (0, 1));
    assert!(worker.pool().unwrap().usage().quarantined > 0, "nobody said that the put has ended");
    worker.save("b", tensor(10), HostEvent::ready());
    assert_eq!(outcomes(&worker, from_now(&env, 1000)).await, ["stored"]);
    assert_eq!(worker.close(from_now(&env, 1000)).await.abandoned, 0);
}

#[tokio::test(start_paused = true)]
async fn results_too_many_are_no_leak_and_exchanged_ones_no_delivery() {
    let store = Scripted {
        get: Arc::new(|_, items| {
            Box::pin(async move {
                let mut outcomes: Vec<_> =
                    items.into_iter().map(|item| delivers(10, item)).collect();
                outcomes.reverse();
                outcomes
            })
        }),
        exists: Arc::new(|_, keys| Box::pin(async move { vec![Ok(true); keys.len() + 3] })),
        ..honest()
    };
    let (env, scheduler) = consumer(&store).await;
    decide(&env, &scheduler, "r", &[item("a", 10), item("b", 10)]).await;
    assert!(!scheduler.has_item("a") && !scheduler.has_item("b"));
    assert_eq!(scheduler.counters().rejected.get("key"), Some(&2));
    let usage = scheduler.pool().unwrap().usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test(start_paused = true)]
async fn a_copy_to_the_device_that_never_ends_is_given_up() {
    let (env, scheduler) = consumer(&full()).await;
    let config = config(Role::Consumer);
    let worker = Worker::start(env.clone(), config.clone(), scheduler.mapper()).await.unwrap();
    decide(&env, &scheduler, "r", &[item("a", 10)]).await;
    let order = take(&scheduler, "r", "a").remove(0);
    let (free, _signal) = HostEvent::pending();
    let started = env.clock().now();
    let deliveries = worker.load(vec![target::<Runtime<Scripted>>(&order, free)]).await;
    assert_eq!(deliveries[0].result, Err(DeliverError::NoAnswer));
    assert_eq!(env.clock().now() - started, config.io_timeout);
}

/// A device that never knows whether its copies have ended.
#[derive(Clone)]
struct Unsure;

impl Device for Unsure {
    type Tensor = HostTensor;
    type Event = HostEvent;

    fn spec(&self, tensor: &HostTensor) -> TensorSpec {
        HostDevice.spec(tensor)
    }

    fn copy_out(
        &self,
        _: HostTensor,
        _: HostEvent,
        buffer: Transfer,
        _: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        let error = DeviceError::Device { code: 700, message: "lost".into() };
        ready(Outcome::Uncertain { buffer, error })
    }

    fn copy_in(
        &self,
        _: View,
        _: u64,
        _: HostTensor,
        _: HostEvent,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_stores_fence_says_nothing_of_a_device_that_may_still_write() {
    for close in [true, false] {
        let env = env_on(&honest(), Unsure);
        let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
        worker.save("a", tensor(10), HostEvent::ready());
        assert_eq!(outcomes(&worker, from_now(&env, 100)).await, ["failed(copy)"]);
        let region = Arc::downgrade(worker.pool().unwrap().region());
        if close {
            let report = worker.close(from_now(&env, 100)).await;
            assert_eq!((report.fence, report.released_bytes), (Fence::Fenced, 0));
            assert_eq!(report.leaked_bytes, 16 * 576);
            assert!(worker.pool().unwrap().usage().quarantined > 0);
        }
        drop(worker);
        pass(&env, 10).await;
        assert!(region.upgrade().is_some(), "closed first: {close}");
    }
}

/// A device whose copies panic when they are started.
#[derive(Clone)]
struct Panicking;

impl Device for Panicking {
    type Tensor = HostTensor;
    type Event = HostEvent;

    fn spec(&self, tensor: &HostTensor) -> TensorSpec {
        HostDevice.spec(tensor)
    }

    fn copy_out(
        &self,
        _: HostTensor,
        _: HostEvent,
        _: Transfer,
        _: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        assert_eq!(WIDTH, 0, "the device panics");
        pending()
    }

    fn copy_in(
        &self,
        _: View,
        _: u64,
        _: HostTensor,
        _: HostEvent,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        assert_eq!(WIDTH, 0, "the device panics");
        pending()
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_panics_is_a_failed_copy_and_no_panic_of_the_engine() {
    let env = env_on(&full(), Panicking);
    let worker = Worker::start(env.clone(), config(Role::Producer), None).await.unwrap();
    worker.save("a", tensor(10), HostEvent::ready());
    assert!(matches!(
        outcomes(&worker, from_now(&env, 100)).await[0].as_str(),
        "failed(copy)" | "already there"
    ));
    assert_eq!(worker.close(from_now(&env, 100)).await.abandoned, 0);
    let scheduler = Scheduler::start(env.clone(), config(Role::Consumer)).await.unwrap();
    let worker = Worker::start(env.clone(), config(Role::Consumer), scheduler.mapper());
    let worker = worker.await.unwrap();
    decide(&env, &scheduler, "r", &[item("a", 10)]).await;
    let order = take(&scheduler, "r", "a").remove(0);
    let tensor = HostTensor::zeros(order.spec);
    let targets = vec![LoadTarget { order, tensor, free: HostEvent::ready() }];
    assert!(worker.load(targets).await[0].result.is_err());
}

// -- promises -------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn one_identifier_with_two_lengths_is_promised_to_nobody() {
    for rows in [[10, 20], [20, 10]] {
        let (env, scheduler) = consumer(&full()).await;
        let items = rows.map(|rows| item("a", rows));
        decide(&env, &scheduler, "r", &items).await;
        assert!(!scheduler.has_item("a"), "a tensor of one length would serve both");
        decide(&env, &scheduler, "r", &items).await;
        assert!(!scheduler.has_item("a"));
        scheduler.request_finished("r");
        assert_eq!(scheduler.counters().check(), Ok(()));
        assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_sent_again_after_its_copy_is_not_copied_again() {
    let (env, scheduler) = consumer(&full()).await;
    let mapper = scheduler.mapper();
    let worker = Worker::start(env.clone(), config(Role::Consumer), mapper).await.unwrap();
    decide(&env, &scheduler, "r", &[item("a", 10)]).await;
    let first = take(&scheduler, "r", "a");
    // An engine that schedules ahead builds the next step before this one is acknowledged.
    let ahead = scheduler.build_step(&[]);
    assert_eq!(ahead.orders, first);
    let due = worker.due(&ahead);
    assert_eq!((due.load, due.done), (first.clone(), vec![]));
    let deliveries =
        worker.load(vec![target::<Runtime<Scripted>>(&first[0], HostEvent::ready())]).await;
    assert_eq!(deliveries[0].result, Ok(()));
    scheduler.acknowledge(0, &[deliveries[0].order]);
    scheduler.request_finished("r");
    // Its memory may be another item's by now.
    assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
    let due = worker.due(&ahead);
    assert_eq!((due.load, due.done), (vec![], vec![first[0].id]));
    let due = worker.due(&scheduler.build_step(&[]));
    assert_eq!((due.load, due.done), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_item_freed_and_taken_again_in_one_pass_is_held() {
    let (env, scheduler) = consumer(&full()).await;
    decide(&env, &scheduler, "r1", &[item("a", 10)]).await;
    take(&scheduler, "r1", "a");
    scheduler.request_finished("r1");
    // The engine evicts "a" for another item, then needs it for a further request and encodes it.
    scheduler.allocated("r2", "a");
    scheduler.build_step(&["a".to_owned()]);
    let before = scheduler.counters().lookups;
    assert_eq!(scheduler.ensure_available("r3", &[item("a", 10)]), Availability::Ready);
    assert_eq!(scheduler.counters().lookups, before);
}

#[tokio::test(start_paused = true)]
async fn a_pin_survives_abort_reuse_of_the_request_and_strange_acknowledgements() {
    let (env, scheduler) = consumer(&full()).await;
    decide(&env, &scheduler, "r", &[item("a", 10)]).await;
    let orders = take(&scheduler, "r", "a");
    scheduler.request_finished("r");
    scheduler.acknowledge(1, &[orders[0].id]);
    scheduler.acknowledge(u32::MAX, &[orders[0].id, orders[0].id]);
    assert_eq!(scheduler.build_step(&["a".to_owned()]).orders, orders);
    decide(&env, &scheduler, "r", &[item("a", 10)]).await;
    assert_eq!(take(&scheduler, "r", "a").len(), 2);
    scheduler.acknowledge(0, &[orders[0].id, orders[0].id]);
    let left = scheduler.build_step(&[]).orders;
    assert_eq!(left.len(), 1);
    assert!(scheduler.pool().unwrap().usage().pinned > 0);
    scheduler.acknowledge(0, &[left[0].id]);
    scheduler.request_finished("r");
    assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
    assert_eq!((scheduler.counters().orders, scheduler.counters().acknowledged), (2, 2));
    // Aborted between the promise and the allocation, and allocated without a promise.
    scheduler.build_step(&["a".to_owned()]);
    decide(&env, &scheduler, "r", &[item("a", 10)]).await;
    assert!(scheduler.has_item("a"));
    scheduler.request_finished("r");
    scheduler.allocated("r", "a");
    assert_eq!(scheduler.build_step(&[]).orders, []);
    assert_eq!(scheduler.pool().unwrap().usage().pinned, 0);
    assert!(!scheduler.has_item("a"));
}

// -- hostile sizes, objects and limits -------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn lengths_near_the_end_of_the_number_line_are_too_large() {
    let store = full();
    let env = env(&store);
    let namespace = NamespaceParts { dtype: DType::U8, width: u32::MAX.into(), ..parts() };
    let config = Config { namespace, ..config(Role::Consumer) };
    let scheduler = Scheduler::start(env.clone(), config).await.unwrap();
    let items = ["a", "b", "c"].map(|name| item(name, u32::MAX.into()));
    let took = decide(&env, &scheduler, "r", &items).await;
    assert_eq!(
        scheduler.counters().misses.into_iter().collect::<Vec<_>>(),
        [("too large".into(), 3)]
    );
    assert_eq!(
        (took, counted(&store.calls.exists)),
        (Duration::ZERO, 0),
        "the store need not be asked"
    );
}

#[tokio::test(start_paused = true)]
async fn other_descriptions_of_the_same_bytes_are_refused() {
    let shapes: [&[u64]; 5] = [&[320], &[32, 10], &[1, 10, 32], &[10, 1, 1, 32], &[20, 16]];
    let mut specs: Vec<_> =
        shapes.map(|dims| TensorSpec::new(DType::Bf16, Shape::new(dims).unwrap()).unwrap()).into();
    specs.push(TensorSpec { dtype: DType::F16, ..spec(10) });
    specs.push(TensorSpec::new(DType::F32, Shape::new(&[10, 16]).unwrap()).unwrap());
    for spec in specs {
        let store = Scripted {
            get: Arc::new(move |_, items| {
                Box::pin(async move {
                    let deliver = |mut item: GetItem| {
                        item.dest.write_at(0, &object(&item.key, spec, 7));
                        let len = item.dest.len();
                        Outcome::Ended { buffer: item.dest.finish(), result: Ok(len) }
                    };
                    items.into_iter().map(deliver).collect()
                })
            }),
            ..full()
        };
        let (env, scheduler) = consumer(&store).await;
        decide(&env, &scheduler, "r", &[item("a", 10)]).await;
        assert!(!scheduler.has_item("a"), "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_limit_at_one_still_saves_and_loads() {
    let mut config = config(Role::Producer);
    let (saves, loads) = (&mut config.saves, &mut config.loads);
    (saves.batch_bytes_max, saves.batch_items_max, saves.in_flight_bytes_max) = (1, 1, 1);
    (saves.queue_items_max, saves.attempts_max) = (1, 1);
    (loads.batch_bytes_max, loads.batch_items_max, loads.in_flight_bytes_max) = (1, 1, 1);
    (loads.keys_max, loads.attempts_max) = (1, 1);
    config.pool.max_extents = 1;
    config.pool.quarantine_max = 0;
    config.validate().unwrap();
    let env = env(&honest());
    let worker = Worker::start(env.clone(), config.clone(), None).await.unwrap();
    worker.save("a", tensor(10), HostEvent::ready());
    worker.save("b", tensor(10), HostEvent::ready());
    let saved = outcomes(&worker, from_now(&env, 1000)).await;
    assert_eq!(saved, ["stored", "dropped(queue_full)"]);
    config.role = Role::Consumer;
    let scheduler = Scheduler::start(env.clone(), config).await.unwrap();
    decide(&env, &scheduler, "r", &[item("a", 10), item("b", 10)]).await;
    assert!(scheduler.has_item("a") && !scheduler.has_item("b"));
    assert_eq!(
        scheduler.counters().misses.into_iter().collect::<Vec<_>>(),
        [("overload".into(), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_of_another_length_does_not_join_a_save() {
    let store = Scripted { put: Arc::new(|_, items| held(items)), ..honest() };
    let (env, worker) = producer(&store).await;
    worker.save("a", tensor(10), HostEvent::ready());
    worker.save("a", tensor(10), HostEvent::ready());
    worker.save("a", tensor(0), HostEvent::ready());
    worker.save("a", tensor(11), HostEvent::ready());
    let expected = ["timed out", "timed out", "dropped(empty)", "dropped(wrong_spec)"];
    assert_eq!(outcomes(&worker, from_now(&env, 100)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_save_that_joins_late_gets_its_own_time() {
    let store = Scripted {
        exists: Arc::new(|_, keys| Box::pin(async move { vec![Ok(false); keys.len()] })),
        ..honest()
    };
    let (env, worker) = producer(&store).await;
    let deadline = config(Role::Producer).saves.deadline;
    worker.save("a", tensor(10), HostEvent::ready());
    pass(&env, deadline.as_millis() as u64 - 10).await;
    worker.save("a", tensor(10), HostEvent::ready());
    pass(&env, 20).await;
    let counters = worker.counters();
    assert_eq!((counters.joined, counters.open), (1, 1), "{counters:?}");
    pass(&env, deadline.as_millis() as u64).await;
    assert_eq!(worker.counters().open, 0);
}

/// A put whose end never comes; the store keeps the memory.
fn held(items: Vec<PutItem>) -> Answer<Vec<Outcome<()>>> {
    Box::pin(async move {
        let _held = items;
        pending().await
    })
}
