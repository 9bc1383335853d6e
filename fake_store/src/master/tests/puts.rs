//! The put protocol: the event table of the measured store, discarded space, upserts.

use super::*;

const NOT_FOUND: Result<(), ErrorCode> = Err(ErrorCode::ObjectNotFound);
const NO_ROOM: Result<(), ErrorCode> = Err(ErrorCode::NoAvailableHandle);

#[test]
fn visible_in_one_step() {
    let mut bed = Bed::new(64, short());
    assert_eq!(bed.start(ALICE, "k", MIB), Ok(()));
    assert!(!bed.exist("k"));
    assert_eq!(bed.query("k"), Err(ErrorCode::ReplicaIsNotReady));
    assert_eq!(bed.end(ALICE, "k"), Ok(()));
    assert!(bed.exist("k"));
    assert_eq!(bed.query("k").unwrap().replicas[0].bytes, MIB);
    assert_eq!(bed.query("other"), Err(ErrorCode::ObjectNotFound));
}

#[test]
fn parameters_are_checked_before_the_key() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    let refused = Err(ErrorCode::InvalidParams);
    assert_eq!(bed.start(ALICE, "", 1), refused);
    assert_eq!(bed.start(ALICE, "k", 0), refused);
    assert_eq!(bed.upsert(ALICE, "k", 0), refused);
    bed.config.replica_num = 0;
    assert_eq!(bed.start(ALICE, "k", MIB), refused, "also when the key exists");
    bed.config.replica_num = 1;
    bed.config.soft_pin = SoftPin::EnableFor(Duration::from_secs(86_401));
    assert_eq!(bed.start(ALICE, "new", MIB), refused);
}

#[test]
fn a_second_put_is_told_that_the_object_exists() {
    let mut bed = Bed::new(64, short());
    bed.start(ALICE, "k", MIB).unwrap();
    for client in [ALICE, BOB] {
        assert_eq!(bed.start(client, "k", 2 * MIB), Err(ErrorCode::ObjectAlreadyExists));
    }
    bed.end(ALICE, "k").unwrap();
    assert_eq!(bed.start(BOB, "k", 5), Err(ErrorCode::ObjectAlreadyExists));
    assert_eq!(bed.query("k").unwrap().replicas[0].bytes, MIB, "the old content stays");
}

#[test]
fn larger_than_any_segment_fails_at_once_and_calls_the_evictor() {
    let mut bed = Bed::new(64, short());
    assert_eq!(bed.start(ALICE, "k", 65 * MIB), NO_ROOM);
    assert!(bed.master.usage().need_eviction);
    bed.run(ms(10), &[]);
    assert!(!bed.master.usage().need_eviction, "nothing to evict lowers the flag");
}

#[test]
fn more_replicas_than_names_do_not_call_the_evictor() {
    let mut bed = Bed::new(64, short());
    bed.config.replica_num = 2;
    assert_eq!(bed.start(ALICE, "k", 65 * MIB), NO_ROOM);
    assert!(!bed.master.usage().need_eviction);
    let mut none = Bed::empty(short());
    assert_eq!(none.start(ALICE, "k", 1), NO_ROOM);
    assert!(!none.master.usage().need_eviction);
}

#[test]
fn after_the_discard_time_another_put_takes_over() {
    let mut bed = Bed::new(64, short());
    bed.start(ALICE, "k", MIB).unwrap();
    bed.run(ms(4000), &[ALICE]);
    assert_eq!(bed.start(BOB, "k", MIB), Err(ErrorCode::ObjectAlreadyExists), "at the limit");
    bed.skip(ms(10));
    assert_eq!(bed.start(BOB, "k", 3 * MIB), Ok(()));
    assert_eq!(bed.master.usage().discarded_bytes, MIB, "the old space is held");
    assert_eq!(bed.end(ALICE, "k"), Err(ErrorCode::IllegalClient), "the slow first writer");
    assert_eq!(bed.revoke(ALICE, "k"), Err(ErrorCode::IllegalClient));
    assert_eq!(bed.end(BOB, "k"), Ok(()));
    assert_eq!(bed.query("k").unwrap().replicas[0].bytes, 3 * MIB);
    let kinds = bed.kinds();
    assert_eq!(kinds[0], EventKind::SetAside { by: BOB });
    assert!(matches!(kinds[1], EventKind::Stored { client: BOB, .. }));
}

