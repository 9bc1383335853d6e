//! A store that may be down: at the start, in between, for good.
//!
//! The connector opens and registers its pool when an instance starts; a store that is down then must not
//! keep the instance from starting, and one that goes down later must not make every request wait for its
//! timeouts. A [`Link`] stands between: it connects in the background and again, keeps the region until it
//! can be registered, answers at once with `UNAVAILABLE_IN_CURRENT_MODE` while the store is down, and believes
//! that it is up again only after a round trip.
//!
//! ```text
//!            connected, registered              RPC_FAIL, RPC_TIMEOUT, a lookup without an answer
//!   absent ─────────────────────────▶ up ─────────────────────────▶ down
//!     ▲ a pause, then again            ▲                              │ a pause, then a lookup that
//!     └──                              └──────────────────────────────┘ must be answered
//! ```
//!
//! Transfers that run when the store goes down are awaited to their end: only the store knows when their
//! buffers are free.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::link_state::{LinkCounters, LinkState};
use crate::{
    env::{
        Clock, ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits,
        Task,
    },
    pool::{Region, Transfer},
};

/// What a store that is down answers. The same call fails again: nobody should wait for it.
const DOWN: ErrorCode = ErrorCode::UnavailableInCurrentMode;

/// Asked for to see whether the store answers. Never written.
const PROBE: &str = "st1/probe";

/// How a [`Link`] treats its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The store's limits, which must be known before it is there.
    pub limits: StoreLimits,
    /// A lookup that takes longer takes the store down.
    pub patience: Duration,
    /// First pause between two attempts; doubles up to the next field.
    pub pause: Duration,
    /// Longest pause between two attempts.
    pub pause_max: Duration,
}

impl LinkConfig {
    /// The defaults for a store with these limits.
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            patience: Duration::from_secs(2),
            pause: Duration::from_millis(250),
            pause_max: Duration::from_secs(2),
        }
    }
}

/// A [`Store`] over one that may be down. Clones share it.
pub struct Link<S: Store>(Arc<Shared<S>>);

impl<S: Store> Clone for Link<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<S> {
    config: LinkConfig,
    sleep: Box<dyn Fn(Duration) -> Task + Send + Sync>,
    state: Mutex<State<S>>,
    changed: Notify,
}

struct State<S> {
    link: LinkState,
    store: Option<S>,
    /// What is to be registered with the store once it is there.
    region: Option<Arc<Region>>,
    /// Why it is not up, reported once.
    reported: Option<String>,
    counters: LinkCounters,
}

impl<S: Store> Link<S> {
    /// A link whose driver runs on `spawn`. `connect` makes one attempt and says in words why it failed; it
    /// is called again after a pause.
    pub fn start<C, F>(
        config: LinkConfig,
        clock: impl Clock,
        spawn: impl FnOnce(Task),
        connect: C,
    ) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<S, String>> + Send + 'static,
    {
        let sleep = move |duration| {
            let clock = clock.clone();
            Box::pin(async move { clock.sleep(duration).await }) as Task
        };
        let state = State {
            link: LinkState::Absent,
            store: None,
            region: None,
            reported: None,
            counters: LinkCounters::default(),
        };
        let shared = Arc::new(Shared {
            config,
            sleep: Box::new(sleep),
            state: Mutex::new(state),
            changed: Notify::new(),
        });
        spawn(Box::pin(Arc::clone(&shared).drive(connect)));
        Self(shared)
    }

    /// Whether calls reach the store now.
    pub fn state(&self) -> LinkState {
        self.0.lock().link
    }

    /// What has happened to the store so far.
    pub fn counters(&self) -> LinkCounters {
        self.0.lock().counters.clone()
    }

