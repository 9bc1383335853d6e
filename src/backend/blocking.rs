//! A [`Store`] over one whose calls block, with buffers that belong to the call.
//!
//! Each call runs on a thread of a bounded set, owns its buffers until it has returned, and only then gives
//! them back; whoever asked may stop waiting and changes nothing by it. Lookups have threads of their own,
//! so that no lookup stands behind a transfer that hangs. What a returned call says of its buffers follows
//! from its code and from how long it ran ([`StoreError::may_be_in_flight`]).
//!
//! The region is registered once, with exactly its length, and kept mapped until it is known that the store
//! does not touch it any more. A close refuses new calls, waits for those that run, and ends the store on a
//! thread of its own.

use std::{
    fmt,
    future::Future,
    io, mem,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::watch;

use super::{
    batches::{Budget, fragments, split},
    threads::Threads,
};
use crate::{
    env::{
        Clock, ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits,
        Time,
    },
    pool::{Region, Transfer},
};

/// A store whose calls block until they are over. All may be called from any thread, by many at a time;
/// [`Blocking::close`] is called once, when no other call runs, and none follows.
///
/// A call leaves buffers alone once it has returned, except after the codes for which
/// [`ErrorCode::in_flight`] says otherwise. A result that is missing, and all results of a call that
/// panics, count as `INTERNAL_ERROR`.
pub trait Blocking: Send + Sync + 'static {
    /// What one call can take.
    fn limits(&self) -> StoreLimits;

    /// Makes the region known to the transport.
    ///
    /// # Errors
    /// The store's code; nothing is registered then.
    fn register(&self, region: &Region) -> Result<(), ErrorCode>;

    /// Undoes [`Blocking::register`].
    ///
    /// # Errors
    /// The store's code; the region is still registered then.
    fn unregister(&self, region: &Region) -> Result<(), ErrorCode>;

    /// Stores objects with different keys, one result each, in order.
    fn put(&self, items: &[PutItem]) -> Vec<Result<(), ErrorCode>>;

    /// Fetches objects with different keys, one result each, in order: their lengths in bytes.
    fn get(&self, items: &[GetItem]) -> Vec<Result<u64, ErrorCode>>;

    /// Whether each key is readable, in order.
    fn exists(&self, keys: &[Key]) -> Vec<Result<bool, ErrorCode>>;

    /// The length of an object in bytes.
    ///
    /// # Errors
    /// The store's code.
    fn size(&self, key: &Key) -> Result<u64, ErrorCode>;

    /// Removes an object.
    ///
    /// # Errors
    /// The store's code.
    fn remove(&self, key: &Key, force: bool) -> Result<(), ErrorCode>;

    /// Ends the store.
    fn close(&self) -> Fence;
}

/// Threads and limits of a [`BlockingStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingConfig {
    /// Name of its threads.
    pub name: &'static str,
    /// Threads for puts and gets: calls that move data at a time.
    pub data_threads: usize,
    /// Threads for everything else.
    pub lookup_threads: usize,
    /// The limit after which the store gives up on a transfer without stopping it.
    pub transfer_limit: Duration,
}

/// A [`Store`] over a [`Blocking`] one. Clones share it.
pub struct BlockingStore<B: Blocking>(Arc<Shared<B>>);

impl<B: Blocking> Clone for BlockingStore<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<B: Blocking> {
    calls: B,
    config: BlockingConfig,
    now: Box<dyn Fn() -> Time + Send + Sync>,
    data: Threads,
    lookups: Threads,
    budget: Budget,
    /// The region that the store knows.
    registered: Mutex<Option<Arc<Region>>>,
    /// Whether a close has begun.
    closing: Mutex<bool>,
    /// The fence, once the close is over.
    closed: watch::Sender<Option<Fence>>,
}

impl<B: Blocking> BlockingStore<B> {
    /// A store over `calls`, whose elapsed times are measured with `clock`.
    ///
    /// # Errors
    /// As the operating system refuses a thread.
    pub fn new(calls: B, config: BlockingConfig, clock: impl Clock) -> io::Result<Self> {
        let name = config.name;
        let data = Threads::start(&format!("{name}-data"), config.data_threads.max(1))?;
        let lookups = Threads::start(&format!("{name}-lookup"), config.lookup_threads.max(1))?;
        let budget = Budget::new(calls.limits().fragments_per_batch);
        let (closed, _) = watch::channel(None);
        Ok(Self(Arc::new(Shared {
            calls,
            config,
            now: Box::new(move || clock.now()),
            data,
            lookups,
            budget,
            registered: Mutex::default(),
            closing: Mutex::default(),
            closed,
        })))
    }

