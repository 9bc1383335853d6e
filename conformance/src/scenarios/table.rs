//! Every call on an object in every state that lasts: the specification's table, cell by cell.
//!
//! Each cell has an object of its own. After each state the keys are compared, then everything goes.

use super::{Scenario, write::*};
use crate::step::{Call, Event, Keep, Step, Wait, World};

pub(super) fn all() -> Vec<Scenario> {
    let world = World {
        lease_ttl_ms: 3000,
        discard_s: 4,
        segments: vec![64 << 20, 0, 0],
        ..World::default()
    };
    let scenario = |name, steps| Scenario { name, world: world.clone(), steps, slow: None };
    vec![
        scenario("every_call_on_whole_objects", whole()),
        scenario("every_call_on_unfinished_puts", unfinished()),
        scenario("every_call_on_orphaned_puts", orphaned()),
        Scenario {
            name: "an_abandoned_put_is_swept",
            world: World { discard_s: 2, release_s: 4, ..world.clone() },
            steps: swept(),
            slow: None,
        },
    ]
}

/// For each call a key that begins with `state`; what makes it, and the call itself.
fn cells(state: &str, make: impl Fn(&str) -> Vec<Step>, client: usize) -> (Vec<Step>, Vec<Step>) {
    let n = every_call("").len();
    let keys: Vec<String> = (0..n).map(|i| format!("{state}{i}.")).collect();
    let made = keys.iter().flat_map(|key| make(key)).collect();
    let calls = keys.iter().enumerate().map(|(i, key)| by(client, every_call(key).remove(i)));
    (made, calls.collect())
}

/// What ends a state: look at everything, then remove it.
fn clear() -> Vec<Step> {
    vec![
        Step::Keys,
        by(1, Call::RemoveAll { force: false }),
        by(0, Call::RemoveAll { force: true }),
    ]
}

fn whole() -> Vec<Step> {
    let kept = |keep: Keep| move |key: &str| vec![by(0, put_kept(key, LEN, keep.clone()))];
    let mut steps = Vec::new();
    let mut add = |(made, calls): (Vec<Step>, Vec<Step>)| {
        steps.extend([made, calls, clear()].concat());
    };
    add(cells("absent", |_| Vec::new(), 1));
    add(cells("complete", kept(Keep::default()), 1));
    add(cells("local", kept(Keep::default()), 0));
    add(cells("soft", kept(soft()), 1));
    add(cells("hard", kept(hard()), 1));
    add(cells("leased", |key| vec![by(0, put(key, LEN)), by(0, exist(key))], 1));
    add(cells("pinned", |key| vec![by(0, put_kept(key, LEN, hard())), by(0, size(key))], 1));
    steps.extend([by(0, put("last", LEN)), by(1, exist("last")), wait(Wait::Leases)]);
    steps.extend([by(1, remove("last", false)), by(0, put("last", 3)), by(0, get("last", 3))]);
    steps
}

/// Ends and revocations of everything that [`cells`] started.
fn finish(state: &str) -> Vec<Step> {
    let keys = (0..every_call("").len()).map(|i| format!("{state}{i}."));
    let finish = |(i, key): (usize, String)| {
        by(0, if i % 2 == 0 { end(&key) } else { Call::Revoke { key } })
    };
    keys.enumerate().map(finish).collect()
}

fn unfinished() -> Vec<Step> {
    let begun = |key: &str| vec![by(0, start(key, LEN))];
    let mut steps = Vec::new();
    // By another client, and by the one that is writing.
    for (state, client) in [("writing", 1), ("own", 0)] {
        let (made, calls) = cells(state, begun, client);
        steps.extend([made, calls, vec![Step::Keys], finish(state), clear()].concat());
    }
    let (made, calls) = cells("stale", begun, 1);
    steps.extend(made);
    steps.extend([by(0, start("late", LEN)), by(0, start("given up", LEN))]);
    steps.push(wait(Wait::Discards));
    // Nobody took these over.
    steps.extend([by(0, end("late")), by(0, Call::Revoke { key: "given up".into() })]);
    steps.extend([by(1, exist("late")), by(1, exist("given up"))]);
    steps.extend([calls, vec![Step::Keys], finish("stale"), clear()].concat());
    steps
}

/// The one that wrote them was killed: first their keys are blocked, then they can be put again.
fn orphaned() -> Vec<Step> {
    let begun = |key: &str| vec![by(2, start(key, LEN))];
    let (made, calls) = cells("young", begun, 1);
    let (more, later) = cells("old", begun, 1);
    let mut steps = [made, more].concat();
    steps.extend([by(2, put("whole", LEN)), by(2, start("again", LEN))]);
    steps.push(event(Event::KillClient(2)));
    steps.extend([calls, vec![wait(Wait::Discards)], later].concat());
    steps.extend([by(1, put("again", 100)), by(0, get("again", 100)), by(1, get("whole", LEN))]);
    steps.extend(clear());
    steps
}

fn swept() -> Vec<Step> {
    vec![
        by(2, start("abandoned", LEN)),
        event(Event::KillClient(2)),
        by(0, size("abandoned")),
        until("abandoned", -704),
        by(0, put("abandoned", 100)),
        by(1, get("abandoned", 100)),
        Step::Keys,
    ]
}
