//! Leases: who grants them, what they protect from, and the table of removals.

use super::*;

/// The time from `grant` until a plain remove succeeds.
fn protected_for(grant: impl Fn(&mut Bed)) -> u64 {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    grant(&mut bed);
    let mut after = 0;
    while bed.remove("k", false).is_err() {
        bed.skip(ms(10));
        after += 10;
    }
    after
}

#[test]
fn reads_grant_a_lease_and_writes_do_not() {
    assert_eq!(protected_for(|bed| assert!(bed.exist("k"))), 1500);
    assert_eq!(protected_for(|bed| assert!(bed.query("k").is_ok())), 1500);
    assert_eq!(protected_for(|_| ()), 0, "put");
    assert_eq!(protected_for(|bed| bed.put("k", 5).unwrap()), 0, "a second put");
    assert_eq!(
        protected_for(|bed| {
            bed.upsert(ALICE, "k", MIB).unwrap();
            bed.end(ALICE, "k").unwrap();
        }),
        0,
        "upsert"
    );
    assert_eq!(protected_for(|bed| assert!(!bed.exist("other"))), 0, "a failed exist");
}

#[test]
fn an_attempt_to_remove_grants_nothing_and_a_later_read_prolongs() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    bed.exist("k");
    bed.skip(ms(1000));
    assert_eq!(bed.remove("k", false), Err(ErrorCode::ObjectHasLease));
    bed.exist("k");
    bed.skip(ms(1499));
    assert_eq!(bed.remove("k", false), Err(ErrorCode::ObjectHasLease));
    bed.skip(ms(1));
    assert_eq!(bed.remove("k", false), Ok(()));
}

#[test]
fn an_upsert_keeps_the_lease() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    bed.exist("k");
    bed.upsert(ALICE, "k", MIB).unwrap();
    bed.end(ALICE, "k").unwrap();
    assert_eq!(bed.remove("k", false), Err(ErrorCode::ObjectHasLease));
}

/// Makes the object `k` of one row.
fn row(state: &str) -> Bed {
    let mut bed = Bed::new(64, short());
    bed.config.hard_pin = state == "hard pinned";
    if state == "soft pinned" {
        bed.config.soft_pin = SoftPin::Enable;
    }
    match state {
        "absent" => {}
        "putting" => bed.start(ALICE, "k", MIB).unwrap(),
        _ => bed.put("k", MIB).unwrap(),
    }
    match state {
        "leased" => assert!(bed.exist("k")),
        "upserting" => bed.upsert(ALICE, "k", MIB).unwrap(),
        "segment lost" => bed.master.unmount(bed.now, SegmentId(1)),
        _ => {}
    }
    bed
}

#[test]
fn the_table_of_removals() {
    // state, remove, remove forced, counted by pattern and all, the same forced
    let table = [
        ("absent", -704, -704, 0, 0),
        ("putting", -703, -703, 0, 0),
        ("upserting", -703, -703, 0, 0),
        ("complete", 0, 0, 1, 1),
        ("leased", -706, 0, 0, 1),
        ("soft pinned", 0, 0, 1, 1),
        ("hard pinned", 0, 0, 1, 1),
        ("segment lost", -704, -704, 0, 0),
    ];
    let number = |result: Result<(), ErrorCode>| result.map_or_else(ErrorCode::number, |()| 0);
    for (state, plain, forced, counted, counted_forced) in table {
        assert_eq!(number(row(state).remove("k", false)), plain, "{state}");
        assert_eq!(number(row(state).remove("k", true)), forced, "{state}, forced");
        for (force, expected) in [(false, counted), (true, counted_forced)] {
            let mut bed = row(state);
            let by_regex = bed.master.remove_by_regex(bed.now, BOB, "k", force);
            assert_eq!(by_regex, Ok(expected), "{state}, pattern, force {force}");
            let mut bed = row(state);
            let all = bed.master.remove_all(bed.now, BOB, force);
            assert_eq!(all, expected, "{state}, all, force {force}");
            assert_eq!(bed.master.verify(), Ok(()));
        }
    }
}

#[test]
fn patterns_search() {
    let mut bed = Bed::new(64, short());
    for key in ["a.b0", "a.b1", "a.b2", "axb", "ab", "z"] {
        bed.put(key, 8).unwrap();
    }
    assert_eq!(bed.master.remove_by_regex(bed.now, BOB, "(", false), Err(ErrorCode::InvalidParams));
    assert_eq!(bed.master.keys().count(), 6, "a bad pattern removes nothing");
    assert_eq!(bed.master.remove_by_regex(bed.now, BOB, "a.b", false), Ok(4));
    assert_eq!(bed.master.keys().collect::<Vec<_>>(), ["ab", "z"]);
}

#[test]
fn a_batch_with_a_duplicate_removes_once() {
    let mut bed = Bed::new(64, short());
    bed.put("k", 8).unwrap();
    let call = Call::Remove { keys: vec!["k".into(), "k".into()], force: false };
    let reply = bed.master.handle(bed.now, Request { client: BOB, call });
    assert_eq!(reply, Reply::Done(vec![Ok(()), Err(Code(ErrorCode::ObjectNotFound))]));
}

#[test]
fn history_says_who_removed_what_and_whether_it_was_leased() {
    let mut bed = row("leased");
    bed.kinds();
    bed.remove("k", true).unwrap();
    let removed = EventKind::Removed { client: BOB, how: RemovedBy::Key, leased: true };
    assert_eq!(bed.kinds(), [removed]);
    assert!(removed.is_loss());
}
