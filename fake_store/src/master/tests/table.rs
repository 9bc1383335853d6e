//! The state machine of the specification, cell by cell.
//!
//! States: A absent, P being put, D being put for longer than the discard time, C complete, L complete with
//! a lease. Each cell is the result of a call and the state after it.

use super::*;

/// The object `k` in a state, put by Alice; a full store if `full`.
fn bed(state: char, full: bool) -> Bed {
    let knobs = Knobs { eviction_high_watermark_ratio: 1.0, ..short() };
    let mut bed = Bed::new(4, knobs);
    match state {
        'A' => {}
        'P' | 'D' => bed.start(ALICE, "k", MIB).unwrap(),
        'C' => bed.put("k", MIB).unwrap(),
        'L' => {
            bed.put("k", MIB).unwrap();
            assert!(bed.exist("k"));
        }
        other => panic!("no such state: {other}"),
    }
    if state == 'D' {
        bed.run(ms(4010), &[ALICE]);
    }
    if full {
        for i in 0..4 {
            // The last ones find no room where `k` takes some.
            let _full = bed.put(&format!("filler{i}"), MIB);
        }
    }
    bed
}

/// The state in which `k` is now.
fn state(bed: &Bed) -> char {
    match bed.master.peek("k") {
        None => 'A',
        Some(object) if object.writing => {
            if object.put_start + ms(4000) < bed.now {
                'D'
            } else {
                'P'
            }
        }
        Some(object) if object.leased_until > bed.now => 'L',
        Some(_) => 'C',
    }
}

fn number(result: Result<(), ErrorCode>) -> i32 {
    result.map_or_else(ErrorCode::number, |()| 0)
}

/// A put as a client sees it.
fn put(bed: &mut Bed, client: ClientId, bytes: u64) -> i32 {
    number(match bed.start(client, "k", bytes) {
        Ok(()) => bed.end(client, "k"),
        Err(ErrorCode::ObjectAlreadyExists) => Ok(()),
        Err(code) => Err(code),
    })
}

fn upsert(bed: &mut Bed, bytes: u64) -> i32 {
    number(bed.upsert(BOB, "k", bytes).and_then(|()| bed.end(BOB, "k")))
}

type Cell = (i32, char);

fn check(op: &str, full: bool, row: [Cell; 5], call: impl Fn(&mut Bed) -> i32) {
    for (before, (result, after)) in "APDCL".chars().zip(row) {
        let mut bed = bed(before, full);
        assert_eq!(call(&mut bed), result, "{op} in {before}");
        assert_eq!(state(&bed), after, "{op} in {before}: state after it");
        assert_eq!(bed.master.verify(), Ok(()));
    }
}

#[test]
fn reads() {
    let row = [(0, 'A'), (0, 'P'), (0, 'D'), (1, 'L'), (1, 'L')];
    check("exist", false, row, |bed| i32::from(bed.exist("k")));
    let row = [(-704, 'A'), (-703, 'P'), (-703, 'D'), (0, 'L'), (0, 'L')];
    check("query", false, row, |bed| number(bed.query("k").map(|_| ())));
}

#[test]
fn puts() {
    let row = [(0, 'C'), (0, 'P'), (0, 'C'), (0, 'C'), (0, 'L')];
    check("put", false, row, |bed| put(bed, BOB, MIB));
    let row = [(-200, 'A'), (0, 'P'), (-200, 'A'), (0, 'C'), (0, 'L')];
    check("put without room", true, row, |bed| put(bed, BOB, MIB));
}

#[test]
fn upserts() {
    let row = [(0, 'C'), (0, 'C'), (0, 'C'), (0, 'C'), (0, 'L')];
    check("upsert, same size", false, row, |bed| upsert(bed, MIB));
    let row = [(0, 'C'), (0, 'C'), (0, 'C'), (0, 'C'), (0, 'C')];
    check("upsert, other size", false, row, |bed| upsert(bed, 2 * MIB));
    let row = [(-200, 'A'); 5];
    check("upsert, other size, no room", true, row, |bed| upsert(bed, 2 * MIB));
}

#[test]
fn ends_and_revokes() {
    let row = [(-704, 'A'), (0, 'C'), (0, 'C'), (0, 'C'), (0, 'L')];
    check("end", false, row, |bed| number(bed.end(ALICE, "k")));
    let row = [(-704, 'A'), (-601, 'P'), (-601, 'D'), (-601, 'C'), (-601, 'L')];
    check("end by another", false, row, |bed| number(bed.end(BOB, "k")));
    let row = [(-704, 'A'), (0, 'A'), (0, 'A'), (-700, 'C'), (-700, 'L')];
    check("revoke", false, row, |bed| number(bed.revoke(ALICE, "k")));
}

#[test]
fn removals() {
    let row = [(-704, 'A'), (-703, 'P'), (-703, 'D'), (0, 'A'), (-706, 'L')];
    check("remove", false, row, |bed| number(bed.remove("k", false)));
    let row = [(-704, 'A'), (-703, 'P'), (-703, 'D'), (0, 'A'), (0, 'A')];
    check("remove forced", false, row, |bed| number(bed.remove("k", true)));
    let row = [(0, 'A'), (0, 'P'), (0, 'D'), (1, 'A'), (0, 'L')];
    check("remove all", false, row, |bed| {
        i32::try_from(bed.master.remove_all(bed.now, BOB, false)).unwrap()
    });
}

#[test]
fn time_and_losses() {
    let row = [(0, 'A'), (0, 'P'), (0, 'D'), (0, 'C'), (0, 'C')];
    check("the lease ends", false, row, |bed| {
        bed.skip(ms(1500));
        0
    });
    let row = [(0, 'A'); 5];
    check("the owner dies", false, row, |bed| {
        bed.run(ms(7010), &[]);
        0
    });
    check("the master restarts", false, row, |bed| {
        bed.master.restart(bed.now);
        0
    });
    let row = [(0, 'A'), (0, 'P'), (0, 'D'), (0, 'A'), (0, 'L')];
    check("an eviction round", true, row, |bed| {
        bed.put("no room", MIB).unwrap_err();
        bed.run(ms(10), &[]);
        0
    });
}
