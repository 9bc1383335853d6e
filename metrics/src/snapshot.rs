//! What one process has counted, at a moment.

use std::collections::BTreeMap;

use springtide::{
    backend::{LinkCounters, LinkState},
    connector::{
        DeliveryCounters, LoadCounters, LoadTimes, SaveCounters, SaveTimes, Scheduler,
        SchedulerGauges, Worker,
    },
    env::Env,
    pool::{Pool, Usage},
};

use crate::samples::{self, Sample, Value};

/// What one process has counted. Parts that it does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What runs.
    pub info: Option<Info>,
    /// What saving did.
    pub saves: Option<Saves>,
    /// What loading did.
    pub loads: Option<Loads>,
    /// What was copied to the device.
    pub deliveries: Option<DeliveryCounters>,
    /// Where the pool's bytes are.
    pub pool: Option<Usage>,
    /// The link to the store.
    pub store: Option<Store>,
    /// Hooks of the engine that failed, by name.
    pub hook_errors: BTreeMap<String, u64>,
    /// Lines of the log that were not written.
    pub log: Option<Log>,
}

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The program's version.
    pub version: String,
    /// Producer, consumer, or both.
    pub role: String,
    /// The fingerprint of the namespace.
    pub namespace: String,
}

/// Lines of the log that were not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Because too many of their kind came, by kind.
    pub suppressed: BTreeMap<String, u64>,
    /// Because they were not taken in time.
    pub lost: u64,
}

/// What saving did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saves {
    /// Its counters.
    pub counters: SaveCounters,
    /// How long its stages took.
    pub times: SaveTimes,
    /// Bytes in running puts.
    pub in_flight_bytes: u64,
    /// Items in the pool.
    pub residents: u64,
}

/// What loading did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Its counters.
    pub counters: LoadCounters,
    /// How long its stages took.
    pub times: LoadTimes,
    /// What is open.
    pub gauges: SchedulerGauges,
}

/// The link to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Whether calls reach it.
    pub state: LinkState,
    /// What happened to it.
    pub counters: LinkCounters,
}

impl Snapshot {
    /// What a worker has counted: of a producer's rank 0, its saves and its pool.
    pub fn of_worker<E: Env>(worker: &Worker<E>) -> Self {
        let saves = worker.pool().map(|_| Saves {
            counters: worker.counters(),
            times: worker.times(),
            in_flight_bytes: worker.in_flight_bytes(),
            residents: worker.residents() as u64,
        });
        let pool = worker.pool().map(Pool::usage);
        Self { saves, deliveries: worker.delivered(), pool, ..Self::default() }
    }

    /// What a scheduler has counted: of a consumer, its loads and its pool.
    pub fn of_scheduler<E: Env>(scheduler: &Scheduler<E>) -> Self {
        let loads = scheduler.pool().map(|_| Loads {
            counters: scheduler.counters(),
            times: scheduler.times(),
            gauges: scheduler.gauges(),
        });
        Self { loads, pool: scheduler.pool().map(Pool::usage), ..Self::default() }
    }

    /// The numbers under the names of the catalogue.
    pub fn samples(&self) -> Vec<Sample> {
        samples::of(self)
    }

    /// The counters by the names of their series.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let count = |sample: &Sample| match sample.value {
            Value::Count(count) => Some((sample.series(), count)),
            Value::Level(_) | Value::Times(_) => None,
        };
        self.samples().iter().filter_map(count).collect()
    }

    /// Whether the counters add up.
    ///
    /// # Errors
    /// The sum that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.saves.as_ref().map_or(Ok(()), |saves| saves.counters.check())?;
        self.loads.as_ref().map_or(Ok(()), |loads| loads.counters.check())?;
        self.deliveries.as_ref().map_or(Ok(()), DeliveryCounters::check)?;
        self.pool.as_ref().map_or(Ok(()), check_pool)
    }

    /// Whether the numbers of timed stages agree with the counters, once nothing is under way.
    ///
    /// # Errors
    /// The stage that does not, in words.
    pub fn check_at_rest(&self) -> Result<(), String> {
        self.check()?;
        self.saves.as_ref().map_or(Ok(()), |saves| saves.times.check(&saves.counters))?;
        self.loads.as_ref().map_or(Ok(()), |loads| loads.times.check(&loads.counters))
    }
}

/// Whether the accounts of a pool add up.
fn check_pool(usage: &Usage) -> Result<(), String> {
    let Usage { total, free, filling, in_flight, resident, quarantined, counters, .. } = usage;
    let used = filling + in_flight + resident + quarantined;
    let (ended, made) = (counters.freed + usage.allocations, counters.allocated);
    match (free + used == *total, ended == made) {
        (false, _) => Err(format!("free {free} + used {used} != size of the pool {total}")),
        (_, false) => Err(format!("freed and existing allocations {ended} != allocated {made}")),
        _ => Ok(()),
    }
}
