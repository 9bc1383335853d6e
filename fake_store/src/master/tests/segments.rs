//! Segments and their owners: mounting, death, stalls, placement, restart of the master.

use super::*;

fn two() -> Bed {
    let mut bed = Bed::new(64, short());
    bed.mount(BOB, 2, "b", 64);
    bed
}

fn prefer(names: &[&str], replica_num: u64) -> ReplicaConfig {
    ReplicaConfig {
        replica_num,
        preferred_segments: names.iter().map(|name| (*name).into()).collect(),
        ..ReplicaConfig::default()
    }
}

#[test]
fn mounting_is_idempotent_and_empty_segments_are_refused() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    bed.mount(ALICE, 1, "a", 64);
    assert_eq!(bed.master.usage().capacity_bytes, 64 * MIB);
    assert!(bed.exist("k"));
    let empty = Segment { id: SegmentId(9), name: "c".into(), endpoint: "c:1".into(), bytes: 0 };
    assert_eq!(bed.master.mount(bed.now, BOB, empty), Err(ErrorCode::InvalidParams));
}

#[test]
fn the_first_ping_asks_for_a_remount_which_keeps_everything() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    assert_eq!(bed.master.ping(bed.now, ALICE), ClientStatus::NeedRemount);
    let segment =
        Segment { id: SegmentId(1), name: "a".into(), endpoint: "a:17".into(), bytes: 64 * MIB };
    bed.master.remount(bed.now, ALICE, vec![segment]).unwrap();
    assert_eq!(bed.master.ping(bed.now, ALICE), ClientStatus::Ok);
    assert!(bed.exist("k"));
}

/// The table of a killed owner: its objects are listed until its time to live is over, then gone.
#[test]
fn a_dead_owner_is_noticed_after_its_time_to_live() {
    let mut bed = two();
    bed.config = prefer(&["b"], 1);
    bed.put("only b", MIB).unwrap();
    bed.config = prefer(&["b"], 2);
    bed.put("both", MIB).unwrap();
    assert_eq!(bed.replicas("both"), ["b", "a"], "allocation order");
    bed.run(ms(5900), &[ALICE]);
    assert!(bed.exist("only b"), "nobody has noticed");
    assert_eq!(bed.query("both").unwrap().replicas.len(), 2);
    bed.config = prefer(&["b"], 1);
    bed.put("placed on the dead", MIB).unwrap();
    assert_eq!(bed.replicas("placed on the dead"), ["b"]);
    bed.kinds();

    bed.run(ms(1200), &[ALICE]);
    assert!(!bed.exist("only b"), "its lease does not help");
    assert_eq!(bed.query("only b"), Err(ErrorCode::ObjectNotFound));
    assert_eq!(bed.query("both").unwrap().replicas[0].segment_name, "a");
    bed.put("elsewhere", MIB).unwrap();
    assert_eq!(bed.replicas("elsewhere"), ["a"]);
    bed.config = prefer(&["b"], 2);
    bed.put("fewer", MIB).unwrap();
    assert_eq!(bed.replicas("fewer"), ["a"]);
    let (segment, end) = (SegmentId(2), SegmentEnd::ClientExpired);
    let kinds = bed.kinds();
    assert!(kinds.contains(&EventKind::ReplicaLost { segment, end }));
    assert_eq!(kinds.iter().filter(|k| **k == EventKind::SegmentLost { segment, end }).count(), 2);
    assert_eq!(bed.master.counters().clients_expired, 1);
}

#[test]
fn a_stalled_owner_comes_back_empty() {
    let mut bed = two();
    bed.config = prefer(&["b"], 1);
    bed.put("k", MIB).unwrap();
    bed.run(ms(7100), &[ALICE]);
    assert_eq!(bed.master.ping(bed.now, BOB), ClientStatus::NeedRemount);
    let segment =
        Segment { id: SegmentId(2), name: "b".into(), endpoint: "b:17".into(), bytes: 64 * MIB };
    bed.master.remount(bed.now, BOB, vec![segment]).unwrap();
    assert!(!bed.exist("k"), "old objects do not return");
    assert_eq!(bed.put("k", MIB), Ok(()));
    assert_eq!(bed.replicas("k"), ["b"]);
    bed.run(ms(3000), &[ALICE, BOB]);
    assert!(bed.exist("k"));
}

