//! The evictor, with the figures of the measured store.

use super::*;

#[test]
fn the_116th_of_128_evicts_seven() {
    let mut bed = Bed::new(128, Knobs::default());
    assert_eq!(bed.fill("k", 115), 115);
    bed.run(ms(50), &[]);
    assert_eq!(bed.gone("k", 115), [0usize; 0], "0.898 is below the watermark");
    bed.put("k115", MIB).unwrap();
    bed.run(ms(10), &[]);
    assert_eq!(bed.gone("k", 116), [0, 1, 2, 3, 4, 5, 6]);
    let evicted = bed.kinds().into_iter().filter(|k| matches!(k, EventKind::Evicted { .. }));
    assert_eq!(evicted.count(), 7);
    assert_eq!(bed.master.counters().evicted_bytes, 7 * MIB);
}

#[test]
fn objects_that_were_read_go_later() {
    let mut bed = Bed::new(128, Knobs { lease_ttl: ms(1), ..Knobs::default() });
    bed.fill("k", 20);
    for i in 0..10 {
        assert!(bed.exist(&format!("k{i}")));
    }
    bed.skip(ms(1));
    for i in 20..116 {
        bed.skip(ms(1));
        bed.put(&format!("k{i}"), MIB).unwrap();
    }
    bed.run(ms(10), &[]);
    assert_eq!(bed.gone("k", 116), [10, 11, 12, 13, 14, 15, 16]);
}

/// One batch of 140 x 1 MiB into 128 MiB: 128 fit, 12 do not, and the batch's own first 20 are evicted.
#[test]
fn a_batch_evicts_its_own_first_keys() {
    let mut bed = Bed::new(128, Knobs::default());
    let objects: Vec<NewObject> =
        (0..140).map(|i| NewObject { key: format!("k{i}"), bytes: MIB }).collect();
    let config = ReplicaConfig::default();
    let call = Call::PutStart { objects, config };
    let Reply::Started(started) = bed.master.handle(bed.now, Request { client: ALICE, call })
    else {
        panic!("a start is answered by a start");
    };
    assert!(started[..128].iter().all(Result::is_ok));
    let no_room = Err(Code(ErrorCode::NoAvailableHandle));
    assert!(started[128..].iter().all(|result| *result == no_room));
    let keys: Vec<String> = (0..128).map(|i| format!("k{i}")).collect();
    let call = Call::PutEnd { keys };
    bed.master.handle(bed.now, Request { client: ALICE, call });
    bed.run(ms(100), &[]);
    assert_eq!(bed.gone("k", 128), (0..20).collect::<Vec<_>>());
}

#[test]
fn equal_leases_go_together_if_they_tie() {
    let mut bed = Bed::new(128, Knobs { equal_leases_tie: true, ..Knobs::default() });
    for i in 0..116 {
        bed.put(&format!("k{i}"), MIB).unwrap();
    }
    bed.run(ms(10), &[]);
    assert_eq!(bed.gone("k", 116).len(), 116, "all ended at one instant");
}

#[test]
fn without_a_watermark_a_failed_put_calls_the_evictor() {
    let knobs =
        Knobs { eviction_high_watermark_ratio: 1.0, eviction_ratio: 0.1, ..Knobs::default() };
    let mut bed = Bed::new(64, knobs);
    assert_eq!(bed.fill("k", 64), 64);
    bed.run(ms(100), &[]);
    assert_eq!(bed.put("k64", MIB), Err(ErrorCode::NoAvailableHandle));
    bed.run(ms(50), &[]);
    assert_eq!(bed.gone("k", 64), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(bed.put("k64", MIB), Ok(()));
}

#[test]
fn nothing_leased_is_evicted() {
    let mut bed = Bed::new(64, short());
    assert_eq!(bed.fill("k", 64), 64);
    for i in 0..64 {
        bed.exist(&format!("k{i}"));
    }
    for _ in 0..14 {
        assert_eq!(bed.put("new", MIB), Err(ErrorCode::NoAvailableHandle));
        bed.run(ms(100), &[ALICE]);
    }
    bed.run(ms(200), &[ALICE]);
    assert_eq!(bed.put("new", MIB), Ok(()), "after the leases");
}

#[test]
fn the_flag_stays_while_nothing_can_go_and_then_takes_one_from_a_small_store() {
    let mut bed = Bed::new(64, short());
    bed.fill("k", 6);
    bed.exist("k0");
    for i in 1..6 {
        bed.exist(&format!("k{i}"));
    }
    assert_eq!(bed.put("large", 65 * MIB), Err(ErrorCode::NoAvailableHandle));
    bed.run(ms(1000), &[ALICE]);
    assert!(bed.master.usage().need_eviction, "leased objects count in the base");
    bed.run(ms(600), &[ALICE]);
    assert!(!bed.master.usage().need_eviction);
    assert_eq!(bed.gone("k", 6), [0], "at a used ratio of 0.09");
}

/// Sizes just above a bin fill the allocator before the watermark is reached.
#[test]
fn sizes_above_a_bin_never_reach_the_watermark() {
    let mut bed = Bed::new(64, Knobs::default());
    let mut stored = 0;
    while bed.put(&format!("k{stored}"), MIB + 1).is_ok() {
        stored += 1;
        bed.run(ms(10), &[]);
    }
    assert_eq!(stored, 56);
    let usage = bed.master.usage();
    assert_eq!(usage.used_bytes * 1000 / usage.capacity_bytes, 875);
    assert_eq!(bed.master.counters().eviction_rounds, 0);
}

#[test]
fn the_loop_looks_at_ratios_only() {
    let mut bed = Bed::new(64, Knobs { eviction_ratio: 0.0, ..Knobs::default() });
    bed.fill("k", 50);
    bed.put("large", 64 * MIB).unwrap_err();
    bed.run(ms(50), &[]);
    assert_eq!(bed.master.counters().eviction_rounds, 0, "a ratio of zero ignores the flag");
}
