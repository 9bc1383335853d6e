//! Looks at the world between two steps: the store's history, the pools, the counters.
//!
//! The store's own account of what came and went is what durability is judged by, so it is read after every
//! step. Pools are looked at every few steps, those in which nothing has happened since the last look left out,
//! and all of them when a phase ends. At rest every byte of free memory is looked at, too: until then the pool
//! itself looks at what it gives out.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use springtide::{
    connector::{LoadCounters, SaveCounters},
    env::Time,
    pool::{UNIT_HEADER, Usage},
};

use super::host::World;
use crate::{
    event::Event,
    hosts::instance::Registered,
    subjects::{SchedulerSide, WorkerSide},
};

/// Time between two looks at the pools.
const POOLS_EVERY: Duration = Duration::from_millis(50);

/// How closely pools are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// In passing: those in which something has happened.
    Passing,
    /// Each with everything that is allocated.
    Closely,
    /// And with every byte that is free.
    ToTheByte,
}

/// The observer of a run.
pub struct Observer {
    world: Arc<World>,
    /// Bytes in flight that the plan allows.
    in_flight_max: u64,
    pools_due: Time,
    /// The accounts of each pool at the last look.
    seen: BTreeMap<(String, &'static str), Usage>,
}

impl Observer {
    /// The observer of `world`.
    pub fn new(world: Arc<World>) -> Self {
        let rows = world.plan.items().values().copied().max().unwrap_or(0);
        let largest = world.spec(rows).bytes() + UNIT_HEADER;
        // A single item above the limit goes alone.
        let in_flight_max = world.plan.connector.in_flight_bytes_max.max(largest);
        Self { world, in_flight_max, pools_due: Time::ZERO, seen: BTreeMap::new() }
    }

    /// When the pools are to be looked at next.
    pub fn next(&self) -> Time {
        self.pools_due
    }

    /// Looks after a step.
    pub fn look(&mut self, now: Time) {
        self.world.read_history();
        if now >= self.pools_due {
            self.pools_due = now + POOLS_EVERY;
            self.look_at_pools(now, Look::Passing);
        }
    }

    /// Reports the limits of the configuration, kept or not.
    pub fn look_at_bounds(&self, now: Time) {
        for (host, instance) in self.world.instances().iter() {
            for bound in self.bounds(instance) {
                self.world.recorder.record(now, host, bound);
            }
        }
    }

    /// Reports what must not be there when everything has come to rest.
    pub fn at_rest(&self, now: Time) {
        for (host, instance) in self.world.instances().iter() {
            let closed = instance.closed.lock().expect("no panic while held");
            let abandoned = closed.iter().map(|report| report.abandoned).sum();
            for (_, pool) in instance.pools() {
                let usage = Box::new(pool.usage());
                self.world.recorder.record(now, host, Event::AtRest { usage, abandoned });
            }
            // Counters that a subject does not keep are not held against it.
            if self.world.plan.subject.is_springtide() {
                self.world.recorder.record(now, host, counted(instance, abandoned == 0));
            }
        }
    }

    /// Looks at the pools and limits of every instance.
    pub fn look_at_pools(&mut self, now: Time, look: Look) {
        let closely = look != Look::Passing;
        for (host, instance) in self.world.instances().iter() {
            for (owner, pool) in instance.pools() {
                let usage = pool.usage();
                let before = self.seen.insert((host.clone(), owner), usage.clone());
                if !closely && before.as_ref() == Some(&usage) {
                    continue;
                }
                let mut verified = pool.verify();
                if look == Look::ToTheByte && verified.is_ok() {
                    verified = pool.scrub();
                }
                let verified = verified.map_err(|corruption| corruption.to_string());
                let usage = Box::new(if closely { pool.usage() } else { usage });
                let counters = &usage.counters;
                if counters.evictions > before.map_or(0, |before| before.counters.evictions) {
                    self.world.recorder.with(|recording| recording.coverage.evicted(now));
                }
                let found = counters.poison_violations + counters.guard_violations > 0;
                if closely || found || verified.is_err() {
                    self.world.recorder.record(now, host, Event::PoolSeen { usage, verified });
                }
            }
            let exceeded =
                |bound: &Event| matches!(bound, Event::Bound { limit, seen, .. } if seen > limit);
            for bound in self.bounds(instance).into_iter().filter(exceeded) {
                self.world.recorder.record(now, host, bound);
            }
        }
    }

    /// Limits of the configuration with what is seen of them now.
    fn bounds(&self, instance: &Registered) -> Vec<Event> {
        let (plan, in_flight) = (&self.world.plan, self.in_flight_max);
        let mut bounds = Vec::new();
        let mut bound = |what, limit, seen| bounds.push(Event::Bound { what, limit, seen });
        let worker = instance.workers.first();
        if let Some(bytes) = worker.and_then(WorkerSide::in_flight_bytes) {
            bound("bytes in running puts", in_flight, bytes);
        }
        if let Some(saves) = worker.and_then(WorkerSide::counters) {
            // Tickets that join an upload add nothing to the queue.
            let (tickets, joined) = (saves.open, saves.joined);
            bound("open saves", u64::from(plan.connector.queue_items_max) + joined, tickets);
        }
        let scheduler = instance.scheduler.as_ref();
        if let Some(bytes) = scheduler.and_then(SchedulerSide::in_flight_bytes) {
            bound("bytes in running gets", in_flight, bytes);
        }
        bounds
    }
}

/// The connector's counters against what was counted from outside.
fn counted(instance: &Registered, all_ended: bool) -> Event {
    let (saves, loads) = instance.counters();
    let own = saves.check().and_then(|()| loads.check());
    let own = own.and_then(|()| timed(instance, all_ended));
    let own = own.and_then(|()| instance.check_links());
    let tally = |pick: fn(&super::store::Tally) -> u64| -> u64 {
        instance.tallies.iter().map(|tally| pick(tally)).sum()
    };
    let tickets = instance.tickets.load(std::sync::atomic::Ordering::Relaxed);
    let mut pairs = vec![
        ("tickets", saves.opened, tickets),
        ("puts", saves.puts, tally(|t| load(&t.puts))),
        ("put bytes", saves.put_bytes, tally(|t| load(&t.put_bytes))),
        ("size calls", loads.sizes, tally(|t| load(&t.sizes))),
    ];
    pairs.extend(at_rest(&saves, &loads));
    if all_ended {
        let puts = instance.workers.first().and_then(WorkerSide::in_flight_bytes);
        let gets = instance.scheduler.as_ref().and_then(SchedulerSide::in_flight_bytes);
        let (puts, gets) = (puts.unwrap_or_default(), gets.unwrap_or_default());
        pairs.extend([("bytes in puts", puts, 0), ("bytes in gets", gets, 0)]);
    }
    Event::Counted { own, pairs }
}

/// Stages that were timed, against the counters: once nothing is under way, each as often as it happened.
fn timed(instance: &Registered, all_ended: bool) -> Result<(), String> {
    instance.workers.iter().try_for_each(|worker| worker.check_times(all_ended))?;
    match &instance.scheduler {
        Some(scheduler) if all_ended => scheduler.check_times(),
        _ => Ok(()),
    }
}

/// What is zero at rest.
fn at_rest(saves: &SaveCounters, loads: &LoadCounters) -> [(&'static str, u64, u64); 3] {
    [
        ("open tickets", saves.open, 0),
        ("waiting items", loads.waiting, 0),
        ("open orders", loads.orders - loads.acknowledged, 0),
    ]
}

fn load(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(std::sync::atomic::Ordering::Relaxed)
}