    /// Waits until the store is up, or closed.
    pub async fn ready(&self) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if matches!(self.state(), LinkState::Up | LinkState::Closed) {
                return;
            }
            changed.await;
        }
    }

    /// The store, while it is up; otherwise the call is refused for so many items.
    fn up(&self, call: &str, items: usize) -> Option<S> {
        let mut state = self.0.lock();
        let store = state.store.clone().filter(|_| state.link == LinkState::Up);
        if store.is_none() {
            state.counters.refuse(call, items);
        }
        store
    }

    /// A lookup: one that is not answered in time takes the store down, and is awaited all the same.
    async fn look_up<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut answer = pin!(answer);
        let result = tokio::select! {
            biased;
            result = &mut answer => result,
            () = (self.0.sleep)(self.0.config.patience) => {
                self.0.fail(&format!("no answer within {:?}", self.0.config.patience));
                answer.await
            }
        };
        self.0.watch(result.as_ref().err().copied());
        result
    }
}

impl<S: Store> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the store down for an error that says that it cannot be reached.
    fn watch(&self, error: Option<StoreError>) {
        if let Some(error) = error
            && matches!(error.code, ErrorCode::RpcFail | ErrorCode::RpcTimeout)
        {
            self.fail(&error.to_string());
        }
    }

    fn fail(&self, why: &str) {
        let mut state = self.lock();
        if state.link == LinkState::Up {
            state.link = LinkState::Down;
            state.counters.went_down += 1;
            state.reported = Some(why.to_owned());
            tracing::warn!(why, "the store is down: items are encoded locally and not saved");
            drop(state);
            self.changed.notify_waiters();
        }
    }

    fn is_closed(&self) -> bool {
        self.lock().link == LinkState::Closed
    }

    async fn drive<C, F>(self: Arc<Self>, connect: C)
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<S, String>> + Send + 'static,
    {
        let mut pause = self.config.pause;
        while !self.is_closed() {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let (link, store) = {
                let state = self.lock();
                (state.link, state.store.clone())
            };
            let result = match (link, store) {
                (LinkState::Up | LinkState::Closed, _) => {
                    changed.await;
                    pause = self.config.pause;
                    continue;
                }
                (LinkState::Down, Some(store)) => self.probe(&store).await,
                (LinkState::Absent | LinkState::Down, _) => match connect().await {
                    Ok(store) => self.adopt(store).await,
                    Err(why) => Err(why),
                },
            };
            if let Err(why) = result {
                self.lock().counters.attempts_failed += 1;
                self.report(why);
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = (self.sleep)(pause) => {}
                }
                pause = (pause * 2).min(self.config.pause_max);
            }
        }
    }

    /// Registers what is to be registered, and then lets calls through.
    async fn adopt(&self, store: S) -> Result<(), String> {
        loop {
            let region = self.lock().region.clone();
            if let Some(region) = &region
                && let Err(error) = store.register(Arc::clone(region)).await
            {
                store.close().await;
                return Err(format!("registering {} bytes: {error}", region.len()));
            }
            match self.take(&store, region.as_ref()) {
                Some(LinkState::Closed) => {
                    store.close().await;
                    return Ok(());
                }
                Some(_) => return Ok(()),
                // Another region was registered meanwhile.
                None => {}
            }
        }
    }

    /// Lets calls through to a store that knows `registered`, if that is still the region. The state then.
    fn take(&self, store: &S, registered: Option<&Arc<Region>>) -> Option<LinkState> {
        let mut state = self.lock();
        let is_current = match (&state.region, registered) {
            (Some(now), Some(registered)) => Arc::ptr_eq(now, registered),
            (None, None) => true,
            _ => false,
        };
        if state.link == LinkState::Closed {
            return Some(LinkState::Closed);
        }
        is_current.then(|| {
            state.store = Some(store.clone());
            self.come_up(state);
            LinkState::Up
        })
    }

    async fn probe(&self, store: &S) -> Result<(), String> {
        match store.exists(vec![Key::new(PROBE)]).await.into_iter().next() {
            Some(Ok(_)) => {
                self.come_up(self.lock());
                Ok(())
            }
            Some(Err(error)) => Err(error.to_string()),
            None => Err("no answer to a lookup".to_owned()),
        }
    }

    fn come_up(&self, mut state: MutexGuard<'_, State<S>>) {
        if state.link == LinkState::Closed {
            return;
        }
        if state.reported.take().is_some() {
            tracing::warn!("the store is up");
        }
        state.counters.came_up += u64::from(state.link != LinkState::Up);
        state.link = LinkState::Up;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Says why the store is not up, unless that has been said.
    fn report(&self, why: String) {
        let mut state = self.lock();
        if state.reported.is_none() {
            tracing::warn!(
                why,
                "no store: items are encoded locally and not saved until there is one"
            );
        }
        state.reported = Some(why);
    }
}