#[test]
fn an_abandoned_put_is_dropped_between_one_and_two_release_times() {
    let mut bed = Bed::new(64, short());
    bed.run(ms(2000), &[ALICE]);
    bed.start(ALICE, "k", MIB).unwrap();
    bed.run(ms(8000), &[ALICE]);
    assert_eq!(bed.query("k"), Err(ErrorCode::ReplicaIsNotReady));
    assert_eq!(bed.remove("k", true), Err(ErrorCode::ReplicaIsNotReady));
    bed.run(ms(8020), &[ALICE]);
    assert_eq!(bed.remove("k", true), NOT_FOUND);
    assert_eq!(bed.end(ALICE, "k"), NOT_FOUND);
    assert_eq!(bed.master.usage().used_bytes, 0);
    assert_eq!(bed.kinds(), [EventKind::Expired]);
}

#[test]
fn a_revoke_frees_at_once() {
    let mut bed = Bed::new(1, short());
    bed.start(ALICE, "k", MIB).unwrap();
    assert_eq!(bed.revoke(BOB, "k"), Err(ErrorCode::IllegalClient));
    assert_eq!(bed.revoke(ALICE, "k"), Ok(()));
    assert!(!bed.exist("k"));
    assert_eq!(bed.revoke(ALICE, "k"), NOT_FOUND);
    assert_eq!(bed.put("k", MIB), Ok(()), "the very same space");
    assert_eq!(bed.revoke(ALICE, "k"), Err(ErrorCode::InvalidWrite));
    assert_eq!(bed.end(ALICE, "k"), Ok(()), "a repeated end");
    assert_eq!(bed.end(BOB, "k"), Err(ErrorCode::IllegalClient));
}

#[test]
fn freed_space_is_given_to_the_next_put() {
    let mut bed = Bed::new(64, short());
    let old = bed.master.put_start(bed.now, ALICE, "p", 60 * MIB, &bed.config).unwrap();
    bed.revoke(ALICE, "p").unwrap();
    let new = bed.master.put_start(bed.now, BOB, "q", 60 * MIB, &bed.config).unwrap();
    assert_eq!(old, new, "a late write of p lands in q");
}

#[test]
fn a_putter_that_expired_may_still_end_its_put() {
    let mut bed = Bed::new(64, short());
    bed.mount(BOB, 2, "b", 1);
    bed.start(BOB, "k", 2 * MIB).unwrap();
    bed.run(ms(8000), &[ALICE]);
    assert_eq!(bed.end(BOB, "k"), Ok(()), "its object lies on Alice's segment");
}

/// (a) Space is held although it is due, because each failed put starts a round and puts the sweep off.
#[test]
fn a_retrying_caller_starves_itself() {
    let knobs = Knobs {
        put_start_discard_timeout: ms(2000),
        put_start_release_timeout: ms(6000),
        ..short()
    };
    let abandoned = |knobs: Knobs| {
        let mut bed = Bed::new(64, knobs);
        bed.start(BOB, "dead", 40 * MIB).unwrap();
        bed.run(ms(2010), &[ALICE]);
        bed.start(ALICE, "dead", MIB).unwrap();
        bed.revoke(ALICE, "dead").unwrap();
        bed
    };
    let mut retrying = abandoned(knobs.clone());
    for _ in 0..180 {
        assert_eq!(retrying.put("k", 40 * MIB), NO_ROOM);
        retrying.run(ms(100), &[ALICE]);
    }
    let mut pausing = abandoned(knobs.clone());
    assert_eq!(pausing.put("k", 40 * MIB), NO_ROOM);
    pausing.run(ms(12_100), &[ALICE]);
    assert_eq!(pausing.put("k", 40 * MIB), Ok(()));

    let mut with_candidate = abandoned(knobs);
    with_candidate.put("small", MIB).unwrap();
    let released_after = (0..60).find(|_| {
        // A leased object is no victim, but it is in the base, so the round goes on to the sweep.
        assert!(with_candidate.exist("small"));
        let stored = with_candidate.put("k", 40 * MIB).is_ok();
        with_candidate.run(ms(100), &[ALICE]);
        stored
    });
    assert_eq!(released_after, Some(40), "6 s after the abandoned put started");
}

