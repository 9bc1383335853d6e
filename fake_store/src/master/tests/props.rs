//! Random walks: whatever is called in whatever order, the books balance and leases hold.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serialize};
use springtide_testing::corpus;

use super::*;

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Step {
    Start { client: u64, key: u8, bytes: u64, replicas: u64 },
    Upsert { client: u64, key: u8, bytes: u64 },
    End { client: u64, key: u8 },
    Revoke { client: u64, key: u8 },
    Exist { key: u8 },
    Query { key: u8 },
    Remove { key: u8, force: bool },
    RemoveAll { force: bool },
    Unmount { segment: u64 },
    Ping { client: u64 },
    Restart,
    Run { millis: u64 },
}

fn steps() -> impl Strategy<Value = Step> {
    let client = 1u64..3;
    let key = 0u8..6;
    let bytes = prop_oneof![1u64..3 * MIB, Just(MIB), Just(MIB + 1)];
    prop_oneof![
        8 => (client.clone(), key.clone(), bytes.clone(), 1u64..3)
            .prop_map(|(client, key, bytes, replicas)| Step::Start { client, key, bytes, replicas }),
        3 => (client.clone(), key.clone(), bytes)
            .prop_map(|(client, key, bytes)| Step::Upsert { client, key, bytes }),
        8 => (client.clone(), key.clone()).prop_map(|(client, key)| Step::End { client, key }),
        2 => (client.clone(), key.clone()).prop_map(|(client, key)| Step::Revoke { client, key }),
        3 => key.clone().prop_map(|key| Step::Exist { key }),
        3 => key.clone().prop_map(|key| Step::Query { key }),
        2 => (key, any::<bool>()).prop_map(|(key, force)| Step::Remove { key, force }),
        1 => any::<bool>().prop_map(|force| Step::RemoveAll { force }),
        1 => (1u64..3).prop_map(|segment| Step::Unmount { segment }),
        3 => client.prop_map(|client| Step::Ping { client }),
        1 => Just(Step::Restart),
        6 => prop_oneof![1u64..50, 1000u64..12_000].prop_map(|millis| Step::Run { millis }),
    ]
}

fn segment(client: u64) -> Segment {
    Segment {
        id: SegmentId(client),
        name: format!("n{client}"),
        endpoint: format!("n{client}:1"),
        bytes: 4 * MIB,
    }
}

/// Applies a step; a client that is told to remounts.
fn apply(bed: &mut Bed, step: &Step) {
    let key = |key: &u8| format!("k{key}");
    let now = bed.now;
    let master = &mut bed.master;
    // Every code is a fine answer here; what must hold is checked after the step.
    match step {
        Step::Start { client, key: k, bytes, replicas } => {
            let config = ReplicaConfig { replica_num: *replicas, ..ReplicaConfig::default() };
            let _any = master.put_start(now, ClientId(*client), &key(k), *bytes, &config);
        }
        Step::Upsert { client, key: k, bytes } => {
            let config = ReplicaConfig::default();
            let _any = master.upsert_start(now, ClientId(*client), &key(k), *bytes, &config);
        }
        Step::End { client, key: k } => {
            let _any = master.put_end(now, ClientId(*client), &key(k));
        }
        Step::Revoke { client, key: k } => {
            let _any = master.put_revoke(now, ClientId(*client), &key(k));
        }
        Step::Exist { key: k } => {
            let readable = master.peek(&key(k)).is_some_and(|object| !object.writing);
            assert_eq!(master.exist(now, &key(k)), readable);
        }
        Step::Query { key: k } => {
            let readable = master.peek(&key(k)).is_some_and(|object| !object.writing);
            assert_eq!(master.query(now, &key(k)).is_ok(), readable);
        }
        Step::Remove { key: k, force } => {
            let _any = master.remove(now, BOB, &key(k), *force);
        }
        Step::RemoveAll { force } => {
            master.remove_all(now, BOB, *force);
        }
        Step::Unmount { segment } => master.unmount(now, SegmentId(*segment)),
        Step::Ping { client } => {
            let client_id = ClientId(*client);
            if master.ping(now, client_id) == ClientStatus::NeedRemount {
                master.remount(now, client_id, vec![segment(*client)]).unwrap();
            }
        }
        Step::Restart => master.restart(now),
        Step::Run { millis } => bed.run(ms(*millis), &[ALICE]),
    }
}

/// No byte of any segment belongs to two replicas, set-aside space included.
fn check_disjoint(master: &Master) {
    let mut places: Vec<(SegmentId, u64, u64)> = master
        .objects
        .values()
        .flat_map(|object| &object.extents)
        .chain(master.discarded_extents())
        .map(|extent| (extent.segment, extent.offset, extent.bytes))
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        let ((segment, offset, bytes), (next_segment, next, _)) = (pair[0], pair[1]);
        assert!(segment != next_segment || offset + bytes <= next, "{pair:?} overlap");
    }
}

/// What the history of each key must be: alternately stored and lost, and evicted only without a lease.
fn check_history(events: &[Event], readable: &mut BTreeSet<String>) {
    for event in events {
        match event.kind {
            EventKind::Stored { .. } => assert!(readable.insert(event.key.clone()), "{event:?}"),
            EventKind::ReplicaLost { .. } => {}
            EventKind::Evicted { .. } | EventKind::Removed { .. } | EventKind::Restarted => {
                assert!(readable.remove(&event.key), "{event:?} of an unreadable object");
            }
            _ => {
                readable.remove(&event.key);
            }
        }
    }
}

/// Plays one step and looks at everything.
fn play(bed: &mut Bed, step: &Step, readable: &mut BTreeSet<String>) {
    let objects = bed.master.objects.iter();
    let leased: Vec<String> = objects
        .filter(|(_, object)| !object.writing && object.is_leased(bed.now))
        .map(|(key, _)| key.clone())
        .collect();
    apply(bed, step);
    assert_eq!(bed.master.verify(), Ok(()));
    check_disjoint(&bed.master);
    let events = bed.master.drain_history();
    check_history(&events, readable);
    let complete: Vec<&String> =
        bed.master.objects.iter().filter(|(_, o)| !o.writing).map(|(key, _)| key).collect();
    assert_eq!(complete, readable.iter().collect::<Vec<_>>());
    if matches!(step, Step::Remove { force: false, .. } | Step::RemoveAll { force: false }) {
        for key in leased {
            assert!(readable.contains(&key), "a lease protects from a plain remove");
        }
    }
    for event in events {
        if let EventKind::Evicted { idle_nanos, .. } = event.kind {
            let idle = Duration::from_nanos(idle_nanos);
            assert!(event.at.since_origin() >= idle, "evicted under a lease");
        }
    }
}

#[test]
fn the_books_balance() {
    let cases = (vec(steps(), 1..120), any::<bool>(), any::<bool>());
    corpus::check("master", 200, cases, |(steps, bin_rounding, equal_leases_tie)| {
        let knobs =
            Knobs { bin_rounding, equal_leases_tie, placement: Placement::Random, ..short() };
        let mut bed = Bed::empty(knobs);
        for client in 1..3 {
            bed.master.mount(bed.now, ClientId(client), segment(client)).unwrap();
        }
        let mut readable = BTreeSet::new();
        for step in &steps {
            play(&mut bed, step, &mut readable);
        }
    });
}
