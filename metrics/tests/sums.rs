//! Which counters are held to others, and why the rest is not.
//!
//! The simulator runs the checks of `SaveCounters`, `LoadCounters`, their times and the pool on every instance of
//! every run, and compares some counters with what it counts itself at the store. Here each metric of the
//! catalogue stands once: with what would be noticed if it were wrong, or with the reason why nothing would.

use std::collections::BTreeSet;

use springtide::{
    connector::{DeliveryCounters, LoadCounters, SaveCounters},
    pool::{Counters, Usage},
};
use springtide_metrics::{Loads, Saves, Snapshot, catalogue};

/// Compared with what the simulator counts (`sim/src/world/observer.rs`).
const COUNTED_OUTSIDE: [&str; 4] = [
    "springtide_put_bytes",
    "springtide_size_keys",
    "springtide_in_flight_bytes",
    "springtide_orders_open",
];

/// Held to nothing, with the reason.
const ALONE: [(&str, &str); 25] = [
    ("springtide_info", "says what runs"),
    ("springtide_hook_errors", "counts outside of the connector; the plug-in's tests compare it"),
    (
        "springtide_log_suppressed",
        "counts outside of the connector; the plug-in's tests compare it",
    ),
    ("springtide_log_lost", "counts outside of the connector"),
    ("springtide_get_bytes", "what a get asks for, whose lengths the simulator checks itself"),
    ("springtide_load_errors", "an error may be of a get, a lookup or a size call"),
    ("springtide_load_retries", "a retry may be of any call"),
    ("springtide_delivery_bytes", "the bench compares it with the bytes that were put"),
    ("springtide_requests", "the engine's requests, which the simulator ends itself"),
    ("springtide_keys_open", "a level; bounded by loads.keys_max"),
    ("springtide_residents", "a level; the pool's own verification counts residents"),
    ("springtide_pool_pinned_bytes", "part of the resident bytes, which the pool asserts itself"),
    ("springtide_pool_waste_bytes", "the pool's own verification recomputes it"),
    ("springtide_pool_largest_free_bytes", "the pool's own verification recomputes it"),
    ("springtide_pool_peak_bytes", "the past is not there any more"),
    ("springtide_pool_refused", "refusals leave nothing behind"),
    ("springtide_pool_published", "the memory may have gone since"),
    ("springtide_pool_evictions", "the memory may be somebody else's since"),
    ("springtide_pool_reclaimed", "the memory may be somebody else's since"),
    ("springtide_pool_discarded", "the memory may be somebody else's since"),
    ("springtide_pool_stale_handles", "the simulator reports every stale handle that is honoured"),
    ("springtide_pool_quarantined", "the simulator holds quarantined bytes to their causes"),
    ("springtide_pool_violations", "the simulator ends at the first"),
    (
        "springtide_store_came_up",
        "the link stands outside of the connector; its own tests compare it",
    ),
    ("springtide_store_attempts_failed", "as springtide_store_came_up"),
];

/// As above, of the link.
const OF_THE_LINK: [&str; 4] = [
    "springtide_store_up",
    "springtide_store_state",
    "springtide_store_went_down",
    "springtide_store_refused",
];