/// (b) Discarded space alone above the watermark, nothing to evict: never released.
#[test]
fn discarded_space_above_the_watermark_is_never_released() {
    let mut bed = Bed::new(64, short());
    bed.start(BOB, "dead", 60 * MIB).unwrap();
    bed.run(ms(4010), &[ALICE]);
    bed.start(ALICE, "dead", MIB).unwrap();
    bed.revoke(ALICE, "dead").unwrap();
    bed.run(ms(30_000), &[ALICE]);
    assert_eq!(bed.put("k", 40 * MIB), NO_ROOM);
    assert_eq!(bed.master.usage().discarded_bytes, 60 * MIB);
}

#[test]
fn an_upsert_of_the_same_size_overwrites_in_place() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    let before = bed.query("k").unwrap();
    let place = bed.master.upsert_start(bed.now, BOB, "k", MIB, &bed.config).unwrap();
    assert_eq!(place, before.replicas, "also under a lease");
    assert_eq!(bed.query("k"), Err(ErrorCode::ReplicaIsNotReady));
    assert!(!bed.exist("k"));
    assert_eq!(bed.remove("k", false), Err(ErrorCode::ObjectHasLease), "lease first");
    assert_eq!(bed.remove("k", true), Err(ErrorCode::ReplicaIsNotReady));
    assert_eq!(bed.end(BOB, "k"), Ok(()));
    assert!(bed.query("k").is_ok());

    bed.upsert(BOB, "k", MIB).unwrap();
    assert_eq!(bed.revoke(BOB, "k"), Ok(()), "a failed transfer");
    assert_eq!(bed.query("k"), Err(ErrorCode::ObjectNotFound), "loses the old content");
}

#[test]
fn an_upsert_of_another_size_holds_the_old_space() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    bed.exist("k");
    assert_eq!(bed.upsert(BOB, "k", 2 * MIB), Ok(()), "in spite of the lease");
    assert_eq!(bed.end(BOB, "k"), Ok(()));
    assert_eq!(bed.master.usage().discarded_bytes, MIB);
    assert_eq!(bed.query("k").unwrap().replicas[0].bytes, 2 * MIB);
}

#[test]
fn an_upsert_without_room_loses_the_old_object() {
    let mut bed = Bed::new(64, short());
    bed.put("k", 40 * MIB).unwrap();
    bed.kinds();
    assert_eq!(bed.upsert(BOB, "k", 41 * MIB), NO_ROOM);
    assert!(!bed.exist("k"));
    assert_eq!(bed.query("k"), Err(ErrorCode::ObjectNotFound));
    let lost = EventKind::UpsertLost { client: BOB, code: Code(ErrorCode::NoAvailableHandle) };
    assert_eq!(bed.kinds(), [lost]);
}

#[test]
fn an_upsert_takes_a_put_over_at_once() {
    let mut bed = Bed::new(64, short());
    bed.start(ALICE, "k", MIB).unwrap();
    assert_eq!(bed.upsert(BOB, "k", MIB), Ok(()));
    assert_eq!(bed.end(ALICE, "k"), Err(ErrorCode::IllegalClient));
    assert_eq!(bed.end(BOB, "k"), Ok(()));
    assert_eq!(bed.master.usage().discarded_bytes, MIB, "the first writer may still write");
}

#[test]
fn an_upsert_of_an_absent_key_is_a_put() {
    let mut bed = Bed::new(64, short());
    assert_eq!(bed.upsert(ALICE, "k", MIB), Ok(()));
    assert_eq!(bed.end(ALICE, "k"), Ok(()));
    assert!(bed.exist("k"));
}
