//! A store in which every call waits until the search answers it.
//!
//! A put begins at the call (the key is being written from there on, or the put will do nothing, as in
//! Mooncake) and ends with its answer. A call that ends uncertainly leaves its I/O behind: it reads or writes
//! the caller's memory at a later step, by address, as a card would.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use springtide::{
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits},
    pool::{Extent, Region, Transfer},
};
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64;

use super::executor::lock;

/// What late I/O writes.
const JUNK: u8 = 0x5A;

/// A call that waits, by its host and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CallId {
    pub(super) host: usize,
    pub(super) number: u32,
}

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    /// As it should be.
    Ok,
    /// It fails, and nothing has happened.
    Fails,
    /// It fails, and its I/O goes on.
    Uncertain,
    /// It succeeds, and a byte is wrong.
    Damaged,
    /// The I/O that was left behind happens.
    Late,
}

enum Call {
    Exists(Vec<Key>, oneshot::Sender<Vec<Result<bool, StoreError>>>),
    Size(Key, oneshot::Sender<Result<u64, StoreError>>),
    Put { item: PutItem, writes: bool, done: oneshot::Sender<Vec<Outcome<()>>>, hash: u64 },
    Get(GetItem, oneshot::Sender<Vec<Outcome<u64>>>),
    Late { key: Key, region: Arc<Region>, extents: Vec<Extent>, hash: Option<u64> },
}

impl Call {
    fn key(&self) -> &Key {
        match self {
            Self::Exists(keys, _) => &keys[0],
            Self::Size(key, _) | Self::Late { key, .. } => key,
            Self::Put { item, .. } => &item.key,
            Self::Get(item, _) => &item.key,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Exists(..) => "exists",
            Self::Size(..) => "size",
            Self::Put { .. } => "put",
            Self::Get(..) => "get",
            Self::Late { hash: Some(_), .. } => "late read",
            Self::Late { hash: None, .. } => "late write",
        }
    }
}

/// What all clients share.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) objects: BTreeMap<Key, Vec<u8>>,
    writing: BTreeSet<Key>,
    calls: BTreeMap<CallId, Call>,
    made: BTreeMap<usize, u32>,
    /// The first write into somebody else's memory that was seen.
    pub(super) broken: Option<String>,
}

impl fmt::Debug for Cluster {
    /// What a state is told by: objects, and the calls that wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls.iter().map(|(id, call)| (id.host, call.name(), call.key()));
        f.debug_list().entries(self.objects.keys()).entries(&self.writing).entries(calls).finish()
    }
}

impl Cluster {
    /// The calls that wait, with what they are called, their keys, and the answers that there are.
    pub(super) fn waiting(&self) -> Vec<(CallId, &'static str, String, &'static [Answer])> {
        let answers = |call: &Call| match call {
            Call::Exists(..) | Call::Size(..) => &[Answer::Ok][..],
            Call::Put { .. } => &[Answer::Ok, Answer::Fails, Answer::Uncertain],
            Call::Get(..) => &[Answer::Ok, Answer::Fails, Answer::Uncertain, Answer::Damaged],
            Call::Late { .. } => &[Answer::Late],
        };
        let named = |(id, call): (&CallId, &Call)| {
            (*id, call.name(), call.key().to_string(), answers(call))
        };
        self.calls.iter().map(named).collect()
    }

    /// Whether the source of every put is as it was when it was lent.
    pub(super) fn check_sources(&mut self) {
        for call in self.calls.values() {
            if let Call::Put { item, hash, .. } = call
                && hash_of(&item.source) != *hash
            {
                self.broken =
                    Some(format!("the bytes of {} changed while they were sent", item.key));
            }
        }
    }

    fn submit(&mut self, host: usize, call: Call) {
        let number = self.made.entry(host).or_default();
        *number += 1;
        self.calls.insert(CallId { host, number: *number }, call);
    }

    /// Answers a call. A caller that has gone hears nothing; what it lent goes back all the same.
    pub(super) fn answer(&mut self, id: CallId, answer: Answer) {
        let Some(call) = self.calls.remove(&id) else { return };
        match call {
            Call::Exists(keys, done) => {
                let exists = keys.iter().map(|key| Ok(self.objects.contains_key(key))).collect();
                drop(done.send(exists));
            }
            Call::Size(key, done) => drop(done.send(self.size(&key))),
            Call::Put { item, writes, done, hash } => {
                drop(done.send(vec![self.put(id.host, item, writes, hash, answer)]));
            }
            Call::Get(item, done) => drop(done.send(vec![self.get(id.host, item, answer)])),
            Call::Late { key, region, extents, hash } => self.late(&key, &region, &extents, hash),
        }
    }

    fn size(&self, key: &Key) -> Result<u64, StoreError> {
        match self.objects.get(key) {
            Some(bytes) => Ok(bytes.len() as u64),
            None if self.writing.contains(key) => Err(error(ErrorCode::ReplicaIsNotReady)),
            None => Err(error(ErrorCode::ObjectNotFound)),
        }
    }

