//! The text of what is counted: every metric of the catalogue, each number under its own name.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use springtide::{
    backend::{LinkCounters, LinkState},
    connector::{
        DeliveryCounters, LoadCounters, LoadTimes, SaveCounters, SaveTimes, SchedulerGauges,
    },
    durations::Durations,
    pool::{Counters, Usage},
};
use springtide_metrics::{Info, Loads, Log, Saves, Snapshot, Store, catalogue, text};

fn counts<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

fn saves() -> Saves {
    let counters = SaveCounters {
        opened: 101,
        open: 40,
        stored: 1,
        already_there: 2,
        dropped: counts([("pool_full", 3), ("wrong_spec", 4)]),
        failed: counts([("uncertain TRANSFER_FAIL (-800)", 5), ("not visible", 6)]),
        timed_out: 40,
        joined: 7,
        reused: 8,
        puts: 90,
        put_bytes: 10,
        retries: 11,
        probes: 91,
        invisible: 13,
        late: 14,
        uncertain: 15,
        lost: 16,
        unreported: 17,
    };
    let mut times = SaveTimes::default();
    times.copy.record(Duration::from_millis(7));
    Saves { counters, times, in_flight_bytes: 18, residents: 19 }
}

fn loads() -> Loads {
    let counters = LoadCounters {
        lookups: 200,
        hits: 50,
        resident_hits: 20,
        misses: counts([("absent", 60), ("rejected checksum", 40), ("RPC_FAIL (-900)", 30)]),
        waiting: 15,
        withdrawn: 5,
        exists: 21,
        sizes: 22,
        gets: 120,
        no_room: 19,
        get_bytes: 24,
        loaded: 25,
        rejected: counts([("checksum", 92)]),
        removed: 27,
        errors: counts([("RPC_FAIL (-900)", 28), ("UNKNOWN (-4242)", 29)]),
        retries: 30,
        uncertain: 31,
        lost: 32,
        evicted: 33,
        orders: 45,
        acknowledged: 35,
    };
    let gauges =
        SchedulerGauges { requests: 36, orders: 37, keys: 38, residents: 39, in_flight_bytes: 40 };
    Loads { counters, times: LoadTimes::default(), gauges }
}

fn pool() -> Usage {
    Usage {
        total: 150,
        free: 10,
        filling: 20,
        in_flight: 30,
        resident: 40,
        pinned: 35,
        quarantined: 50,
        waste: 3,
        largest_free: 4,
        allocations: 5,
        peak_used: 140,
        peak_in_flight: 31,
        peak_resident: 41,
        peak_quarantined: 51,
        counters: Counters {
            allocated: 60,
            freed: 55,
            no_bytes: 61,
            no_shape: 62,
            too_large: 63,
            quarantine_full: 64,
            published: 65,
            evictions: 66,
            reclaimed: 67,
            discarded: 68,
            stale_handles: 69,
            quarantined_abandoned: 70,
            quarantined_uncertain: 71,
            quarantined_timed_out: 72,
            poison_violations: 73,
            guard_violations: 74,
        },
    }
}

fn deliveries() -> DeliveryCounters {
    let mut copy_in = Durations::default();
    for ms in [0, 3, 3, 40_000] {
        copy_in.record(Duration::from_millis(ms));
    }
    DeliveryCounters { delivered: 3, bytes: 90, failed: counts([("no_answer", 1)]), copy_in }
}

/// A snapshot in which nothing is missing, and no two counters are equal by chance.
fn full() -> Snapshot {
    let link = LinkCounters {
        came_up: 81,
        went_down: 80,
        attempts_failed: 82,
        refused: counts([("put", 83), ("exists", 84)]),
    };
    let info = Info { version: "1.2".into(), role: "both".into(), namespace: "st1/a\"b".into() };
    Snapshot {
        info: Some(info),
        saves: Some(saves()),
        loads: Some(loads()),
        deliveries: Some(deliveries()),
        pool: Some(pool()),
        store: Some(Store { state: LinkState::Up, counters: link }),
        hook_errors: counts([("has_cache_item", 85)]),
        log: Some(Log { suppressed: counts([("removing_a_bad_object", 86)]), lost: 87 }),
    }
}

#[test]
fn every_number_has_its_name() {
    let snapshot = full();
    assert_eq!(snapshot.check(), Ok(()));
    let labels = [("process", "worker".to_owned()), ("rank", "0".to_owned())];
    insta::assert_snapshot!(text(&snapshot, &labels));
}

#[test]
fn a_full_snapshot_has_every_metric_and_a_new_process_none_that_is_wrong() {
    let sampled: BTreeSet<&str> = full().samples().iter().map(|s| s.metric.name).collect();
    let all: BTreeSet<&str> = catalogue::ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(sampled, all);
    assert_eq!(text(&Snapshot::default(), &[]), "");
}

#[test]
fn no_series_is_there_twice() {
    let samples = full().samples();
    let series: BTreeSet<(&str, &[String])> =
        samples.iter().map(|s| (s.metric.name, s.label_values.as_slice())).collect();
    assert_eq!(series.len(), samples.len());
}

#[test]
fn what_does_not_add_up_is_told() {
    let mut snapshot = full();
    snapshot.saves.as_mut().expect("present").counters.stored += 1;
    assert!(snapshot.check().unwrap_err().starts_with("saves opened 101 !="));
    snapshot = full();
    snapshot.loads.as_mut().expect("present").counters.hits += 1;
    assert!(snapshot.check().unwrap_err().starts_with("lookups 200 !="));
    snapshot = full();
    snapshot.deliveries.as_mut().expect("present").delivered += 1;
    assert_eq!(snapshot.check().unwrap_err(), "4 delivered + 1 failed != 4 timed");
    let error = full().check_at_rest().unwrap_err();
    assert_eq!(error, "stage copy was timed 1 times, expected 79");
}
