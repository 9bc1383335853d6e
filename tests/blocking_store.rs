//! The shell over blocking stores: who owns a buffer, what a code says of it, how a close goes.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use springtide::{
    backend::{Blocking, BlockingConfig, BlockingStore},
    env::{
        Clock, ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits,
        Time,
    },
    pool::{Contiguity, Pool, PoolConfig, Region},
};

const LEN: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(60);

/// A clock that only the store's calls move.
#[derive(Clone, Default)]
struct HandClock(Arc<AtomicU64>);

impl Clock for HandClock {
    fn now(&self) -> Time {
        Time::from_origin(Duration::from_millis(self.0.load(Ordering::SeqCst)))
    }

    async fn sleep_until(&self, _deadline: Time) {
        std::future::pending().await
    }
}

/// A blocking store that does what a key says: `hold…` waits for [`World::release`], `fail…` is -800,
/// `slow…` is -800 after the limit, `panic…` panics, `short…` answers nothing; the rest is there.
#[derive(Clone, Default)]
struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    clock: HandClock,
    state: Mutex<State>,
    changed: Condvar,
    calls: Mutex<Vec<Vec<String>>>,
    registrations: AtomicUsize,
}

#[derive(Default)]
struct State {
    inside: usize,
    released: bool,
    closed: usize,
    unfenced: bool,
}

impl World {
    fn store(&self) -> BlockingStore<Self> {
        let config = BlockingConfig {
            name: "test",
            data_threads: 2,
            lookup_threads: 1,
            transfer_limit: LIMIT,
        };
        BlockingStore::new(self.clone(), config, self.0.clock.clone()).unwrap()
    }

    fn release(&self) {
        self.0.state.lock().unwrap().released = true;
        self.0.changed.notify_all();
    }

    /// Blocks until this many calls hold.
    fn until_held(&self, count: usize) {
        let state = self.0.state.lock().unwrap();
        drop(self.0.changed.wait_while(state, |state| state.inside < count).unwrap());
    }

    fn call<T: Clone>(&self, keys: Vec<&Key>, good: T) -> Vec<Result<T, ErrorCode>> {
        let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
        self.0.calls.lock().unwrap().push(names.clone());
        let has = |word: &str| names.iter().any(|name| name.starts_with(word));
        if has("hold") {
            let mut state = self.0.state.lock().unwrap();
            state.inside += 1;
            self.0.changed.notify_all();
            state = self.0.changed.wait_while(state, |state| !state.released).unwrap();
            state.inside -= 1;
        }
        assert!(!has("panic"), "on purpose");
        if has("slow") {
            self.0.clock.0.fetch_add(60_000, Ordering::SeqCst);
        }
        let answers = names.iter().map(|name| match name.as_str() {
            name if name.starts_with("fail") || name.starts_with("slow") => {
                Err(ErrorCode::TransferFail)
            }
            _ => Ok(good.clone()),
        });
        if has("short") { Vec::new() } else { answers.collect() }
    }
}

impl Blocking for World {
    fn limits(&self) -> StoreLimits {
        StoreLimits { buffers_per_object: 8, fragments_per_batch: 4, object_bytes_max: None }
    }

    fn register(&self, _region: &Region) -> Result<(), ErrorCode> {
        self.0.registrations.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn unregister(&self, _region: &Region) -> Result<(), ErrorCode> {
        self.0.registrations.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn put(&self, items: &[PutItem]) -> Vec<Result<(), ErrorCode>> {
        self.call(items.iter().map(|item| &item.key).collect(), ())
    }

    fn get(&self, items: &[GetItem]) -> Vec<Result<u64, ErrorCode>> {
        self.call(items.iter().map(|item| &item.key).collect(), LEN)
    }

    fn exists(&self, keys: &[Key]) -> Vec<Result<bool, ErrorCode>> {
        self.call(keys.iter().collect(), true)
    }

    fn size(&self, key: &Key) -> Result<u64, ErrorCode> {
        self.call(vec![key], LEN).remove(0)
    }

    fn remove(&self, key: &Key, _force: bool) -> Result<(), ErrorCode> {
        self.call(vec![key], ()).remove(0)
    }

    fn close(&self) -> Fence {
        let mut state = self.0.state.lock().unwrap();
        assert_eq!(state.inside, 0, "closed under a running call");
        state.closed += 1;
        if state.unfenced { Fence::Unknown } else { Fence::Fenced }
    }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) }).unwrap()
}