type Wrong = (&'static str, fn(&mut Process));

/// What a process has counted.
struct Process {
    saves: Saves,
    loads: Loads,
    pool: Usage,
    deliveries: DeliveryCounters,
}

impl Process {
    fn check(self) -> Result<(), String> {
        let Self { saves, loads, pool, deliveries } = self;
        let (saves, loads, pool) = (Some(saves), Some(loads), Some(pool));
        let deliveries = Some(deliveries);
        Snapshot { saves, loads, pool, deliveries, ..Snapshot::default() }.check_at_rest()
    }
}

/// A change of each counter that is held to others, which its check must notice.
const HELD: [Wrong; 30] = [
    ("springtide_saves_opened", |at| at.saves.counters.opened += 1),
    ("springtide_saves", |at| at.saves.counters.stored += 1),
    ("springtide_saves_open", |at| at.saves.counters.open += 1),
    ("springtide_saves_joined", |at| at.saves.counters.joined = 100),
    ("springtide_saves_reused", |at| at.saves.counters.reused = 100),
    ("springtide_saves_late", |at| at.saves.counters.late = 100),
    ("springtide_saves_unreported", |at| at.saves.counters.unreported = 100),
    ("springtide_puts", |at| at.saves.counters.puts = 0),
    ("springtide_put_retries", |at| at.saves.counters.retries = 100),
    ("springtide_puts_uncertain", |at| at.saves.counters.uncertain = 100),
    ("springtide_puts_lost", |at| at.saves.counters.lost = 100),
    ("springtide_probes", |at| at.saves.counters.probes = 0),
    ("springtide_probes_invisible", |at| at.saves.counters.invisible = 100),
    ("springtide_lookups_started", |at| at.loads.counters.lookups += 1),
    ("springtide_lookups", |at| at.loads.counters.hits += 1),
    ("springtide_lookups_waiting", |at| at.loads.counters.waiting += 1),
    ("springtide_exists_keys", |at| at.loads.counters.exists += 1),
    ("springtide_gets", |at| at.loads.counters.gets += 1),
    ("springtide_gets_no_room", |at| at.loads.counters.no_room += 1),
    ("springtide_loaded", |at| at.loads.counters.loaded += 1),
    ("springtide_rejected", |at| _ = at.loads.counters.rejected.insert("magic".into(), 100)),
    ("springtide_removed", |at| at.loads.counters.removed = 100),
    ("springtide_gets_uncertain", |at| at.loads.counters.uncertain = 100),
    ("springtide_gets_lost", |at| at.loads.counters.lost = 100),
    ("springtide_orders", |at| at.loads.counters.orders = 100),
    ("springtide_orders_acknowledged", |at| at.loads.counters.acknowledged = 100),
    ("springtide_deliveries", |at| at.deliveries.delivered += 1),
    ("springtide_pool_bytes", |at| at.pool.free += 1),
    ("springtide_pool_allocations", |at| at.pool.allocations += 1),
    ("springtide_pool_freed", |at| at.pool.counters.freed += 1),
];

/// Held by the same sums as those above.
const WITH_THEM: [&str; 3] =
    ["springtide_pool_size_bytes", "springtide_pool_allocated", "springtide_stage_seconds"];

/// A process at rest: five saves, of which one joined and one took what lay in the pool; four lookups.
fn at_rest() -> Process {
    let counters = SaveCounters {
        opened: 5,
        stored: 4,
        timed_out: 1,
        joined: 1,
        reused: 1,
        puts: 4,
        retries: 1,
        probes: 4,
        invisible: 1,
        ..SaveCounters::default()
    };
    let mut saves = Saves { counters, ..Saves::default() };
    let counters = LoadCounters {
        lookups: 4,
        hits: 3,
        resident_hits: 1,
        misses: [("absent".to_owned(), 1)].into(),
        exists: 3,
        sizes: 1,
        gets: 3,
        no_room: 1,
        loaded: 2,
        orders: 3,
        acknowledged: 3,
        ..LoadCounters::default()
    };
    let mut loads = Loads { counters, ..Loads::default() };
    let took = std::time::Duration::from_millis(1);
    let times = &mut saves.times;
    for (stage, count) in [
        (&mut times.copy, 3),
        (&mut times.queue, 4),
        (&mut times.put, 4),
        (&mut times.probe, 4),
        (&mut times.save, 4),
    ] {
        (0..count).for_each(|_| stage.record(took));
    }
    let times = &mut loads.times;
    for (stage, count) in [
        (&mut times.lookup, 3),
        (&mut times.get, 2),
        (&mut times.validate, 2),
        (&mut times.load, 2),
    ] {
        (0..count).for_each(|_| stage.record(took));
    }
    let mut deliveries = DeliveryCounters { delivered: 1, ..DeliveryCounters::default() };
    deliveries.copy_in.record(took);
    let counters = Counters { allocated: 3, freed: 1, ..Counters::default() };
    let pool =
        Usage { total: 8, free: 5, resident: 3, allocations: 2, counters, ..Usage::default() };
    Process { saves, loads, pool, deliveries }
}

#[test]
fn every_metric_is_held_to_something_or_has_a_reason() {
    let held = HELD.iter().map(|(name, _)| *name);
    let alone = ALONE.iter().map(|(name, _)| *name);
    let others = COUNTED_OUTSIDE.into_iter().chain(OF_THE_LINK).chain(WITH_THEM);
    let named: Vec<&str> = held.chain(alone).chain(others).collect();
    let once: BTreeSet<&str> = named.iter().copied().collect();
    assert_eq!(once.len(), named.len(), "a metric stands twice");
    let all: BTreeSet<&str> = catalogue::ALL.iter().map(|metric| metric.name).collect();
    let missing: Vec<_> = all.symmetric_difference(&once).collect();
    assert!(missing.is_empty(), "in the catalogue or here, and not in both: {missing:?}");
}

#[test]
fn a_counter_that_is_wrong_is_noticed() {
    assert_eq!(at_rest().check(), Ok(()));
    for (name, wrong) in HELD {
        let mut process = at_rest();
        wrong(&mut process);
        assert!(process.check().is_err(), "{name} may be anything");
    }
}
