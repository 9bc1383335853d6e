//! The two instances of a cell, each with a client of its own, and what they are made to do.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    hint::black_box,
    time::Duration,
};

use springtide::{
    connector::{
        Config, LoadConfig, Namespace, NamespaceParts, Role, SaveConfig, Scheduler, Worker,
    },
    env::{Clock, DType, Env, ErrorCode, Key, Store, TensorSpec},
    pool::{Contiguity, Lease, Pool, PoolConfig},
    runtime::{HostDevice, HostTensor, Runtime, TokioClock},
};
use springtide_metrics::Snapshot;
use tokio::runtime::Handle;

use super::{Cell, Counted, Taken, cpu_time, plan::ROW_BYTES, timed};
use crate::{
    failure::Failure,
    stores::{Joining, Target},
};

/// Longer than any step that goes well.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// Items of a pool, in items of a step: those of the raw calls, and two steps of the connector with the room
/// that scattered items need.
const POOL_STEPS: u64 = 4;

/// An instance: the connector's view of the world, on a store.
pub(super) type World<T> = Runtime<<T as Target>::Store>;

/// A cell's producer and consumer.
pub(super) struct Bed<'a, T: Target> {
    pub(super) target: &'a T,
    pub(super) cell: Cell,
    pub(super) clock: TokioClock,
    pub(super) handle: Handle,
    pub(super) namespace: Namespace,
    pub(super) producer: World<T>,
    pub(super) consumer: World<T>,
    pub(super) worker: Worker<World<T>>,
    pub(super) scheduler: Scheduler<World<T>>,
    pub(super) loader: Worker<World<T>>,
    /// What is saved, an item each, and where it is loaded to.
    pub(super) sources: Vec<HostTensor>,
    pub(super) targets: Vec<HostTensor>,
    /// Memory of the raw calls: part of the same pools, so registered alike.
    pub(super) put_leases: Vec<Lease>,
    pub(super) get_leases: Vec<Lease>,
    copies: (Vec<u8>, Vec<u8>),
    run: String,
    pub(super) round: u64,
    /// What is in the store.
    stored: VecDeque<Key>,
}

impl<'a, T: Target> Bed<'a, T> {
    /// Joins the store twice and starts both instances.
    pub(super) async fn open(
        target: &'a T,
        cell: &Cell,
        handle: &Handle,
        clock: TokioClock,
    ) -> Result<Self, Failure> {
        let config = config(cell);
        let joining =
            Joining { region_bytes: config.pool.bytes, data_threads: cell.concurrency.max(1) };
        let world = async || {
            let store = target.join(joining, clock).await?;
            Ok::<_, Failure>(Runtime::new(handle.clone(), clock, store, HostDevice))
        };
        let (producer, consumer) = (world().await?, world().await?);
        let role = |role| Config { role, ..config.clone() };
        let worker = Worker::start(producer.clone(), role(Role::Producer), None);
        let worker = worker.await.map_err(Failure::failed)?;
        let scheduler = Scheduler::start(consumer.clone(), role(Role::Consumer));
        let scheduler = scheduler.await.map_err(Failure::failed)?;
        let loader =
            Worker::start(consumer.clone(), role(Role::Consumer), scheduler.mapper()).await;
        let loader = loader.map_err(Failure::failed)?;
        let namespace = Namespace::new(&config.namespace);
        let spec = namespace.spec(cell.item_bytes / ROW_BYTES).map_err(Failure::failed)?;
        let contiguity = match producer.store().limits().buffers_per_object {
            1 => Contiguity::Required,
            _ => Contiguity::Extents,
        };
        let sources = (0..cell.items()).map(|item| tensor(spec, item as u64));
        let sources = sources.collect::<Result<_, _>>()?;
        Ok(Self {
            target,
            cell: cell.clone(),
            clock,
            handle: handle.clone(),
            namespace,
            put_leases: leases(worker.pool(), cell, contiguity, true)?,
            get_leases: leases(scheduler.pool(), cell, contiguity, false)?,
            producer,
            consumer,
            worker,
            scheduler,
            loader,
            sources,
            targets: (0..cell.items()).map(|_| HostTensor::zeros(spec)).collect(),
            copies: (vec![1; spec.bytes() as usize], vec![2; spec.bytes() as usize]),
            run: format!("{:016x}", RandomState::new().hash_one(0)),
            round: 0,
            stored: VecDeque::new(),
        })
    }

    /// Begins a round: its items have new names.
    pub(super) fn begin(&mut self, round: u64) {
        self.round = round;
    }

    /// Name of an item of this round.
    pub(super) fn identifier(&self, kind: &str, step: usize, item: usize) -> String {
        format!("bench-{}-{kind}-{}-{step}-{item}", self.run, self.round)
    }