fn puts(pool: &Pool, keys: &[&str]) -> Vec<PutItem> {
    let source = || pool.allocate(LEN, Contiguity::Required).unwrap().into_transfer();
    keys.iter().map(|key| PutItem { key: Key::new(*key), source: source() }).collect()
}

fn gets(pool: &Pool, keys: &[&str]) -> Vec<GetItem> {
    let items = puts(pool, keys).into_iter();
    items.map(|PutItem { key, source }| GetItem { key, dest: source }).collect()
}

/// Ended or uncertain, with the result; the buffers go.
fn ends<T: std::fmt::Debug>(
    outcomes: Vec<Outcome<T>>,
) -> Vec<(&'static str, Result<T, ErrorCode>)> {
    let code = |error: StoreError| error.code;
    let end = |outcome| match outcome {
        Outcome::Ended { result, .. } => ("ended", result.map_err(code)),
        Outcome::Uncertain { error, .. } => ("uncertain", Err(code(error))),
    };
    outcomes.into_iter().map(end).collect()
}

/// Waits, without time, until the pool looks like this.
async fn until(pool: &Pool, is_so: impl Fn(&springtide::pool::Usage) -> bool) {
    while !is_so(&pool.usage()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_item_has_its_result_and_its_buffer_back() {
    let (world, pool) = (World::default(), pool());
    let store = world.store();
    let outcomes = store.put(puts(&pool, &["a", "fail", "b"])).await;
    let failed = ("ended", Err(ErrorCode::TransferFail));
    assert_eq!(ends(outcomes), [("ended", Ok(())), failed, ("ended", Ok(()))]);
    assert_eq!(ends(store.get(gets(&pool, &["a"])).await), [("ended", Ok(LEN))]);
    assert_eq!(store.exists(vec![Key::new("a")]).await, [Ok(true)]);
    assert_eq!(store.size(Key::new("a")).await, Ok(LEN));
    assert_eq!(store.remove(Key::new("a"), false).await, Ok(()));
    let error = store.size(Key::new("fail")).await.unwrap_err();
    assert_eq!((error.code, error.transfer_limit), (ErrorCode::TransferFail, LIMIT));
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test]
async fn a_transfer_that_failed_at_its_limit_is_uncertain() {
    let (world, pool) = (World::default(), pool());
    let outcomes = world.store().get(gets(&pool, &["a", "slow"])).await;
    let uncertain = ("uncertain", Err(ErrorCode::TransferFail));
    assert_eq!(ends(outcomes), [("ended", Ok(LEN)), uncertain]);
    // The test dropped it.
    assert_eq!(pool.usage().counters.quarantined_abandoned, 1);
    assert!(pool.usage().quarantined > 0);
}

#[tokio::test]
async fn a_call_that_panics_or_answers_too_little_leaves_every_end_unknown() {
    let (world, pool) = (World::default(), pool());
    let store = world.store();
    for key in ["panic", "short"] {
        let unknown = ("uncertain", Err(ErrorCode::Internal));
        assert_eq!(ends(store.put(puts(&pool, &["a", key])).await), [unknown; 2], "{key}");
    }
    let error = store.size(Key::new("panic")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal);
    let answers = store.exists(vec![Key::new("short"), Key::new("a")]).await;
    assert!(answers.iter().all(|answer| answer.unwrap_err().code == ErrorCode::Internal));
    assert_eq!(ends(store.put(puts(&pool, &["a"])).await), [("ended", Ok(()))], "threads live on");
}

#[tokio::test]
async fn whoever_stops_waiting_changes_nothing() {
    let (world, pool) = (World::default(), pool());
    let store = world.store();
    drop(store.put(puts(&pool, &["hold"])));
    world.until_held(1);
    assert!(pool.usage().in_flight > 0, "the call keeps its buffer");
    world.release();
    until(&pool, |usage| usage.free == usage.total).await;

    drop(store.put(puts(&pool, &["slow"])));
    until(&pool, |usage| usage.quarantined > 0).await;
    assert_eq!(pool.usage().in_flight, 0);
}

#[tokio::test]
async fn lookups_do_not_stand_behind_transfers() {
    let (world, pool) = (World::default(), pool());
    let store = world.store();
    let held = store.get(gets(&pool, &["hold-1", "hold-1", "hold-1"]));
    world.until_held(2);
    assert_eq!(store.exists(vec![Key::new("a")]).await, [Ok(true)]);
    world.release();
    assert_eq!(held.await.len(), 3);
}

#[tokio::test]
async fn batches_have_a_limit_and_no_equal_keys() {
    let (world, pool) = (World::default(), pool());
    let store = world.store();
    let keys = ["a", "b", "a", "c", "d", "e", "f"];
    let outcomes = store.put(puts(&pool, &keys)).await;
    assert_eq!(outcomes.len(), keys.len());
    let mut calls = world.0.calls.lock().unwrap().clone();
    calls.sort();
    let expected: [&[&str]; 3] = [&["a", "b"], &["a", "c", "d", "e"], &["f"]];
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn a_region_is_registered_once_and_kept_until_it_is_unregistered() {
    let (world, mine, other) = (World::default(), pool(), pool());
    let store = world.store();
    let region = || Arc::clone(mine.region());
    let refused = |result: Result<(), StoreError>| result.unwrap_err().code;
    assert_eq!(refused(store.unregister(region()).await), ErrorCode::InvalidParams);
    assert_eq!(store.register(region()).await, Ok(()));
    let held = Arc::strong_count(mine.region());
    assert_eq!(refused(store.register(region()).await), ErrorCode::InvalidParams);
    let another = store.unregister(Arc::clone(other.region())).await;
    assert_eq!(refused(another), ErrorCode::InvalidParams);
    assert_eq!(world.0.registrations.load(Ordering::SeqCst), 1);
    assert_eq!(store.unregister(region()).await, Ok(()));
    assert_eq!(Arc::strong_count(mine.region()), held - 1);
}

#[tokio::test]
async fn a_close_waits_for_what_runs_and_refuses_the_rest() {
    let (world, pool) = (World::default(), pool());
    let store = world.store();
    assert_eq!(store.register(Arc::clone(pool.region())).await, Ok(()));
    let held = store.put(puts(&pool, &["hold"]));
    world.until_held(1);
    let (one, two) = (store.clone(), store.clone());
    let closing = async { tokio::join!(one.close(), two.close()) };
    let after = async {
        tokio::task::yield_now().await;
        let refused = ("ended", Err(ErrorCode::UnavailableInCurrentStatus));
        assert_eq!(ends(store.put(puts(&pool, &["late"])).await), [refused]);
        let answers = store.exists(vec![Key::new("late")]).await;
        assert_eq!(answers[0].unwrap_err().code, ErrorCode::UnavailableInCurrentStatus);
        assert_eq!(world.0.state.lock().unwrap().closed, 0, "a call is inside");
        world.release();
        assert_eq!(ends(held.await), [("ended", Ok(()))]);
    };
    let (fences, ()) = tokio::join!(closing, after);
    assert_eq!(fences, (Fence::Fenced, Fence::Fenced));
    assert_eq!(world.0.state.lock().unwrap().closed, 1);
    assert_eq!(store.unregister(Arc::clone(pool.region())).await, Ok(()), "nothing to undo");
    assert_eq!(store.close().await, Fence::Fenced);
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test]
async fn without_a_fence_the_region_stays_mapped() {
    let (world, mapped) = (World::default(), pool());
    world.0.state.lock().unwrap().unfenced = true;
    let store = world.store();
    assert_eq!(store.register(Arc::clone(mapped.region())).await, Ok(()));
    let held = Arc::strong_count(mapped.region());
    assert_eq!(store.close().await, Fence::Unknown);
    let refused = store.unregister(Arc::clone(mapped.region())).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::UnavailableInCurrentStatus);
    drop(store);
    assert_eq!(Arc::strong_count(mapped.region()), held);

    // Nor is a store that is dropped without a close known to have ended.
    let dropped = pool();
    let store = World::default().store();
    assert_eq!(store.register(Arc::clone(dropped.region())).await, Ok(()));
    let held = Arc::strong_count(dropped.region());
    drop(store);
    assert_eq!(Arc::strong_count(dropped.region()), held);
}
