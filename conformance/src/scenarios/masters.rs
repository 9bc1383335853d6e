//! A master that is killed or stopped. Without one each call takes about four seconds in Mooncake.

use super::{Scenario, write::*};
use crate::step::{Call, Event, Keep, Step, Wait, World};

pub(super) fn all() -> Vec<Scenario> {
    let world = World { segments: vec![32 << 20, 0], ..World::default() };
    let hangs = World { rpc_timeout_ms: 2000, client_ttl_s: 60, ..world.clone() };
    let scenario = |name, world, steps| Scenario { name, world, steps, slow: None };
    vec![
        scenario("the_master_restarts", world, restarts()),
        scenario("the_master_is_stopped", hangs, is_stopped()),
    ]
}

/// One object complete, one leased, one unfinished.
fn before() -> Vec<Step> {
    vec![
        by(0, put("complete", LEN)),
        by(0, put("leased", LEN)),
        by(1, exist("leased")),
        by(0, start("unfinished", LEN)),
    ]
}

fn restarts() -> Vec<Step> {
    let mut steps = before();
    steps.push(event(Event::KillMaster));
    steps.extend([by(0, exist("complete")), by(1, get("complete", LEN)), by(0, put("new", LEN))]);
    let keys = vec!["complete".to_owned(), "leased".to_owned()];
    steps.extend([by(1, Call::BatchIsExist { keys }), by(1, remove("complete", true))]);
    let objects = vec![object("new", LEN), object("", 1), object("zero", 0)];
    steps.push(by(0, Call::BatchPutFrom { objects, keep: Keep::default() }));
    steps.extend([event(Event::StartMaster), wait(Wait::Mounted)]);
    steps.extend([by(0, exist("complete")), by(1, size("leased")), by(1, get("complete", LEN))]);
    steps.extend([by(0, end("unfinished")), by(1, exist("new")), Step::Keys]);
    steps.extend([
        by(1, put("complete", 100)),
        by(0, get("complete", 100)),
        by(1, get("complete", 100)),
    ]);
    steps
}

/// One call of each client: a second one to a stopped master may be refused at once, and then has no effect.
fn is_stopped() -> Vec<Step> {
    let mut steps = before();
    steps.push(event(Event::StopMaster));
    steps.extend([by(0, put("late", LEN)), by(1, size("nothing"))]);
    steps.push(event(Event::ContinueMaster));
    // The put that timed out was begun all the same: its key is blocked.
    steps.extend([until("late", -703), by(1, put("late", 5)), by(1, exist("late"))]);
    steps.extend([
        by(0, end("unfinished")),
        by(1, get("complete", LEN)),
        by(1, get("unfinished", LEN)),
    ]);
    steps.extend([wait(Wait::Discards), by(1, put("late", 5)), by(0, get("late", 5)), Step::Keys]);
    steps
}
