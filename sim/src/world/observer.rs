//! Looks at the world between two steps: the store's history, the pools, the counters.
//!
//! The store's own account of what came and went is what durability is judged by, so it is read after every
//! step. Pools are looked at every few steps, and thoroughly (every byte of free memory, the whole tree) when
//! a phase ends.

use std::{sync::Arc, time::Duration};

use springtide::{
    connector::{LoadCounters, SaveCounters},
    env::Time,
    pool::UNIT_HEADER,
};

use super::host::World;
use crate::{event::Event, hosts::instance::Registered};

/// Time between two looks at the pools.
const POOLS_EVERY: Duration = Duration::from_millis(50);

/// The observer of a run.
pub struct Observer {
    world: Arc<World>,
    pools_due: Time,
}

impl Observer {
    /// The observer of `world`.
    pub fn new(world: Arc<World>) -> Self {
        Self { world, pools_due: Time::ZERO }
    }

    /// Looks after a step.
    pub fn look(&mut self, now: Time) {
        self.world.read_history();
        if now >= self.pools_due {
            self.pools_due = now + POOLS_EVERY;
            self.look_at_pools(now, false);
        }
    }

    /// Looks at everything.
    pub fn look_closely(&mut self, now: Time) {
        self.look_at_pools(now, true);
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
            self.world.recorder.record(now, host, counted(instance));
        }
    }

    fn look_at_pools(&self, now: Time, closely: bool) {
        for (host, instance) in self.world.instances().iter() {
            for (_, pool) in instance.pools() {
                let mut verified = pool.verify();
                if closely && verified.is_ok() {
                    verified = pool.scrub();
                }
                let verified = verified.map_err(|corruption| corruption.to_string());
                let usage = Box::new(pool.usage());
                let counters = &usage.counters;
                let found = counters.poison_violations + counters.guard_violations > 0;
                if closely || found || verified.is_err() {
                    self.world.recorder.record(now, host, Event::PoolSeen { usage, verified });
                }
            }
            for bound in self.bounds(instance, closely) {
                self.world.recorder.record(now, host, bound);
            }
        }
    }

    /// Limits of the configuration; all of them, or only those that are exceeded.
    fn bounds(&self, instance: &Registered, all: bool) -> Vec<Event> {
        let plan = &self.world.plan;
        let rows = plan.items().values().copied().max().unwrap_or(0);
        let largest = self.world.spec(rows).bytes() + UNIT_HEADER;
        // A single item above the limit goes alone.
        let in_flight = plan.connector.in_flight_bytes_max.max(largest);
        let mut bounds = Vec::new();
        let mut bound = |what, limit, seen| {
            if all || seen > limit {
                bounds.push(Event::Bound { what, limit, seen });
            }
        };
        if let Some(worker) = instance.workers.first() {
            let tickets = worker.counters().open;
            bound("bytes in running puts", in_flight, worker.in_flight_bytes());
            // Tickets that join an upload add nothing to the queue.
            let joined = worker.counters().joined;
            bound("open saves", u64::from(plan.connector.queue_items_max) + joined, tickets);
        }
        if let Some(scheduler) = &instance.scheduler {
            bound("bytes in running gets", in_flight, scheduler.gauges().in_flight_bytes);
        }
        bounds
    }
}

/// The connector's counters against what was counted from outside.
fn counted(instance: &Registered) -> Event {
    let (saves, loads) = instance.counters();
    let own = saves.check().and_then(|()| loads.check());
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
    Event::Counted { own, pairs }
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
