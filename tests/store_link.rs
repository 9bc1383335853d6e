//! A store behind a link: absent at the start, down in between, closed at any point.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use springtide::{
    backend::{Link, LinkConfig, LinkState},
    env::{
        Clock, ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits,
    },
    pool::{Contiguity, Pool, PoolConfig, Region, Transfer},
    runtime::TokioClock,
};

const LIMITS: StoreLimits =
    StoreLimits { buffers_per_object: 4, fragments_per_batch: 8, object_bytes_max: None };
const DOWN: ErrorCode = ErrorCode::UnavailableInCurrentMode;

/// What a store does next, and what was done with it.
#[derive(Default)]
struct Script {
    /// Answers to lookups; `None`: no answer. Without one it says "no".
    lookups: VecDeque<Option<Result<bool, ErrorCode>>>,
    /// What transfers fail with.
    transfer: Option<ErrorCode>,
    /// What a registration fails with.
    register: Option<ErrorCode>,
    registered: Vec<u64>,
    asked: usize,
    closed: usize,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn with<R>(&self, call: impl FnOnce(&mut Script) -> R) -> R {
        call(&mut self.0.lock().unwrap())
    }

    fn transfer<T: Default>(&self, buffers: Vec<Transfer>) -> Vec<Outcome<T>> {
        let result = || match self.with(|script| script.transfer) {
            Some(code) => Err(StoreError::new(code, Duration::ZERO)),
            None => Ok(T::default()),
        };
        let end = |buffer: Transfer| Outcome::Ended { buffer: buffer.finish(), result: result() };
        buffers.into_iter().map(end).collect()
    }
}

impl Store for Scripted {
    fn limits(&self) -> StoreLimits {
        LIMITS
    }

    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        self.with(|script| match script.register.take() {
            Some(code) => Err(StoreError::new(code, Duration::ZERO)),
            None => {
                script.registered.push(region.len());
                Ok(())
            }
        })
    }

    async fn unregister(&self, _region: Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        let this = self.clone();
        async move { this.transfer(items.into_iter().map(|item| item.source).collect()) }
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        let this = self.clone();
        async move { this.transfer(items.into_iter().map(|item| item.dest).collect()) }
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let answer = self.with(|script| {
            script.asked += 1;
            script.lookups.pop_front().unwrap_or(Some(Ok(false)))
        });
        let Some(answer) = answer else { return std::future::pending().await };
        let answer = answer.map_err(|code| StoreError::new(code, Duration::ZERO));
        vec![answer; keys.len()]
    }

    async fn size(&self, _key: Key) -> Result<u64, StoreError> {
        Err(StoreError::new(ErrorCode::ObjectNotFound, Duration::ZERO))
    }

    async fn remove(&self, _key: Key, _force: bool) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) -> Fence {
        self.with(|script| script.closed += 1);
        Fence::Fenced
    }
}

/// A link whose attempts to connect fail until `refusals` are used up.
fn link(store: &Scripted, refusals: usize) -> (Link<Scripted>, Arc<Mutex<usize>>) {
    let attempts = Arc::new(Mutex::new(0));
    let (store, counted) = (store.clone(), attempts.clone());
    let connect = move || {
        let (store, attempt) = (store.clone(), {
            let mut attempts = counted.lock().unwrap();
            *attempts += 1;
            *attempts
        });
        async move { if attempt > refusals { Ok(store) } else { Err(format!("attempt {attempt}")) } }
    };
    let spawn = |task| drop(tokio::runtime::Handle::current().spawn(task));
    (Link::start(LinkConfig::new(LIMITS), TokioClock::new(), spawn, connect), attempts)
}

async fn sleep(duration: Duration) {
    TokioClock::new().sleep(duration).await;
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) }).unwrap()
}

fn put(pool: &Pool) -> Vec<PutItem> {
    let lease = pool.allocate(700, Contiguity::Extents).unwrap();
    vec![PutItem { key: Key::new("k"), source: lease.into_transfer() }]
}

/// The code that one item ended with; its buffer is back in the pool.
async fn put_code(link: &Link<Scripted>, pool: &Pool) -> Result<(), ErrorCode> {
    match link.put(put(pool)).await.pop().expect("one item, one outcome") {
        Outcome::Ended { result, .. } => result.map_err(|error| error.code),
        Outcome::Uncertain { error, .. } => panic!("the buffer is not given back: {error}"),
    }
}