    /// Key of an item of this round.
    pub(super) fn key(&self, kind: &str, step: usize, item: usize) -> Key {
        self.namespace.key(&self.identifier(kind, step, item))
    }

    /// What lies in the store now.
    pub(super) fn has_stored(&mut self, key: Key) {
        self.stored.push_back(key);
    }

    /// Copies as many bytes as a round moves.
    pub(super) fn memcpy(&mut self) -> Taken {
        let (from, to) = (&self.copies.0, &mut self.copies.1);
        let (copies, cpu) = (self.cell.items() * self.cell.steps, cpu_time());
        let each = (0..copies)
            .map(|_| timed(&self.clock, || black_box(&mut *to).copy_from_slice(black_box(from))).1);
        let each: Vec<Duration> = each.collect();
        Taken { total: each.iter().sum(), cpu: cpu_time() - cpu, each }
    }

    /// Takes everything of this round out of the store.
    pub(super) async fn clear(&mut self) -> Result<(), Failure> {
        while let Some(key) = self.stored.pop_front() {
            match self.producer.store().remove(key.clone(), true).await {
                Err(error) if error.code != ErrorCode::ObjectNotFound => {
                    return Err(Failure::failed(format!("remove of {key}: {error}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether what was loaded is what was saved.
    pub(super) fn compare(&self) -> Result<(), Failure> {
        let same =
            |(source, target): (&HostTensor, &HostTensor)| source.to_vec() == target.to_vec();
        match self.sources.iter().zip(&self.targets).position(|pair| !same(pair)) {
            None => Ok(()),
            Some(item) => {
                Err(Failure::failed(format!("item {item} was loaded with other bytes than saved")))
            }
        }
    }

    /// Ends both instances; what they have counted, which must add up.
    pub(super) async fn close(mut self) -> Result<Counted, Failure> {
        self.put_leases.clear();
        self.get_leases.clear();
        let deadline = self.clock.now() + LIMIT;
        for report in [self.worker.close(deadline).await, self.scheduler.close(deadline).await] {
            if report.leaked_bytes > 0 {
                let text = format!("an instance did not end within {LIMIT:?}: {report:?}");
                return Err(Failure::failed(text));
            }
        }
        let counted = |snapshot: Snapshot| match snapshot.check_at_rest() {
            Ok(()) => Ok(snapshot.counters()),
            Err(text) => Err(Failure::failed(format!("counters do not add up: {text}"))),
        };
        Ok(Counted {
            producer: counted(Snapshot::of_worker(&self.worker))?,
            scheduler: counted(Snapshot::of_scheduler(&self.scheduler))?,
            worker: counted(Snapshot::of_worker(&self.loader))?,
        })
    }
}

/// The connector of a cell: as much in flight and in a batch as the raw calls have.
fn config(cell: &Cell) -> Config {
    let in_flight_bytes_max = cell.object_bytes() * cell.items() as u64;
    let batch_bytes_max = cell.object_bytes() * cell.batch as u64;
    let namespace = NamespaceParts {
        model: "springtide bench".into(),
        dtype: DType::U8,
        width: ROW_BYTES,
        ..NamespaceParts::default()
    };
    Config {
        namespace,
        pool: PoolConfig::with_bytes(POOL_STEPS * in_flight_bytes_max + (4 << 20)),
        saves: SaveConfig {
            deadline: LIMIT,
            batch_bytes_max,
            batch_items_max: cell.batch,
            in_flight_bytes_max,
            ..SaveConfig::default()
        },
        loads: LoadConfig {
            deadline: LIMIT,
            batch_bytes_max,
            batch_items_max: cell.batch,
            in_flight_bytes_max,
            ..LoadConfig::default()
        },
        payload_checksum: cell.checksum,
        ..Config::default()
    }
}

/// Memory for the raw calls of a step, filled for puts.
fn leases(
    pool: Option<&Pool>,
    cell: &Cell,
    contiguity: Contiguity,
    filled: bool,
) -> Result<Vec<Lease>, Failure> {
    let pool = pool.ok_or_else(|| Failure::failed("an instance has no pool"))?;
    let bytes = vec![3; if filled { cell.object_bytes() as usize } else { 0 }];
    (0..cell.items())
        .map(|_| {
            let mut lease =
                pool.allocate(cell.object_bytes(), contiguity).map_err(Failure::failed)?;
            lease.write_at(0, &bytes);
            Ok(lease)
        })
        .collect()
}

/// An item's bytes: none of them follows from a neighbour by a rule that a store could use.
fn tensor(spec: TensorSpec, item: u64) -> Result<HostTensor, Failure> {
    let mut state = item;
    let words = (0..spec.bytes().div_ceil(8)).flat_map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).to_le_bytes()
    });
    HostTensor::new(spec, words.take(spec.bytes() as usize).collect()).map_err(Failure::failed)
}
