//! Saving, and the wait for it.
//!
//! Every save is a task of one event loop, whose thread does the copies from the device itself. Puts run in
//! threads that nothing stops; the limit is one on the wait for them, and when it is up the block goes back to
//! the pool. The wait at the end of a step ends when the set of pending keys is empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use springtide::{
    connector::CloseReport,
    env::{Clock, Device, Env, Fence, Key, PutItem, Store, Time},
    pool::Transfer,
};
use tokio::sync::{Notify, oneshot};

use super::{
    Raised, caught, header, header_key, key,
    memory::{Lent, Memory},
    pool::{FifoPool, Refused},
};
use crate::{
    event::SaveEnd,
    subjects::SaveReported,
    world::{
        device::{SimEvent, SimTensor},
        host::{SimEnv, World},
    },
};

/// The saving half of a worker. Clones share it.
#[derive(Clone)]
pub struct Saves(Arc<Inner>);

struct Inner {
    env: SimEnv,
    world: Arc<World>,
    memory: Arc<Memory>,
    pool: Arc<Mutex<FifoPool>>,
    /// How long a save may take, as far as its puts go.
    limit: Duration,
    /// The event loop's thread: one copy at a time, and nothing else meanwhile.
    event_loop: tokio::sync::Mutex<()>,
    books: Mutex<Books>,
    changed: Notify,
    /// Puts in their threads.
    running: AtomicU64,
}

#[derive(Default)]
struct Books {
    next: u64,
    pending: BTreeSet<Key>,
    /// When the encoder's kernels have finished if each takes what it usually takes.
    kernels_until: Time,
    /// Tickets that no wait has reported, with their ends. The design has no tickets: they are the simulator's.
    open: BTreeMap<u64, (Key, Option<SaveEnd>)>,
}

impl Saves {
    /// Nothing saved yet.
    pub fn new(
        env: SimEnv,
        world: Arc<World>,
        memory: Arc<Memory>,
        pool: Arc<Mutex<FifoPool>>,
    ) -> Self {
        // The limit of one save is what the engine is ready to wait for all of a step's.
        let limit = Duration::from_millis(world.plan.engine.wait_ms);
        let (event_loop, books, changed, running) = Default::default();
        let inner = Inner { env, world, memory, pool, limit, event_loop, books, changed, running };
        Self(Arc::new(inner))
    }

    /// Begins to save an item; the number of the save.
    pub fn begin(&self, item: &str, tensor: SimTensor) -> u64 {
        let key = key(item);
        let (ticket, kernels_until, limit) = {
            let mut books = self.books();
            let now = self.0.env.clock().now();
            if tensor.written_at() > now {
                let rows = tensor.spec().shape.dims()[0];
                books.kernels_until = books.kernels_until.max(now) + self.0.world.encode_time(rows);
            }
            books.next += 1;
            let ticket = books.next;
            books.pending.insert(key.clone());
            books.open.insert(ticket, (key.clone(), None));
            (ticket, books.kernels_until, now + self.0.limit)
        };
        let saves = self.clone();
        self.0.env.spawn(Box::pin(async move {
            // Nothing orders the copy behind the kernel. By the time at which the thread comes to it a kernel of
            // the usual length is over; one that takes longer is not.
            saves.0.env.clock().sleep_until(kernels_until).await;
            // After an exception that nobody expected the key stays pending.
            if let Ok(end) = caught(saves.save(&key, &tensor, limit)).await {
                let mut books = saves.books();
                books.pending.remove(&key);
                if let Some((_, ended)) = books.open.get_mut(&ticket) {
                    *ended = Some(end);
                }
                drop(books);
                saves.0.changed.notify_waiters();
            }
        }));
        ticket
    }

    async fn save(&self, key: &Key, tensor: &SimTensor, limit: Time) -> Result<SaveEnd, Raised> {
        let len = tensor.spec().bytes();
        let thread = self.0.event_loop.lock().await;
        let allocated = self.pool().allocate(len);
        let (address, evicted) = match allocated {
            Ok(allocated) => allocated,
            Err(Refused::Full) => return Ok(SaveEnd::Dropped("pool full".to_owned())),
            Err(Refused::Unexpected(raised)) => return Err(raised),
        };
        self.pool().enqueue(key.as_str(), address);
        remove(&self.0.env, evicted);
        self.copy_out(tensor, address, len).await?;
        drop(thread);
        let (lent, payload) = self.0.memory.lend(address, len);
        let head = self.0.memory.copied(&header(tensor.spec()));
        let payload = self.put(key.clone(), payload, Some(lent));
        let puts = both(payload, self.put(header_key(key), head, None));
        match self.0.env.clock().timeout_at(limit, puts).await {
            // Whatever the status was. The block stays where it is until it is the oldest.
            Ok(Ok(())) => Ok(SaveEnd::Stored),
            Ok(Err(Raised(what))) => self.give_up(address, what),
            Err(_) => self.give_up(address, "timeout"),
        }
    }

