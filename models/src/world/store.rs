//! A store in memory, which a model can make slow or faulty.

use std::{collections::BTreeMap, time::Duration};

use springtide::{
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits},
    pool::{Region, Transfer},
};
use springtide_model_sync::{Arc, Mutex, Notify};

use super::lock;

/// Holds calls back until it is opened.
#[derive(Clone)]
pub struct Gate(Arc<GateState>);

struct GateState {
    open: Mutex<bool>,
    opened: Notify,
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(GateState { open: Mutex::new(false), opened: Notify::new() }))
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        *lock(&self.0.open) = true;
        self.0.opened.notify_waiters();
    }

    /// Ends when the gate is open.
    pub async fn pass(&self) {
        loop {
            let opened = self.0.opened.notified();
            if *lock(&self.0.open) {
                return;
            }
            opened.await;
        }
    }
}

/// What can go wrong with one item of a put or a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing has happened.
    Fails(ErrorCode),
    /// It fails, and the store cannot say whether its I/O is over.
    Uncertain(ErrorCode),
    /// The call is never answered.
    Silent,
}

/// Says for each item of a put or a get what goes wrong with it.
type Faults = Arc<dyn Fn() -> Option<Fault> + Send + Sync>;

/// A store that keeps what it is given, and can be made slow and faulty.
#[derive(Clone)]
pub struct ModelStore {
    objects: Arc<Mutex<BTreeMap<Key, Vec<u8>>>>,
    faults: Faults,
    /// What puts wait for before they do anything.
    puts: Option<Gate>,
    /// What the first get opens.
    gets: Option<Gate>,
}

impl ModelStore {
    /// An empty store.
    pub fn empty() -> Self {
        let objects = Arc::new(Mutex::new(BTreeMap::new()));
        Self { objects, faults: Arc::new(|| None), puts: None, gets: None }
    }

    /// Puts and gets go wrong as `faults` says.
    #[must_use]
    pub fn with_faults(self, faults: impl Fn() -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self { faults: Arc::new(faults), ..self }
    }

    /// Puts wait for this gate.
    #[must_use]
    pub fn with_puts_behind(self, gate: Gate) -> Self {
        Self { puts: Some(gate), ..self }
    }

    /// The first get opens this gate.
    #[must_use]
    pub fn with_gets_that_open(self, gate: Gate) -> Self {
        Self { gets: Some(gate), ..self }
    }

    /// Puts an object there, as another process would.
    pub fn insert(&self, key: Key, bytes: Vec<u8>) {
        lock(&self.objects).insert(key, bytes);
    }

    /// The object under a key.
    pub fn object(&self, key: &Key) -> Option<Vec<u8>> {
        lock(&self.objects).get(key).cloned()
    }
}

impl ModelStore {
    /// One item's I/O, as it goes.
    async fn run<T>(
        &self,
        mut buffer: Transfer,
        io: impl FnOnce(&mut Transfer) -> Result<T, StoreError>,
    ) -> Outcome<T> {
        match (self.faults)() {
            None => {
                let result = io(&mut buffer);
                Outcome::Ended { buffer: buffer.finish(), result }
            }
            Some(Fault::Fails(code)) => {
                Outcome::Ended { buffer: buffer.finish(), result: Err(error(code)) }
            }
            Some(Fault::Uncertain(code)) => Outcome::Uncertain { buffer, error: error(code) },
            Some(Fault::Silent) => std::future::pending().await,
        }
    }
}

impl Store for ModelStore {
    fn limits(&self) -> StoreLimits {
        StoreLimits { buffers_per_object: 1, fragments_per_batch: 1024, object_bytes_max: None }
    }

    async fn register(&self, _region: std::sync::Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unregister(&self, _region: std::sync::Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn put(&self, items: Vec<PutItem>) -> Vec<Outcome<()>> {
        if let Some(gate) = &self.puts {
            gate.pass().await;
        }
        let mut outcomes = Vec::with_capacity(items.len());
        for PutItem { key, source } in items {
            let done = self.run(source, |source| {
                let mut bytes = vec![0; source.len() as usize];
                source.read_at(0, &mut bytes);
                lock(&self.objects).entry(key).or_insert(bytes);
                Ok(())
            });
            outcomes.push(done.await);
        }
        outcomes
    }

    async fn get(&self, items: Vec<GetItem>) -> Vec<Outcome<u64>> {
        if let Some(gate) = &self.gets {
            gate.open();
        }
        let mut outcomes = Vec::with_capacity(items.len());
        for GetItem { key, dest } in items {
            let done = self.run(dest, |dest| match self.object(&key) {
                Some(bytes) if bytes.len() as u64 == dest.len() => {
                    dest.write_at(0, &bytes);
                    Ok(bytes.len() as u64)
                }
                Some(_) => Err(error(ErrorCode::TransferFail)),
                None => Err(error(ErrorCode::ObjectNotFound)),
            });
            outcomes.push(done.await);
        }
        outcomes
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let objects = lock(&self.objects);
        keys.iter().map(|key| Ok(objects.contains_key(key))).collect()
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        let size = self.object(&key).map(|bytes| bytes.len() as u64);
        size.ok_or_else(|| error(ErrorCode::ObjectNotFound))
    }

    async fn remove(&self, key: Key, _force: bool) -> Result<(), StoreError> {
        let removed = lock(&self.objects).remove(&key);
        removed.map(drop).ok_or_else(|| error(ErrorCode::ObjectNotFound))
    }

    async fn close(&self) -> Fence {
        Fence::Fenced
    }
}

fn error(code: ErrorCode) -> StoreError {
    StoreError::new(code, Duration::ZERO)
}
