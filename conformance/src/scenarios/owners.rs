//! Owners of memory that die, stop or close. Leases are long here: a call to a dead owner may take a second.
//!
//! The first contact with an owner that is stopped takes as long as the limit for a whole transfer (60 s), so
//! whoever meets it has met it before. After a failed transfer the next ones to the same peer may fail or wait; so whoever reads from an owner
//! that is back has not read from it before.

use super::{Scenario, write::*};
use crate::step::{Call, Event, Keep, Step, Wait, World};

const MIB: u64 = 1 << 20;

pub(super) fn all() -> Vec<Scenario> {
    let world = World {
        lease_ttl_ms: 120_000,
        client_ttl_s: 30,
        status_timeout_s: 2,
        segments: vec![32 * MIB, 32 * MIB, 0, 0],
        ..World::default()
    };
    let scenario = |name, ttl, steps| Scenario {
        name,
        world: World { client_ttl_s: ttl, ..world.clone() },
        steps,
        slow: None,
    };
    vec![
        scenario("an_owner_dies", 24, dies()),
        scenario("an_owner_is_stopped_for_long", 12, stopped_for_long()),
        scenario("an_owner_is_stopped_for_a_moment", 60, stopped_for_a_moment()),
        scenario("an_owner_closes", 30, closes()),
    ]
}

/// Objects on the second owner.
fn on_second(keys: &[&str]) -> Vec<Step> {
    keys.iter().map(|key| by(0, put_kept(key, LEN, on(1)))).collect()
}

fn twice(first: usize) -> Keep {
    Keep { replicas: 2, ..on(first) }
}

fn dies() -> Vec<Step> {
    let mut steps = on_second(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    steps.push(by(0, put_kept("soft", LEN, Keep { soft_pin: true, ..on(1) })));
    // On both, the second owner's copy last and first.
    steps
        .extend([by(0, put_kept("both", LEN, twice(0))), by(0, put_kept("second", LEN, twice(1)))]);
    steps.extend([by(2, get("a", LEN)), event(Event::KillClient(1))]);
    steps.extend([
        by(2, exist("a")),
        by(2, size("b")),
        by(2, get("a", LEN)),
        by(2, get("c", LEN - 1)),
    ]);
    steps.extend([by(2, multi_get("c", &[LEN])), by(2, multi_get("c", &[LEN + 1]))]);
    steps.extend([by(2, multi_get("c", &[1])), by(2, put("d", 5))]);
    steps.extend([by(2, remove("a", false)), by(2, remove("a", true)), by(2, remove("e", false))]);
    steps.push(by(2, Call::RemoveByRegex { pattern: "f$".into(), force: false }));
    steps.extend([by(2, get("both", LEN)), by(2, get("second", LEN)), by(0, get("second", LEN))]);
    steps.extend([by(2, put_kept("new", LEN, on(1))), by(2, exist("new"))]);
    steps.extend([by(2, put_kept("two", LEN, twice(0))), by(2, exist("two"))]);
    steps.extend([by(2, exist("soft")), until("g", -704), by(2, exist("h")), by(2, size("i"))]);
    steps.extend([by(2, get("soft", LEN)), by(2, get("both", LEN)), by(2, get("second", LEN))]);
    steps.extend([by(2, put_kept("new", LEN, on(1))), by(2, get("new", LEN))]);
    steps.extend([by(2, put_kept("two", LEN, twice(1))), by(0, get("two", LEN))]);
    steps.extend([event(Event::StartClient(1)), wait(Wait::Mounted)]);
    steps.extend([by(3, put_kept("back", LEN, on(1))), by(3, get("back", LEN)), by(3, exist("h"))]);
    steps
}

fn stopped_for_long() -> Vec<Step> {
    let mut steps = on_second(&["a", "b"]);
    steps.extend([by(2, get("b", LEN)), event(Event::StopClient(1))]);
    // One transfer each way waits until the status timeout.
    steps.extend([by(2, get("a", LEN)), by(2, exist("a")), by(0, put_kept("c", LEN, on(1)))]);
    steps.extend([by(0, exist("c")), until("b", -704), by(2, exist("a"))]);
    steps.extend([event(Event::ContinueClient(1)), wait(Wait::Mounted)]);
    // It is back, and empty.
    steps.extend([by(3, exist("a")), by(3, size("b")), by(3, put_kept("a", LEN, on(1)))]);
    steps.extend([by(3, get("a", LEN)), by(1, get("a", LEN)), by(1, put("d", LEN))]);
    steps
}

fn stopped_for_a_moment() -> Vec<Step> {
    let mut steps = on_second(&["a", "b"]);
    steps.extend([by(2, get("b", LEN)), event(Event::StopClient(1))]);
    steps.extend([by(2, get("a", LEN)), by(2, size("b"))]);
    steps.extend([event(Event::ContinueClient(1)), by(3, get("a", LEN)), by(3, get("b", LEN))]);
    steps.extend([by(1, get("a", LEN)), by(1, put("c", 100)), by(3, exist("c")), Step::Keys]);
    steps
}

fn closes() -> Vec<Step> {
    let mut steps = on_second(&["a", "b", "c"]);
    steps.extend([by(0, put_kept("both", LEN, twice(1))), by(1, start("unfinished", LEN))]);
    steps.extend([by(2, exist("a")), by(2, get("b", LEN)), event(Event::CloseClient(1))]);
    steps.extend([
        by(2, exist("a")),
        by(2, size("b")),
        by(2, get("c", LEN)),
        by(3, get("both", LEN)),
    ]);
    steps.extend([
        by(2, put_kept("a", 100, on(1))),
        by(3, get("a", 100)),
        by(2, remove("b", true)),
    ]);
    steps
}
