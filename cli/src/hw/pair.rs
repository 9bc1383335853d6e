//! A producer and a consumer over a store: items are saved, waited for, loaded and compared byte by byte.

use std::{
    hash::{BuildHasher, RandomState},
    thread,
    time::Duration,
};

use springtide::{
    connector::{
        Availability, Config, ItemRequest, LoadConfig, LoadTarget, Namespace, NamespaceParts, Role,
        SaveConfig, SaveOutcome, Scheduler, Worker,
    },
    env::{Clock, DType, Device, Env, Store, TensorSpec},
    pool::PoolConfig,
    runtime::{Runtime, TokioClock},
};
use tokio::runtime::Handle;

use super::{
    report::{Figures, Outcome},
    tensors::Tensors,
};
use crate::{
    args::HwArgs,
    failure::Failure,
    stores::{Joining, Target},
};

/// Longer than any step that goes well.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two scheduling passes of an engine that has nothing else to do.
const PASS: Duration = Duration::from_micros(50);
/// Bytes of a row.
const ROW_BYTES: u64 = 1024;
/// Item sizes of a short look.
const SIZES: [u64; 3] = [1 << 20, 8 << 20, 32 << 20];
const ITEM_TRAFFIC: u64 = 8 << 20;

/// What all pairs have.
pub(super) struct Pairs<'a> {
    pub(super) arguments: &'a HwArgs,
    pub(super) handle: &'a Handle,
    pub(super) clock: TokioClock,
}

impl Pairs<'_> {
    /// Some items of each size.
    pub(super) async fn items<T: Target, M: Tensors>(
        &self,
        on: Result<(&T, &M), String>,
    ) -> Outcome {
        let (target, tensors) = match on {
            Ok(on) => on,
            Err(reason) => return Outcome::NotRun { reason },
        };
        let mut figures = Vec::new();
        for bytes in SIZES {
            match self.moved(target, tensors, bytes, self.arguments.rounds.into()).await {
                Ok(rows) => figures.extend(rows),
                Err(failure) => return Outcome::Failed { why: failure.to_string() },
            }
        }
        Outcome::Passed { figures }
    }

    /// As many items as the arguments ask for bytes.
    pub(super) async fn traffic<T: Target, M: Tensors>(
        &self,
        on: Result<(&T, &M), String>,
    ) -> Outcome {
        let (target, tensors) = match on {
            Ok(on) => on,
            Err(reason) => return Outcome::NotRun { reason },
        };
        let items = self.arguments.bytes.div_ceil(ITEM_TRAFFIC);
        match self.moved(target, tensors, ITEM_TRAFFIC, items).await {
            Ok(figures) => Outcome::Passed { figures },
            Err(failure) => Outcome::Failed { why: failure.to_string() },
        }
    }

    async fn moved<T: Target, M: Tensors>(
        &self,
        target: &T,
        tensors: &M,
        bytes: u64,
        items: u64,
    ) -> Result<Vec<Figures>, Failure> {
        let pair = Pair::open(self, target, tensors, bytes).await?;
        let (mut saves, mut loads) = (Vec::new(), Vec::new());
        for item in 0..items {
            let (save, load) = pair.item(item).await?;
            saves.push(save);
            loads.push(load);
        }
        pair.close().await?;
        Ok(vec![Figures::new("save, wait", bytes, saves), Figures::new("load", bytes, loads)])
    }
}

type World<T, M> = Runtime<<T as Target>::Store, <M as Tensors>::Device>;

/// Both instances, each with a client of its own.
struct Pair<'a, T: Target, M: Tensors> {
    target: &'a T,
    tensors: &'a M,
    clock: TokioClock,
    namespace: Namespace,
    spec: TensorSpec,
    producer: World<T, M>,
    worker: Worker<World<T, M>>,
    scheduler: Scheduler<World<T, M>>,
    loader: Worker<World<T, M>>,
    run: String,
}

impl<'a, T: Target, M: Tensors> Pair<'a, T, M> {
    async fn open(
        pairs: &Pairs<'_>,
        target: &'a T,
        tensors: &'a M,
        bytes: u64,
    ) -> Result<Self, Failure> {
        let config = config(bytes);
        let joining = Joining { region_bytes: config.pool.bytes, data_threads: 2 };
        let device = tensors.device()?;
        let world = async || {
            let store = target.join(joining, pairs.clock).await?;
            Ok::<_, Failure>(Runtime::new(pairs.handle.clone(), pairs.clock, store, device.clone()))
        };
        let (producer, consumer) = (world().await?, world().await?);
        let role = |role| Config { role, ..config.clone() };
        let worker = Worker::start(producer.clone(), role(Role::Producer), None).await;
        let worker = worker.map_err(Failure::failed)?;
        let scheduler = Scheduler::start(consumer.clone(), role(Role::Consumer)).await;
        let scheduler = scheduler.map_err(Failure::failed)?;
        let mapper = scheduler.mapper();
        let loader = Worker::start(consumer.clone(), role(Role::Consumer), mapper).await;
        let loader = loader.map_err(Failure::failed)?;
        for pool in [worker.pool(), scheduler.pool()].into_iter().flatten() {
            tensors.lock(&device, pool.region())?;
        }
        let namespace = Namespace::new(&config.namespace);
        let spec = namespace.spec(bytes / ROW_BYTES).map_err(Failure::failed)?;
        let run = format!("{:016x}", RandomState::new().hash_one(0));
        let clock = pairs.clock;
        Ok(Self {
            target,
            tensors,
            clock,
            namespace,
            spec,
            producer,
            worker,
            scheduler,
            loader,
            run,
        })
    }