fn down() -> StoreError {
    StoreError::new(DOWN, Duration::ZERO)
}

/// Gives buffers back untouched.
fn refuse<T>(buffers: impl Iterator<Item = Transfer>) -> Vec<Outcome<T>> {
    let end = |buffer: Transfer| Outcome::Ended { buffer: buffer.finish(), result: Err(down()) };
    buffers.map(end).collect()
}

impl<S: Store> Link<S> {
    /// Watches a call that moves data.
    async fn transfer<T>(&self, call: impl Future<Output = Vec<Outcome<T>>>) -> Vec<Outcome<T>> {
        let outcomes = call.await;
        for outcome in &outcomes {
            match outcome {
                Outcome::Ended { result: Err(error), .. } | Outcome::Uncertain { error, .. } => {
                    self.0.watch(Some(*error));
                }
                Outcome::Ended { result: Ok(_), .. } => {}
            }
        }
        outcomes
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl<S: Store> Store for Link<S> {
    fn limits(&self) -> StoreLimits {
        self.0.config.limits
    }

    /// Succeeds at once where the store is not there yet: the region is registered with it before any call.
    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        let store = {
            let mut state = self.0.lock();
            state.region = Some(Arc::clone(&region));
            state.store.clone()
        };
        match store {
            Some(store) => store.register(region).await,
            None => Ok(()),
        }
    }

    async fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError> {
        let store = {
            let mut state = self.0.lock();
            state.region = None;
            state.store.clone()
        };
        match store {
            Some(store) => store.unregister(region).await,
            None => Ok(()),
        }
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        let link = self.clone();
        Box::pin(async move {
            match link.up("put", items.len()) {
                Some(store) => link.transfer(store.put(items)).await,
                None => refuse(items.into_iter().map(|item| item.source)),
            }
        }) as Boxed<'_, _>
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        let link = self.clone();
        Box::pin(async move {
            match link.up("get", items.len()) {
                Some(store) => link.transfer(store.get(items)).await,
                None => refuse(items.into_iter().map(|item| item.dest)),
            }
        }) as Boxed<'_, _>
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let Some(store) = self.up("exists", keys.len()) else {
            return vec![Err(down()); keys.len()];
        };
        let mut answers = Vec::new();
        let ask = async {
            answers = store.exists(keys).await;
            // One error stands for all: a store that cannot be reached says the same to each.
            answers.iter().find_map(|answer| answer.as_ref().err().copied()).map_or(Ok(()), Err)
        };
        let _ = self.look_up(ask).await;
        answers
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        match self.up("size", 1) {
            Some(store) => self.look_up(store.size(key)).await,
            None => Err(down()),
        }
    }

    async fn remove(&self, key: Key, force: bool) -> Result<(), StoreError> {
        match self.up("remove", 1) {
            Some(store) => self.look_up(store.remove(key, force)).await,
            None => Err(down()),
        }
    }

    /// A store that was never there has touched nothing.
    async fn close(&self) -> Fence {
        let store = {
            let mut state = self.0.lock();
            state.link = LinkState::Closed;
            state.store.clone()
        };
        self.0.changed.notify_waiters();
        match store {
            Some(store) => store.close().await,
            None => Fence::Fenced,
        }
    }
}
