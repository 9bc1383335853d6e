//! The hosts of a small world: a production connector each, the calls that its engine makes, and what must
//! hold after every step.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use springtide::{
    connector::{
        Availability, CloseReport, Config, ItemRequest, LoadConfig, LoadTarget, Namespace,
        NamespaceParts, Role, SaveConfig, SaveReport, Scheduler, Worker,
    },
    env::{Clock, DType, Time},
    pool::{Pool, PoolConfig, UNIT_HEADER},
};

use super::{
    env::{HandEnv, Row, WIDTH, spec},
    executor::lock,
};
use crate::oracle::{Illegal, OracleId};

/// Payload of a unit, and of every item.
const PAYLOAD: u64 = 2 * WIDTH;

/// What an engine does to its connector. A host's calls come in their order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// Saves an item.
    Save(&'static str),
    /// Waits for the saves, for so many milliseconds.
    Wait(u64),
    /// Shuts the connector down within so many milliseconds.
    Close(u64),
    /// Asks for an item on behalf of a request.
    Ask(&'static str, &'static str),
    /// Loads what the request was promised, and ends the request; gives it up if nothing is decided.
    Take(&'static str, &'static str),
}

/// Something that has to end by a time.
struct Due<T> {
    what: &'static str,
    deadline: Time,
    slot: Arc<Mutex<Option<T>>>,
}

/// A host.
pub(super) struct Host {
    env: HandEnv,
    namespace: Namespace,
    calls: &'static [Call],
    made: usize,
    worker: Worker<HandEnv>,
    /// On a consumer.
    scheduler: Option<Scheduler<HandEnv>>,
    waits: Vec<Due<SaveReport>>,
    closes: Vec<Due<CloseReport>>,
    /// Entries of reports that have been looked at.
    seen: usize,
}

impl Host {
    /// A host whose pool has room for `units` items.
    pub(super) fn start(env: HandEnv, role: Role, units: u64, calls: &'static [Call]) -> Self {
        let config = config(role, units);
        let namespace = Namespace::new(&config.namespace);
        let scheduler = (role != Role::Producer).then(|| {
            let start = Scheduler::start(env.clone(), config.clone());
            done(&env, start).and_then(Result::ok).expect("a scheduler starts")
        });
        let mapper = scheduler.as_ref().and_then(Scheduler::mapper);
        let start = Worker::start(env.clone(), config, mapper);
        let worker = done(&env, start).and_then(Result::ok).expect("a worker starts");
        let (made, seen, waits, closes) = Default::default();
        Self { env, namespace, calls, made, worker, scheduler, waits, closes, seen }
    }

    /// How many calls it has made.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// The call that comes next.
    pub(super) fn next(&self) -> Option<Call> {
        self.calls.get(self.made).copied()
    }

    /// Makes the next call.
    ///
    /// # Errors
    /// [`Illegal`] when what it promised was not kept.
    pub(super) fn call(&mut self) -> Result<(), Illegal> {
        let Some(call) = self.next() else { return Ok(()) };
        self.made += 1;
        let deadline = |env: &HandEnv, ms| env.clock.now() + Duration::from_millis(ms);
        match call {
            Call::Save(item) => drop(self.worker.save(item, Row::of(item), ())),
            Call::Wait(ms) => {
                let (worker, deadline) = (self.worker.clone(), deadline(&self.env, ms));
                let slot = begin(&self.env, async move { worker.wait_for_save(deadline).await });
                self.waits.push(Due { what: "wait_for_save", deadline, slot });
            }
            Call::Close(ms) => {
                let (worker, deadline) = (self.worker.clone(), deadline(&self.env, ms));
                let slot = begin(&self.env, async move { worker.close(deadline).await });
                self.closes.push(Due { what: "close", deadline, slot });
            }
            Call::Ask(request, item) => {
                let items = [item_request(item)];
                self.scheduler.as_ref().map(|s| s.ensure_available(request, &items));
            }
            Call::Take(request, item) => return self.take(request, item),
        }
        Ok(())
    }

    fn take(&self, request: &str, item: &str) -> Result<(), Illegal> {
        let Some(scheduler) = &self.scheduler else { return Ok(()) };
        let available = scheduler.ensure_available(request, &[item_request(item)]);
        if available == Availability::Ready && scheduler.has_item(item) {
            scheduler.allocated(request, item);
            let plan = scheduler.build_step(&[]);
            let rows: Vec<Row> = plan.orders.iter().map(|_| Row::of("?")).collect();
            let targets = plan.orders.iter().zip(&rows).map(|(order, row)| LoadTarget {
                order: order.clone(),
                tensor: row.clone(),
                free: (),
            });
            let (worker, targets) = (self.worker.clone(), targets.collect());
            let deliveries = done(&self.env, async move { worker.load(targets).await });
            for (delivery, row) in deliveries.into_iter().flatten().zip(&rows) {
                if let Err(error) = delivery.result {
                    let what =
                        format!("{item} was promised to {request} and is not there: {error}");
                    return Err(Illegal::new(OracleId::I8, what));
                }
                if row.bytes() != Row::of(item).bytes() {
                    let what = format!("{item} was delivered to {request} with other bytes");
                    return Err(Illegal::new(OracleId::I2, what));
                }
                scheduler.acknowledge(0, &[delivery.order]);
            }
        }
        scheduler.request_finished(request);
        // The engine keeps nothing: what is asked for again is loaded again.
        scheduler.build_step(&[item.to_owned()]);
        Ok(())
    }

