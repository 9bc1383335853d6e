//! Soft and hard pins.

use super::*;

fn pinned(hard: bool, soft: SoftPin, knobs: Knobs) -> Bed {
    let mut bed = Bed::new(64, knobs);
    bed.config.hard_pin = hard;
    bed.config.soft_pin = soft;
    assert_eq!(bed.fill("s", 64), 64);
    bed
}

/// With a watermark of 1 only failed puts call the evictor.
fn full() -> Knobs {
    Knobs { eviction_high_watermark_ratio: 1.0, eviction_ratio: 0.1, ..Knobs::default() }
}

#[test]
fn hard_pinned_objects_are_never_evicted() {
    let mut bed = pinned(true, SoftPin::Preserve, full());
    for _ in 0..50 {
        assert_eq!(bed.put("new", MIB), Err(ErrorCode::NoAvailableHandle));
        bed.run(ms(100), &[ALICE]);
    }
    assert_eq!(bed.gone("s", 64), [0usize; 0]);
    assert_eq!(bed.remove("s0", false), Ok(()), "a plain remove works");
}

#[test]
fn soft_pinned_objects_go_in_the_second_pass() {
    let mut bed = pinned(false, SoftPin::Enable, full());
    bed.config = ReplicaConfig::default();
    assert_eq!(bed.put("new", MIB), Err(ErrorCode::NoAvailableHandle));
    bed.run(ms(10), &[]);
    assert_eq!(bed.gone("s", 64), [0, 1, 2, 3], "ceil(64 * 0.05)");
    let soft = |kind: &EventKind| matches!(kind, EventKind::Evicted { soft_pinned: true, .. });
    assert_eq!(bed.kinds().iter().filter(|kind| soft(kind)).count(), 4);
}

/// With the default watermark a full segment of soft-pinned objects loses `ceil(64 * 0.1)` of them.
#[test]
fn above_the_watermark_the_second_pass_restores_it() {
    let mut bed = pinned(false, SoftPin::Enable, Knobs::default());
    bed.run(ms(10), &[]);
    assert_eq!(bed.gone("s", 64), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn soft_pins_can_be_made_absolute() {
    let knobs = Knobs { allow_evict_soft_pinned_objects: false, ..full() };
    let mut bed = pinned(false, SoftPin::Enable, knobs);
    assert_eq!(bed.put("new", MIB), Err(ErrorCode::NoAvailableHandle));
    bed.run(ms(500), &[ALICE]);
    assert_eq!(bed.put("new", MIB), Err(ErrorCode::NoAvailableHandle));
    assert_eq!(bed.master.counters().eviction_rounds, 50, "the loop spins");
}

#[test]
fn plain_objects_go_before_soft_pinned_ones() {
    let mut bed = pinned(false, SoftPin::Enable, full());
    for i in 0..4 {
        bed.remove(&format!("s{i}"), false).unwrap();
    }
    bed.config.soft_pin = SoftPin::Preserve;
    bed.fill("plain", 4);
    bed.put("new", MIB).unwrap_err();
    bed.run(ms(10), &[]);
    assert_eq!(bed.gone("plain", 4), [0, 1, 2, 3], "though they are the newest");
    assert_eq!(bed.gone("s", 64), [0, 1, 2, 3]);
}

#[test]
fn a_soft_pin_ends_by_time_and_reads_do_not_prolong_it() {
    let mut bed = pinned(false, SoftPin::EnableFor(ms(1500)), Knobs { lease_ttl: ms(1), ..full() });
    bed.run(ms(1000), &[ALICE]);
    bed.exist("s0");
    bed.run(ms(600), &[ALICE]);
    bed.put("new", MIB).unwrap_err();
    bed.run(ms(10), &[ALICE]);
    assert_eq!(bed.gone("s", 64), [1, 2, 3, 4, 5, 6, 7], "ordinary again, ceil(64 * 0.1)");
}

#[test]
fn upserts_keep_pins() {
    let mut bed = Bed::new(64, Knobs::default());
    bed.config = ReplicaConfig { hard_pin: true, soft_pin: SoftPin::Enable, ..bed.config };
    bed.put("k", MIB).unwrap();
    let until = bed.master.peek("k").unwrap().soft_pinned_until;
    bed.config = ReplicaConfig::default();
    bed.skip(ms(100));
    for bytes in [MIB, 2 * MIB] {
        bed.upsert(ALICE, "k", bytes).unwrap();
        bed.end(ALICE, "k").unwrap();
        let state = bed.master.peek("k").unwrap();
        assert!(state.hard_pinned);
        assert_eq!(state.soft_pinned_until, until, "kept, not prolonged");
    }
}