async fn exists_code(link: &Link<Scripted>) -> Result<bool, ErrorCode> {
    let answers = link.exists(vec![Key::new("k"), Key::new("l")]).await;
    assert_eq!(answers.len(), 2);
    answers[0].map_err(|error| error.code)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_later_gets_the_region_before_any_call() {
    let (store, pool) = (Scripted::default(), pool());
    let (link, attempts) = link(&store, 3);
    // The instance starts all the same.
    link.register(pool.region().clone()).await.unwrap();
    assert_eq!(link.state(), LinkState::Absent);
    assert_eq!(exists_code(&link).await, Err(DOWN));
    assert_eq!(put_code(&link, &pool).await, Err(DOWN));
    assert_eq!(pool.usage().quarantined, 0);
    link.ready().await;
    assert_eq!(link.state(), LinkState::Up);
    assert_eq!(*attempts.lock().unwrap(), 4);
    assert_eq!(store.with(|script| script.registered.clone()), [pool.region().len()]);
    assert_eq!(store.with(|script| script.asked), 0, "nothing reached it before");
    assert_eq!(put_code(&link, &pool).await, Ok(()));
    assert_eq!(exists_code(&link).await, Ok(false));
    let counters = link.counters();
    assert_eq!((counters.came_up, counters.went_down, counters.attempts_failed), (1, 0, 3));
    assert_eq!(counters.refused, BTreeMap::from([("exists".into(), 2), ("put".into(), 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_reached_is_not_asked_until_it_answers() {
    let store = Scripted::default();
    let (link, _) = link(&store, 0);
    link.ready().await;
    // A call fails; then two probes fail, and the third is answered.
    let refused = || Some(Err(ErrorCode::RpcFail));
    store.with(|script| script.lookups.extend([refused(), refused(), refused()]));
    assert_eq!(exists_code(&link).await, Err(ErrorCode::RpcFail));
    assert_eq!(link.state(), LinkState::Down);
    assert_eq!(exists_code(&link).await, Err(DOWN), "at once");
    link.ready().await;
    assert_eq!(store.with(|script| script.asked), 4);
    assert_eq!(exists_code(&link).await, Ok(false));
    let counters = link.counters();
    assert_eq!((counters.came_up, counters.went_down, counters.attempts_failed), (2, 1, 2));
    assert_eq!(counters.refused, BTreeMap::from([("exists".into(), 2)]));
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_cannot_reach_the_master_takes_the_store_down() {
    let (store, pool) = (Scripted::default(), pool());
    let (link, _) = link(&store, 0);
    link.ready().await;
    for (code, state) in [
        // These say something about an item, not about the store.
        (ErrorCode::TransferFail, LinkState::Up),
        (ErrorCode::NoAvailableHandle, LinkState::Up),
        (ErrorCode::RpcTimeout, LinkState::Down),
    ] {
        store.with(|script| script.transfer = Some(code));
        assert_eq!(put_code(&link, &pool).await, Err(code));
        assert_eq!(link.state(), state, "after {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_without_an_answer_takes_the_store_down() {
    let store = Scripted::default();
    let (link, _) = link(&store, 0);
    link.ready().await;
    store.with(|script| script.lookups.extend([None, None]));
    let asking = tokio::runtime::Handle::current().spawn({
        let link = link.clone();
        async move { exists_code(&link).await }
    });
    sleep(LinkConfig::new(LIMITS).patience / 2).await;
    assert_eq!(link.state(), LinkState::Up, "it may still answer");
    sleep(LinkConfig::new(LIMITS).patience).await;
    assert_eq!(link.state(), LinkState::Down);
    assert!(!asking.is_finished(), "it is awaited, but nobody else waits");
    assert_eq!(exists_code(&link).await, Err(DOWN));
    asking.abort();
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_fails_is_tried_again_with_a_new_client() {
    let (store, pool) = (Scripted::default(), pool());
    store.with(|script| script.register = Some(ErrorCode::InvalidParams));
    let (link, attempts) = link(&store, 1);
    link.register(pool.region().clone()).await.unwrap();
    link.ready().await;
    assert_eq!(*attempts.lock().unwrap(), 3);
    assert_eq!(store.with(|script| script.closed), 1, "the client that refused");
    assert_eq!(store.with(|script| script.registered.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_closed_link_stays_closed() {
    let store = Scripted::default();
    let (never, attempts) = link(&store, usize::MAX);
    assert_eq!(never.close().await, Fence::Fenced, "nothing was ever there to touch memory");
    never.ready().await;
    assert_eq!(never.state(), LinkState::Closed);
    sleep(Duration::from_secs(60)).await;
    assert!(*attempts.lock().unwrap() <= 1, "nobody tries any more");

    let (link, _) = link(&store, 0);
    link.ready().await;
    assert_eq!(link.close().await, Fence::Fenced);
    assert_eq!(store.with(|script| script.closed), 1);
    assert_eq!(exists_code(&link).await, Err(DOWN));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(link.state(), LinkState::Closed);
}