    fn give_up(&self, address: u64, why: &str) -> Result<SaveEnd, Raised> {
        self.pool().free(address)?;
        Ok(SaveEnd::Failed(why.to_owned()))
    }

    /// Copies from the device, on a stream that knows nothing of the encoder's.
    async fn copy_out(&self, tensor: &SimTensor, address: u64, len: u64) -> Result<(), Raised> {
        let (lent, memory) = self.0.memory.lend(address, len);
        let now = SimEvent(self.0.env.clock().now());
        let outcome = self.0.env.device().copy_out(tensor.clone(), now, memory, 0).await;
        let copied = self.0.memory.returned(lent, outcome, |()| len);
        copied.map_err(|_| Raised("the copy failed"))
    }

    /// Puts one object in a thread of its own, which goes on when nobody waits any more.
    async fn put(&self, key: Key, source: Transfer, lent: Option<Lent>) -> Result<(), Raised> {
        let (done, returned) = oneshot::channel();
        let saves = self.clone();
        self.0.running.fetch_add(1, Ordering::Relaxed);
        self.0.env.spawn(Box::pin(async move {
            let put = caught(async {
                let outcomes = saves.0.env.store().put(vec![PutItem { key, source }]).await;
                for outcome in outcomes {
                    // The status is dropped here.
                    let _ = match lent {
                        Some(lent) => saves.0.memory.returned(lent, outcome, |()| 0),
                        None => Ok(()),
                    };
                }
                Ok(())
            })
            .await;
            saves.0.running.fetch_sub(1, Ordering::Relaxed);
            saves.0.changed.notify_waiters();
            let _ = done.send(put);
        }));
        returned.await.unwrap_or(Err(Raised("the thread died")))
    }

    /// Ends when no key is pending; what is known of every save begun since the last wait.
    pub async fn wait(&self) -> Vec<SaveReported> {
        self.until(|books, _| books.pending.is_empty()).await;
        let open = std::mem::take(&mut self.books().open);
        let reported = open.into_iter().map(|(ticket, (key, end))| SaveReported {
            ticket: format!("#{ticket}"),
            key: key.to_string(),
            // Another save of the same key was the one that ended.
            end: end.unwrap_or(SaveEnd::TimedOut),
        });
        reported.collect()
    }

    /// Waits for all threads, then ends the client.
    pub async fn close(&self) -> CloseReport {
        self.until(|_, running| running == 0).await;
        let fence = self.0.env.store().close().await;
        closed(fence)
    }

    async fn until(&self, is_over: impl Fn(&Books, u64) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if is_over(&self.books(), self.0.running.load(Ordering::Relaxed)) {
                return;
            }
            changed.await;
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().expect("no panic while held")
    }

    fn pool(&self) -> MutexGuard<'_, FifoPool> {
        self.0.pool.lock().expect("no panic while held")
    }
}

/// Ends with both, or with the first exception.
async fn both(
    first: impl Future<Output = Result<(), Raised>>,
    second: impl Future<Output = Result<(), Raised>>,
) -> Result<(), Raised> {
    tokio::try_join!(biased; first, second).map(|_| ())
}

/// Removes the objects of evicted blocks; whether the store agrees is not looked at.
pub(super) fn remove(env: &SimEnv, keys: Vec<String>) {
    for payload in keys.into_iter().map(Key::new) {
        let store = env.store().clone();
        env.spawn(Box::pin(async move {
            let body = async {
                let _ = store.remove(header_key(&payload), false).await;
                let _ = store.remove(payload.clone(), false).await;
                Ok(())
            };
            let _ = caught(body).await;
        }));
    }
}

/// The report of a close that counts nothing.
pub(super) fn closed(fence: Fence) -> CloseReport {
    CloseReport { abandoned: 0, fence, released_bytes: 0, leaked_bytes: 0 }
}