    /// The store that is called.
    pub fn calls(&self) -> &B {
        &self.0.calls
    }

    /// Moves buffers on threads that own them, a batch each. A store that is closed gives all back at once.
    fn transfer<I: Item, T: Send + 'static>(
        &self,
        items: Vec<I>,
        call: Call<B, I, T>,
    ) -> impl Future<Output = Vec<Outcome<T>>> + Send + use<B, I, T> {
        let max = self.0.calls.limits().fragments_per_batch;
        let batches = split(items, max, |item| (item.key(), fragments(item.buffer())));
        let mut moving = Vec::with_capacity(batches.len());
        for (items, fragments) in batches {
            moving.push(match self.0.data.reserve() {
                Ok(place) => {
                    let shared = Arc::clone(&self.0);
                    Moving::Running(place.run(move || shared.transfer(items, fragments, call)))
                }
                Err(_closed) => Moving::Refused(items),
            });
        }
        async move {
            let mut outcomes = Vec::new();
            for batch in moving {
                match batch {
                    Moving::Running(running) => match running.await {
                        Ok(batch) => outcomes.extend(batch),
                        // Its thread has gone, and its buffers with it: what follows has no place.
                        Err(_lost) => break,
                    },
                    Moving::Refused(items) => outcomes.extend(items.into_iter().map(|item| {
                        let result = Err(closed());
                        Outcome::Ended { buffer: item.into_buffer().finish(), result }
                    })),
                }
            }
            outcomes
        }
    }

    /// Runs a call that moves no data. One that panics is an error.
    async fn look_up<T: Send + 'static>(
        &self,
        call: impl FnOnce(&B) -> Result<T, ErrorCode> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.0);
        let job = self.0.lookups.run(move || {
            let started = (shared.now)();
            call(&shared.calls).map_err(|code| shared.error(code, (shared.now)() - started))
        });
        match job {
            Ok(running) => {
                let lost = |_| Err(self.0.error(ErrorCode::Internal, Duration::ZERO));
                running.await.unwrap_or_else(lost)
            }
            Err(_closed) => Err(closed()),
        }
    }
}

impl<B: Blocking> Store for BlockingStore<B> {
    fn limits(&self) -> StoreLimits {
        self.0.calls.limits()
    }

    /// Fails with `INVALID_PARAMS`, without a call, while a region is registered.
    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.0);
        self.look_up(move |calls| {
            let mut registered = lock(&shared.registered);
            if registered.is_some() {
                return Err(ErrorCode::InvalidParams);
            }
            calls.register(&region)?;
            *registered = Some(region);
            Ok(())
        })
        .await
    }

    /// Fails with `INVALID_PARAMS`, without a call, for another region than the registered one. After a
    /// close that fenced there is nothing to undo.
    async fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError> {
        if *self.0.closed.borrow() == Some(Fence::Fenced) {
            return Ok(());
        }
        let shared = Arc::clone(&self.0);
        self.look_up(move |calls| {
            let mut registered = lock(&shared.registered);
            match &*registered {
                Some(known) if Arc::ptr_eq(known, &region) => calls.unregister(&region)?,
                _ => return Err(ErrorCode::InvalidParams),
            }
            *registered = None;
            Ok(())
        })
        .await
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        self.transfer(items, B::put)
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        self.transfer(items, B::get)
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let (count, shared) = (keys.len(), Arc::clone(&self.0));
        let answers = self
            .look_up(move |calls| {
                let started = (shared.now)();
                let answers = calls.exists(&keys);
                let elapsed = (shared.now)() - started;
                let typed =
                    |answer: Result<_, _>| answer.map_err(|code| shared.error(code, elapsed));
                Ok(answers.into_iter().map(typed).collect::<Vec<_>>())
            })
            .await;
        let lost = Err(self.0.error(ErrorCode::Internal, Duration::ZERO));
        match answers {
            Ok(mut answers) => {
                answers.resize(count, lost);
                answers
            }
            Err(error) => vec![Err(error); count],
        }
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        self.look_up(move |calls| calls.size(&key)).await
    }

    async fn remove(&self, key: Key, force: bool) -> Result<(), StoreError> {
        self.look_up(move |calls| calls.remove(&key, force)).await
    }

    async fn close(&self) -> Fence {
        let mut closed = self.0.closed.subscribe();
        if self.0.begin_to_close().is_err() {
            return Fence::Unknown;
        }
        // The sender lives in `self`.
        let fence = closed.wait_for(Option::is_some).await;
        fence.ok().and_then(|fence| *fence).unwrap_or(Fence::Unknown)
    }
}

