//! Lookups and loads, each blocking whoever asks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use springtide::{
    connector::{CloseReport, ItemRequest, Role},
    env::{Clock, Env, GetItem, Outcome, Store, TensorSpec, Time},
};

use super::{
    HEADER_BYTES, Raised, caught, header_key, key,
    memory::Memory,
    pool::{FifoPool, Refused},
    read_header,
    saves::{Saves, closed, remove},
};
use crate::{
    plan::Direction,
    subjects::{Delivered, SaveReported, Start},
    world::{device::SimTensor, host::SimEnv},
};

/// The scheduler's side. Clones share it.
#[derive(Clone)]
pub struct Scheduler(Arc<Lookups>);

struct Lookups {
    env: SimEnv,
    loads_nothing: bool,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    /// The last answer for each item.
    exists: BTreeMap<String, bool>,
    /// What the workers are to load in the next step.
    loads: Vec<String>,
}

impl Scheduler {
    /// Starts it; its client pins nothing.
    pub fn start(start: Start) -> Self {
        let loads_nothing = start.config.role == Role::Producer;
        Self(Arc::new(Lookups { env: start.env, loads_nothing, asked: Mutex::default() }))
    }

    /// Asks the store for each item, one after the other.
    pub async fn has_caches(&self, items: &[ItemRequest]) {
        if self.0.loads_nothing {
            return;
        }
        for item in items {
            let exists = caught(async {
                let statuses = self.0.env.store().exists(vec![key(&item.identifier)]).await;
                // 1, 0 or a negative code: all but zero is true.
                Ok(statuses.iter().all(|status| *status != Ok(false)))
            });
            let exists = exists.await.unwrap_or(false);
            self.asked().exists.insert(item.identifier.clone(), exists);
        }
    }

    /// The last answer.
    pub fn has_item(&self, identifier: &str) -> bool {
        self.asked().exists.get(identifier) == Some(&true)
    }

    /// Has the workers load an item that exists.
    pub fn allocated(&self, identifier: &str) {
        if self.has_item(identifier) {
            self.asked().loads.push(identifier.to_owned());
        }
    }

    /// What the workers are to load.
    pub fn take_loads(&self) -> Vec<String> {
        std::mem::take(&mut self.asked().loads)
    }

    /// Ends the client.
    pub async fn close(&self) -> CloseReport {
        closed(self.0.env.store().close().await)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.asked.lock().expect("no panic while held")
    }
}

/// One rank's side. Clones share it.
#[derive(Clone)]
pub struct Worker {
    env: SimEnv,
    memory: Arc<Memory>,
    pool: Arc<Mutex<FifoPool>>,
    saves: Saves,
    /// The engine model waits for rank 0 only; the other ranks save the same items all the same.
    reports: bool,
    saves_nothing: bool,
}

impl Worker {
    /// Starts it, with a pool of its own.
    pub async fn start(start: Start) -> Self {
        let Start { host, env, config } = start;
        let pool = FifoPool::new(config.pool.bytes);
        let memory = Memory::new(pool.bytes(), config.pool.bytes, env.store()).await;
        let (memory, pool) = (Arc::new(memory), Arc::new(Mutex::new(pool)));
        let world = Arc::clone(&host.world);
        let saves = Saves::new(env.clone(), world, Arc::clone(&memory), Arc::clone(&pool));
        let (reports, saves_nothing) = (config.rank == 0, config.role == Role::Consumer);
        Self { env, memory, pool, saves, reports, saves_nothing }
    }

    /// Begins to save an item, on every rank.
    pub fn save(&self, item: &str, tensor: SimTensor) -> Option<String> {
        if self.saves_nothing {
            return None;
        }
        let ticket = self.saves.begin(item, tensor);
        self.reports.then(|| format!("#{ticket}"))
    }

    /// Waits for what is pending.
    pub async fn wait_for_save(&self) -> Vec<SaveReported> {
        self.saves.wait().await
    }

    /// Ends the client once nothing runs any more.
    pub async fn close(&self) -> CloseReport {
        self.saves.close().await
    }

    /// Loads items within the model's step. An item without a result is one that the engine asserts on.
    pub async fn load(&self, items: Vec<String>) -> Vec<Delivered> {
        if items.is_empty() {
            return Vec::new();
        }
        let loaded = caught(self.load_batch(&items)).await;
        let loaded = loaded.unwrap_or_else(|_| vec![None; items.len()]);
        let delivered = items.into_iter().zip(loaded).map(|(identifier, tensor)| {
            let tensor = tensor.map(|tensor| (tensor, None));
            let result = tensor.ok_or_else(|| "the load returned None".to_owned());
            Delivered { identifier, result }
        });
        delivered.collect()
    }

    async fn load_batch(&self, items: &[String]) -> Result<Vec<Option<SimTensor>>, Raised> {
        let specs = self.headers(items).await;
        let mut blocks = Vec::new();
        // All blocks in one go; what is allocated before one that fails is nobody's.
        for (item, spec) in items.iter().zip(&specs) {
            if let Some(spec) = spec {
                blocks.push((item, *spec, self.allocate(spec.bytes())?));
            }
        }
        let mut gets = Vec::new();
        let mut lents = Vec::new();
        for (item, spec, address) in &blocks {
            let (lent, dest) = self.memory.lend(*address, spec.bytes());
            lents.push(lent);
            gets.push(GetItem { key: key(item), dest });
        }
        let outcomes = self.env.store().get(gets).await;
        let mut tensors = BTreeMap::new();
        for (((item, spec, address), lent), outcome) in blocks.into_iter().zip(lents).zip(outcomes)
        {
            let status = self.memory.returned(lent, outcome, |bytes| *bytes);
            // Anything above zero is a success.
            if status.is_ok_and(|bytes| bytes > 0) {
                tensors.insert(item.clone(), self.copy_in(spec, address).await);
                self.pool().enqueue(key(item).as_str(), address);
            } else {
                self.pool().free(address)?;
            }
        }
        Ok(items.iter().map(|item| tensors.remove(item)).collect())
    }

    /// The headers of items; `None` for one that is not there or not readable.
    async fn headers(&self, items: &[String]) -> Vec<Option<TensorSpec>> {
        let get = |item: &String| GetItem {
            key: header_key(&key(item)),
            dest: self.memory.copied(&[0; HEADER_BYTES]),
        };
        let outcomes = self.env.store().get(items.iter().map(get).collect()).await;
        let read = |outcome: Outcome<u64>| match outcome {
            Outcome::Ended { buffer, result: Ok(_) } => {
                let mut bytes = [0; HEADER_BYTES];
                buffer.read_at(0, &mut bytes);
                read_header(&bytes)
            }
            _ => None,
        };
        outcomes.into_iter().map(read).collect()
    }

    fn allocate(&self, len: u64) -> Result<u64, Raised> {
        let (address, evicted) = self.pool().allocate(len).map_err(|refused| match refused {
            Refused::Full => Raised("the pool is full"),
            Refused::Unexpected(raised) => raised,
        })?;
        remove(&self.env, evicted);
        Ok(address)
    }

    /// Copies a block to the device, within the step.
    async fn copy_in(&self, spec: TensorSpec, address: u64) -> SimTensor {
        let now = self.env.clock().now();
        let done = self.env.device().copied_at(Direction::In, now, spec.bytes());
        self.env.clock().sleep_until(done).await;
        SimTensor::new(spec, self.memory.read(address, spec.bytes()).into(), Time::ZERO)
    }

    fn pool(&self) -> MutexGuard<'_, FifoPool> {
        self.pool.lock().expect("no panic while held")
    }
}