    fn put(
        &mut self,
        host: usize,
        item: PutItem,
        writes: bool,
        hash: u64,
        answer: Answer,
    ) -> Outcome<()> {
        let PutItem { key, source } = item;
        if writes {
            self.writing.remove(&key);
        }
        match answer {
            Answer::Uncertain => {
                self.leave_behind(host, key, &source, Some(hash));
                Outcome::Uncertain { buffer: source, error: error(ErrorCode::TransferFail) }
            }
            Answer::Fails => {
                let result = Err(error(ErrorCode::NoAvailableHandle));
                Outcome::Ended { buffer: source.finish(), result }
            }
            _ => {
                if writes {
                    self.objects.insert(key, bytes_of(&source));
                }
                Outcome::Ended { buffer: source.finish(), result: Ok(()) }
            }
        }
    }

    fn get(&mut self, host: usize, item: GetItem, answer: Answer) -> Outcome<u64> {
        let GetItem { key, mut dest } = item;
        match (answer, self.objects.get(&key).cloned()) {
            (Answer::Uncertain, _) => {
                self.leave_behind(host, key, &dest, None);
                Outcome::Uncertain { buffer: dest, error: error(ErrorCode::TransferFail) }
            }
            (Answer::Fails, _) => {
                let result = Err(error(ErrorCode::RpcFail));
                Outcome::Ended { buffer: dest.finish(), result }
            }
            (_, None) => {
                let result = Err(error(ErrorCode::ObjectNotFound));
                Outcome::Ended { buffer: dest.finish(), result }
            }
            (answer, Some(mut bytes)) => {
                if answer == Answer::Damaged
                    && let Some(last) = bytes.last_mut()
                {
                    *last ^= 1;
                }
                dest.write_at(0, &bytes);
                Outcome::Ended { buffer: dest.finish(), result: Ok(bytes.len() as u64) }
            }
        }
    }

    fn leave_behind(&mut self, host: usize, key: Key, memory: &Transfer, hash: Option<u64>) {
        let (region, extents) = (Arc::clone(memory.region()), memory.extents().to_vec());
        self.submit(host, Call::Late { key, region, extents, hash });
    }

    fn late(&mut self, key: &Key, region: &Region, extents: &[Extent], hash: Option<u64>) {
        let mut bytes = Vec::new();
        for extent in extents {
            let mut part = vec![JUNK; extent.len as usize];
            match hash {
                Some(_) => region.dma_read(extent.offset, &mut part),
                None => region.dma_write(extent.offset, &part),
            }
            bytes.extend(part);
        }
        if hash.is_some_and(|hash| hash != xxh3_64(&bytes)) {
            self.broken = Some(format!("late I/O of {key} reads memory that is somebody else's"));
        }
    }
}

fn bytes_of(memory: &Transfer) -> Vec<u8> {
    let mut bytes = vec![0; memory.len() as usize];
    memory.read_at(0, &mut bytes);
    bytes
}

fn hash_of(memory: &Transfer) -> u64 {
    xxh3_64(&bytes_of(memory))
}

fn error(code: ErrorCode) -> StoreError {
    StoreError::new(code, Duration::ZERO)
}

/// The client of one host.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) host: usize,
    pub(super) cluster: Arc<Mutex<Cluster>>,
}

impl Client {
    async fn ask<T>(&self, call: impl FnOnce(&mut Cluster, oneshot::Sender<T>) -> Call) -> T {
        let (done, answer) = oneshot::channel();
        {
            let mut cluster = lock(&self.cluster);
            let call = call(&mut cluster, done);
            cluster.submit(self.host, call);
        }
        match answer.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Store for Client {
    fn limits(&self) -> StoreLimits {
        StoreLimits { buffers_per_object: 8, fragments_per_batch: 1024, object_bytes_max: None }
    }

    async fn register(&self, _region: Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unregister(&self, _region: Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Takes one item: the worlds' batches have no more.
    async fn put(&self, mut items: Vec<PutItem>) -> Vec<Outcome<()>> {
        let item = items.pop().expect("a batch has an item");
        assert!(items.is_empty(), "the worlds' batches have one item");
        let hash = hash_of(&item.source);
        self.ask(|cluster, done| {
            let there = cluster.objects.contains_key(&item.key);
            let writes = !there && cluster.writing.insert(item.key.clone());
            Call::Put { item, writes, done, hash }
        })
        .await
    }

    async fn get(&self, mut items: Vec<GetItem>) -> Vec<Outcome<u64>> {
        let item = items.pop().expect("a batch has an item");
        assert!(items.is_empty(), "the worlds' batches have one item");
        self.ask(|_, done| Call::Get(item, done)).await
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        self.ask(|_, done| Call::Exists(keys, done)).await
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        self.ask(|_, done| Call::Size(key, done)).await
    }

    /// Done at once: what was found bad goes.
    async fn remove(&self, key: Key, _force: bool) -> Result<(), StoreError> {
        let removed = lock(&self.cluster).objects.remove(&key);
        removed.map(drop).ok_or_else(|| error(ErrorCode::ObjectNotFound))
    }

    /// Ends with a fence: what waits fails, what was left behind never happens.
    async fn close(&self) -> Fence {
        let mut cluster = lock(&self.cluster);
        let own: Vec<CallId> =
            cluster.calls.keys().filter(|id| id.host == self.host).copied().collect();
        for id in own {
            match cluster.calls.get(&id) {
                Some(Call::Put { .. } | Call::Get(..)) => cluster.answer(id, Answer::Fails),
                Some(Call::Late { .. }) => _ = cluster.calls.remove(&id),
                _ => {}
            }
        }
        Fence::Fenced
    }
}
