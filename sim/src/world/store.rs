//! The store client of a process, watched.
//!
//! The client itself is the fake store's, over the simulated network. Around each call stands a watcher that
//! outlives its caller: it tells when memory is lent and when it comes back, hashes the bytes of every put at
//! both moments (whoever changed them in between wrote into a block under I/O), and counts the calls.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use springtide::{
    env::{Clock, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits},
    pool::{Allocation, Region},
};
use tokio::sync::oneshot;
use xxhash_rust::xxh3::Xxh3;

use super::{desk::Ambush, host::Host};
use crate::{
    event::{Event, TransferEnd},
    plan::Op,
};

/// What was asked of the store, counted from outside of the connector.
#[derive(Debug, Default)]
pub struct Tally {
    /// Items put.
    pub puts: AtomicU64,
    /// Bytes of them.
    pub put_bytes: AtomicU64,
    /// Items got.
    pub gets: AtomicU64,
    /// Keys asked for with `exists`.
    pub exists: AtomicU64,
    /// Keys asked for with `size`.
    pub sizes: AtomicU64,
}

/// A watched client.
#[derive(Clone, Debug)]
pub struct SimStore<S> {
    inner: S,
    host: Host,
    tally: Arc<Tally>,
}

impl<S: Store> SimStore<S> {
    /// Watches `inner`, a client of a process of `host`.
    pub fn new(inner: S, host: Host) -> Self {
        Self { inner, host, tally: Arc::default() }
    }

    /// What is watched.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// What was asked of it so far.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Panics if the injector has laid a panic for such a call. What the caller has lent is dropped with it.
    fn blow_up(&self, op: Op, lent: &[(&Key, u64)]) {
        let laid = |ambush: &Ambush| matches!(ambush, Ambush::Panic(which) if *which == op);
        let (process, now) = (&self.host.process, self.host.clock.now());
        let hit = self.host.world.desk.hit(process.host(), now, |a| laid(a).then_some(()));
        if hit.is_none() {
            return;
        }
        let put = op == Op::PutStart;
        for (key, bytes) in lent {
            let (key, bytes) = (self.host.world.short(key.as_str()), *bytes);
            self.host.record(Event::TransferBegan { key: key.clone(), bytes, put });
            let end = TransferEnd::Uncertain("panic".to_owned());
            self.host.record(Event::TransferEnded { key, bytes, put, end });
        }
        panic!("a store call panics (injected)");
    }

    /// Runs a call in a task of its own, so that it is watched to its end whatever its caller does.
    async fn watch<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> T {
        let (done, result) = oneshot::channel();
        self.host.process.spawn(Box::pin(async move {
            // Whoever waited may have let go; what the call gives back goes where it belongs.
            drop(done.send(call.await));
        }));
        match result.await {
            Ok(result) => result,
            // Only the end of the process ends its tasks.
            Err(_) => std::future::pending().await,
        }
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A hash of all bytes of an allocation, a piece at a time.
fn hash(allocation: &Allocation) -> u64 {
    let (mut hasher, mut piece) = (Xxh3::new(), [0; 4096]);
    for at in (0..allocation.len()).step_by(piece.len()) {
        let length = (allocation.len() - at).min(piece.len() as u64) as usize;
        allocation.read_at(at, &mut piece[..length]);
        hasher.update(&piece[..length]);
    }
    hasher.digest()
}

/// What is remembered of an item while its transfer runs.
struct Lent {
    key: String,
    bytes: u64,
    hash: Option<u64>,
}

impl Lent {
    fn begin(host: &Host, key: &Key, memory: &Allocation, put: bool) -> Self {
        let key = host.world.short(key.as_str());
        let bytes = memory.len();
        host.record(Event::TransferBegan { key: key.clone(), bytes, put });
        Self { key, bytes, hash: put.then(|| hash(memory)) }
    }

    fn end<T>(self, host: &Host, outcome: &Outcome<T>) {
        let Self { key, bytes, hash: before } = self;
        let end = match outcome {
            Outcome::Ended { buffer, .. } if before.is_some_and(|it| it != hash(buffer)) => {
                TransferEnd::SourceChanged
            }
            Outcome::Ended { result: Ok(_), .. } => TransferEnd::Ended("ok".to_owned()),
            Outcome::Ended { result: Err(error), .. } => TransferEnd::Ended(error.code.to_string()),
            Outcome::Uncertain { error, .. } => TransferEnd::Uncertain(error.code.to_string()),
        };
        host.record(Event::TransferEnded { key, bytes, put: before.is_some(), end });
    }
}

impl<S: Store> Store for SimStore<S> {
    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }

    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        self.inner.register(region).await
    }

    async fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError> {
        self.inner.unregister(region).await
    }

    async fn put(&self, items: Vec<PutItem>) -> Vec<Outcome<()>> {
        add(&self.tally.puts, items.len() as u64);
        add(&self.tally.put_bytes, items.iter().map(|item| item.source.len()).sum());
        let lent: Vec<_> = items.iter().map(|item| (&item.key, item.source.len())).collect();
        self.blow_up(Op::PutStart, &lent);
        let (inner, host) = (self.inner.clone(), self.host.clone());
        self.watch(async move {
            let lent: Vec<Lent> = items
                .iter()
                .map(|item| Lent::begin(&host, &item.key, &item.source, true))
                .collect();
            let outcomes = inner.put(items).await;
            lent.into_iter().zip(&outcomes).for_each(|(lent, outcome)| lent.end(&host, outcome));
            outcomes
        })
        .await
    }

    async fn get(&self, items: Vec<GetItem>) -> Vec<Outcome<u64>> {
        add(&self.tally.gets, items.len() as u64);
        let lent: Vec<_> = items.iter().map(|item| (&item.key, item.dest.len())).collect();
        self.blow_up(Op::Query, &lent);
        let (inner, host) = (self.inner.clone(), self.host.clone());
        self.watch(async move {
            let lent: Vec<Lent> =
                items.iter().map(|item| Lent::begin(&host, &item.key, &item.dest, false)).collect();
            let outcomes = inner.get(items).await;
            lent.into_iter().zip(&outcomes).for_each(|(lent, outcome)| lent.end(&host, outcome));
            outcomes
        })
        .await
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        add(&self.tally.exists, keys.len() as u64);
        self.blow_up(Op::Exists, &[]);
        self.inner.exists(keys).await
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        add(&self.tally.sizes, 1);
        self.blow_up(Op::Size, &[]);
        self.inner.size(key).await
    }

    async fn remove(&self, key: Key, force: bool) -> Result<(), StoreError> {
        self.blow_up(Op::Remove, &[]);
        self.inner.remove(key, force).await
    }

    async fn close(&self) -> Fence {
        self.inner.close().await
    }
}