#[test]
fn unmounting_takes_objects_along_at_once() {
    let mut bed = two();
    bed.config = prefer(&["b"], 1);
    bed.put("k", MIB).unwrap();
    bed.exist("k");
    bed.start(ALICE, "being put", MIB).unwrap();
    bed.master.unmount(bed.now, SegmentId(2));
    assert!(!bed.exist("k"), "leased or not");
    assert_eq!(bed.query("being put"), Err(ErrorCode::ObjectNotFound));
    assert_eq!(bed.end(ALICE, "being put"), Err(ErrorCode::ObjectNotFound));
    assert_eq!(bed.put("being put", MIB), Ok(()), "a new put works");
    bed.master.unmount(bed.now, SegmentId(2));
    assert_eq!(bed.master.verify(), Ok(()));
}

#[test]
fn discarded_space_goes_with_its_segment() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    bed.upsert(ALICE, "k", 2 * MIB).unwrap();
    assert_eq!(bed.master.usage().discarded_bytes, MIB);
    bed.master.unmount(bed.now, SegmentId(1));
    assert_eq!(bed.master.usage().discarded_bytes, 0);
    bed.mount(ALICE, 1, "a", 64);
    bed.run(ms(20_000), &[]);
}

/// 66 puts that prefer a segment of 16 MiB beside one of 48 MiB: 64 fit.
#[test]
fn a_full_preferred_segment_falls_over_to_others() {
    let knobs = Knobs { eviction_high_watermark_ratio: 1.0, ..short() };
    let mut bed = Bed::new(48, knobs);
    bed.mount(BOB, 2, "b", 16);
    bed.config = prefer(&["b", "nowhere"], 1);
    let ok = bed.fill("k", 66);
    assert_eq!(ok, 64);
    assert_eq!((0..64).filter(|i| bed.replicas(&format!("k{i}")) == ["b"]).count(), 16);
}

/// Two replicas over 16 + 48 MiB: as many as fit on both, then one each.
#[test]
fn replicas_are_best_effort() {
    let knobs = Knobs { eviction_high_watermark_ratio: 1.0, ..short() };
    let mut bed = Bed::new(48, knobs);
    bed.mount(BOB, 2, "b", 16);
    bed.config = prefer(&[], 2);
    assert_eq!(bed.fill("k", 66), 48);
    let copies: Vec<usize> = (0..48).map(|i| bed.replicas(&format!("k{i}")).len()).collect();
    assert_eq!(copies.iter().filter(|n| **n == 2).count(), 16);
    assert_eq!(copies.iter().filter(|n| **n == 1).count(), 32);

    let mut single = Bed::new(64, short());
    single.config = prefer(&[], 2);
    single.put("k", MIB).unwrap();
    assert_eq!(single.replicas("k"), ["a"]);
}

#[test]
fn random_placement_spreads_and_repeats_with_the_seed() {
    let spread = |seed| {
        let knobs = Knobs { placement: Placement::Random, ..short() };
        let mut bed = Bed::new(128, knobs);
        bed.master.rng = crate::Rng::new(seed);
        bed.mount(BOB, 2, "b", 128);
        bed.fill("k", 100);
        (0..100).map(|i| bed.replicas(&format!("k{i}")).remove(0)).collect::<Vec<_>>()
    };
    let places = spread(3);
    assert!((35..65).contains(&places.iter().filter(|name| *name == "a").count()));
    assert_eq!(places, spread(3));
    assert_ne!(places, spread(4));
}

#[test]
fn a_restarted_master_knows_nothing() {
    let mut bed = Bed::new(64, short());
    bed.put("k", MIB).unwrap();
    bed.start(ALICE, "being put", MIB).unwrap();
    bed.kinds();
    bed.master.restart(bed.now);
    assert_eq!(bed.kinds(), [EventKind::Restarted]);
    assert!(!bed.exist("k"));
    assert_eq!(bed.end(ALICE, "being put"), Err(ErrorCode::ObjectNotFound));
    assert_eq!(bed.put("k", MIB), Err(ErrorCode::NoAvailableHandle), "until the owner pings");
    assert_eq!(bed.master.ping(bed.now, ALICE), ClientStatus::NeedRemount);
    bed.mount(ALICE, 1, "a", 64);
    let replicas: Vec<Replica> = bed.master.put_start(bed.now, BOB, "k", MIB, &bed.config).unwrap();
    assert_eq!(replicas[0].offset, 0, "the old data's memory is used again");
}