    /// Saves an item, loads it, compares it and removes it; how long the first two took.
    async fn item(&self, item: u64) -> Result<(Duration, Duration), Failure> {
        let bytes = content(item, self.spec.bytes());
        let source = self.tensors.tensor(self.spec, &bytes)?;
        let identifier = format!("hw-{}-{item}", self.run);
        let save = self.save(&identifier, source).await?;
        let (load, target) = self.load(&identifier).await?;
        let got = self.tensors.read(&target)?;
        if let Some(at) = bytes.iter().zip(&got).position(|(expected, got)| expected != got) {
            let (expected, got) = (bytes[at], got[at]);
            return Err(Failure::failed(format!(
                "item {item}: byte {at} was loaded as {got}, expected {expected}"
            )));
        }
        let key = self.namespace.key(&identifier);
        let removed = self.producer.store().remove(key, true).await;
        removed.map_err(|error| Failure::failed(format!("remove of item {item}: {error}")))?;
        Ok((save, load))
    }

    async fn save(
        &self,
        identifier: &str,
        source: <M::Device as Device>::Tensor,
    ) -> Result<Duration, Failure> {
        let started = self.clock.now();
        self.worker.save(identifier, source, self.tensors.event()?);
        let report = self.worker.wait_for_save(started + LIMIT).await;
        let took = self.clock.now() - started;
        match report.entries.iter().all(|entry| entry.outcome == SaveOutcome::Stored) {
            true if report.entries.len() == 1 => Ok(took),
            _ => Err(Failure::failed(format!(
                "save: {report}, expected 1 stored. {}",
                self.target.no_room()
            ))),
        }
    }

    async fn load(
        &self,
        identifier: &str,
    ) -> Result<(Duration, <M::Device as Device>::Tensor), Failure> {
        let zeros = vec![0; self.spec.bytes() as usize];
        let tensor = self.tensors.tensor(self.spec, &zeros)?;
        let rows = self.spec.bytes() / ROW_BYTES;
        let items = [ItemRequest { identifier: identifier.to_owned(), rows }];
        let started = self.clock.now();
        while self.scheduler.ensure_available(identifier, &items) == Availability::Wait {
            #[expect(
                clippy::disallowed_methods,
                reason = "this thread is the engine, in real time"
            )]
            thread::sleep(PASS);
        }
        if !self.scheduler.has_item(identifier) {
            let why = self.scheduler.decision(identifier, identifier);
            return Err(Failure::failed(format!(
                "load of {identifier}: {why:?}, expected the item"
            )));
        }
        self.scheduler.allocated(identifier, identifier);
        let mut targets = Vec::new();
        for order in self.scheduler.build_step(&[]).orders {
            let (tensor, free) = (tensor.clone(), self.tensors.event()?);
            targets.push(LoadTarget { order, tensor, free });
        }
        let mut delivered = Vec::new();
        for delivery in self.loader.load(targets).await {
            delivery.result.map_err(|error| Failure::failed(format!("copy: {error}")))?;
            delivered.push(delivery.order);
        }
        let took = self.clock.now() - started;
        if delivered.len() != 1 {
            let text = format!("load: {} orders, expected 1", delivered.len());
            return Err(Failure::failed(text));
        }
        self.scheduler.acknowledge(0, &delivered);
        self.scheduler.request_finished(identifier);
        self.scheduler.build_step(&[identifier.to_owned()]);
        Ok((took, tensor))
    }

    async fn close(self) -> Result<(), Failure> {
        let deadline = self.clock.now() + LIMIT;
        for report in [self.worker.close(deadline).await, self.scheduler.close(deadline).await] {
            if report.leaked_bytes > 0 {
                let text = format!("an instance did not end within {LIMIT:?}: {report:?}");
                return Err(Failure::failed(text));
            }
        }
        Ok(())
    }
}

fn config(bytes: u64) -> Config {
    let namespace = NamespaceParts {
        model: "springtide hw".into(),
        dtype: DType::U8,
        width: ROW_BYTES,
        ..NamespaceParts::default()
    };
    Config {
        namespace,
        pool: PoolConfig::with_bytes(4 * bytes + (4 << 20)),
        saves: SaveConfig { deadline: LIMIT, ..SaveConfig::default() },
        loads: LoadConfig { deadline: LIMIT, ..LoadConfig::default() },
        ..Config::default()
    }
}

/// An item's bytes: other ones for each, and none that follows from its neighbour.
pub(super) fn content(item: u64, len: u64) -> Vec<u8> {
    let mut state = item;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).to_le_bytes()
    });
    words.take(len as usize).collect()
}