    /// What must hold after every step; `stored` tells whether the store has an object.
    ///
    /// # Errors
    /// [`Illegal`] for the first thing that does not.
    pub(super) fn check(&mut self, stored: impl Fn(&str) -> bool) -> Result<(), Illegal> {
        let now = self.env.clock.now();
        for pool in self.pools() {
            if let Err(corruption) = pool.verify().and_then(|()| pool.scrub()) {
                return Err(Illegal::new(OracleId::I3, corruption.to_string()));
            }
        }
        overdue(now, &self.waits)?;
        overdue(now, &self.closes)?;
        let reports = self.waits.iter().filter_map(|wait| lock(&wait.slot).clone());
        let entries: Vec<_> = reports.flat_map(|report| report.entries).collect();
        for entry in entries.iter().skip(self.seen) {
            if entry.outcome.is_readable() && !stored(entry.key.as_str()) {
                let what = format!("{} is reported as {}, and is not", entry.key, entry.outcome);
                return Err(Illegal::new(OracleId::I1, what));
            }
        }
        self.seen = entries.len();
        Ok(())
    }

    /// What must hold when everything has ended.
    ///
    /// # Errors
    /// [`Illegal`] for the first thing that does not.
    pub(super) fn check_rest(&self) -> Result<(), Illegal> {
        // What a shutdown has given up keeps what it owns.
        let reports = self.closes.iter().filter_map(|close| *lock(&close.slot));
        let abandoned: usize = reports.map(|report| report.abandoned).sum();
        for pool in self.pools().iter().filter(|_| abandoned == 0) {
            let usage = pool.usage();
            for (what, bytes) in [
                ("pinned", usage.pinned),
                ("filling", usage.filling),
                ("in flight", usage.in_flight),
            ] {
                if bytes > 0 {
                    let what = format!("{bytes} bytes are {what} at rest");
                    return Err(Illegal::new(OracleId::I4, what));
                }
            }
        }
        let saves = self.worker.counters();
        let loads = self.scheduler.as_ref().map(Scheduler::counters).unwrap_or_default();
        let sums = saves.check().and_then(|()| loads.check());
        sums.map_err(|sum| Illegal::new(OracleId::I7, sum))?;
        let open = saves.open + loads.waiting + (loads.orders - loads.acknowledged);
        let in_flight = if abandoned == 0 { self.worker.in_flight_bytes() } else { 0 };
        if open + in_flight > 0 {
            let what = format!("{open} saves, lookups or orders, and {in_flight} bytes are open");
            return Err(Illegal::new(OracleId::I7, what));
        }
        Ok(())
    }

    /// Everything that tells two states of it apart.
    pub(super) fn describe(&self) -> String {
        let pools: Vec<_> = self.pools().iter().map(Pool::usage).collect();
        let gauges = self.scheduler.as_ref().map(Scheduler::gauges);
        let loads = self.scheduler.as_ref().map(Scheduler::counters);
        let ended = self.waits.iter().filter(|wait| lock(&wait.slot).is_some()).count();
        let (made, saves) = (self.made, self.worker.counters());
        format!("{made} {ended} {pools:?} {saves:?} {loads:?} {gauges:?}")
    }

    /// The name of an item in the store.
    pub(super) fn key(&self, item: &str) -> springtide::env::Key {
        self.namespace.key(item)
    }

    fn pools(&self) -> Vec<Pool> {
        let scheduler = self.scheduler.as_ref().and_then(Scheduler::pool).cloned();
        scheduler.into_iter().chain(self.worker.pool().cloned()).collect()
    }
}

/// Runs a future beside everything else; its end goes into the slot.
fn begin<T: Send + 'static>(
    env: &HandEnv,
    future: impl Future<Output = T> + Send + 'static,
) -> Arc<Mutex<Option<T>>> {
    let slot = Arc::new(Mutex::new(None));
    let filled = Arc::clone(&slot);
    env.executor.spawn(Box::pin(async move {
        let end = future.await;
        *lock(&filled) = Some(end);
    }));
    slot
}

/// The end of a future that waits for nothing.
fn done<T: Send + 'static>(
    env: &HandEnv,
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let slot = begin(env, future);
    env.executor.run();
    lock(&slot).take()
}

fn overdue<T>(now: Time, due: &[Due<T>]) -> Result<(), Illegal> {
    let late = |due: &&Due<T>| due.deadline <= now && lock(&due.slot).is_none();
    due.iter().find(late).map_or(Ok(()), |due| {
        let what = format!("{}, due {}, has not returned at {now}", due.what, due.deadline);
        Err(Illegal::new(OracleId::I5, what))
    })
}

fn item_request(item: &str) -> ItemRequest {
    ItemRequest { identifier: item.to_owned(), rows: spec().shape.dims()[0] }
}

fn config(role: Role, units: u64) -> Config {
    let ms = Duration::from_millis;
    let namespace = NamespaceParts { dtype: DType::Bf16, width: WIDTH, ..Default::default() };
    let bytes = units * (PAYLOAD + UNIT_HEADER);
    Config {
        role,
        namespace,
        pool: PoolConfig {
            unit_payload: PAYLOAD as u32,
            quarantine_max: bytes,
            ..PoolConfig::with_bytes(bytes)
        },
        saves: SaveConfig {
            deadline: ms(100),
            batch_items_max: 1,
            retry_pause: ms(10),
            retry_pause_max: ms(10),
            attempts_max: 2,
            ..SaveConfig::default()
        },
        loads: LoadConfig {
            deadline: ms(60),
            absent_ttl: ms(10),
            failed_ttl: ms(20),
            retry_pause: ms(10),
            attempts_max: 2,
            batch_items_max: 1,
            ..LoadConfig::default()
        },
        io_timeout: ms(200),
        ..Config::default()
    }
}