impl<B: Blocking> Shared<B> {
    /// One call, and what it says of each buffer.
    fn transfer<I: Item, T>(
        &self,
        items: Vec<I>,
        fragments: usize,
        call: Call<B, I, T>,
    ) -> Vec<Outcome<T>> {
        let spent = self.budget.spend(fragments);
        let started = (self.now)();
        let results = panic::catch_unwind(AssertUnwindSafe(|| call(&self.calls, &items)));
        let elapsed = (self.now)() - started;
        drop(spent);
        // A call that panicked has no results, so every buffer's end is unknown.
        let mut results = results.unwrap_or_default().into_iter();
        let outcome = |item: I| {
            let buffer = item.into_buffer();
            let result = results.next().unwrap_or(Err(ErrorCode::Internal));
            match result.map_err(|code| self.error(code, elapsed)) {
                Err(error) if error.may_be_in_flight() => Outcome::Uncertain { buffer, error },
                result => Outcome::Ended { buffer: buffer.finish(), result },
            }
        };
        items.into_iter().map(outcome).collect()
    }

    /// Starts the thread that closes, the first time.
    fn begin_to_close(self: &Arc<Self>) -> io::Result<()> {
        let mut is_closing = lock(&self.closing);
        if *is_closing {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let name = format!("{}-close", self.config.name);
        thread::Builder::new().name(name).spawn(move || {
            shared.data.wait_idle();
            shared.lookups.wait_idle();
            let fence = panic::catch_unwind(AssertUnwindSafe(|| shared.calls.close()));
            let fence = fence.unwrap_or(Fence::Unknown);
            if fence == Fence::Fenced {
                *lock(&shared.registered) = None;
            }
            shared.closed.send_replace(Some(fence));
        })?;
        *is_closing = true;
        self.data.close();
        self.lookups.close();
        Ok(())
    }

    fn error(&self, code: ErrorCode, elapsed: Duration) -> StoreError {
        StoreError { code, elapsed, transfer_limit: self.config.transfer_limit }
    }
}

impl<B: Blocking> Drop for Shared<B> {
    fn drop(&mut self) {
        // Never closed, or not known to be: the store may still touch the region, so it stays mapped.
        let registered = self.registered.get_mut().unwrap_or_else(PoisonError::into_inner);
        mem::forget(registered.take());
    }
}

impl<B: Blocking> fmt::Debug for BlockingStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingStore").field("config", &self.0.config).finish_non_exhaustive()
    }
}

/// One of the calls that move data.
type Call<B, I, T> = fn(&B, &[I]) -> Vec<Result<T, ErrorCode>>;

/// A batch on its way, or refused.
enum Moving<I, T> {
    Running(tokio::sync::oneshot::Receiver<Vec<Outcome<T>>>),
    Refused(Vec<I>),
}

/// What puts and gets have in common.
trait Item: Send + 'static {
    fn key(&self) -> &Key;
    fn buffer(&self) -> &Transfer;
    fn into_buffer(self) -> Transfer;
}

impl Item for PutItem {
    fn key(&self) -> &Key {
        &self.key
    }

    fn buffer(&self) -> &Transfer {
        &self.source
    }

    fn into_buffer(self) -> Transfer {
        self.source
    }
}

impl Item for GetItem {
    fn key(&self) -> &Key {
        &self.key
    }

    fn buffer(&self) -> &Transfer {
        &self.dest
    }

    fn into_buffer(self) -> Transfer {
        self.dest
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> StoreError {
    StoreError::new(ErrorCode::UnavailableInCurrentStatus, Duration::ZERO)
}
