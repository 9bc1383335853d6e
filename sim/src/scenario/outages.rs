//! A store that is down for a while, behind the link of the plug-in: nobody waits for it, and it is found again.

use std::time::Duration;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{ROWS, encoder, prefill},
};
use crate::{
    event::{Event, SaveEnd},
    plan::Fault,
    world::run::Outcome,
};

/// How a lookup or a put ends while the store is down.
const DOWN: &str = "UNAVAILABLE_IN_CURRENT_MODE (-1011)";
/// Requests while the store is down: each once with a connector and once where it has been shut down.
const ASKED: u32 = 18;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f063_the_store_is_down_for_a_minute",
        rows: &["F063"],
        text: "a store that is down for a minute costs one request its time limit and no other anything, is asked ever less often, and is used again",
        make: |mut plan| {
            plan = plan
                .with(|plan| (plan.topology.encoders, plan.topology.prefills) = (2, 2))
                .with(|plan| plan.connector.link = true)
                .with(|plan| plan.engine.encode_us_per_row = 1_000)
                .with(|plan| (plan.phases.inject_ms, plan.phases.heal_ms) = (61_000, 8_000))
                .with(|plan| plan.phases.verify_ms = 0)
                .fault(250, Fault::Close { host: "encoder1".into() })
                .fault(250, Fault::Close { host: "prefill1".into() })
                .fault(1_000, Fault::Crash { host: "master".into(), for_ms: 60_000 })
                .ask(1_500, &["first"]);
            // A prefill instance that has to encode does not wait for the encoder, which waits for its saves.
            for n in 0..ASKED {
                let at_ms = 6_000 + 3_000 * u64::from(n);
                for (item, instance) in [(format!("with{n}"), 0), (format!("without{n}"), 1)] {
                    plan = plan.ask_at(at_ms, &[&item], instance, instance);
                    plan = plan.but(|request| request.early = true);
                }
            }
            plan.ask(65_000, &["last"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for n in 0..ASKED {
                let (with, without) = (look.duration(1 + 2 * n), look.duration(2 + 2 * n));
                ensure!(with <= without + without / 100, "pair {n}: {with:?}, not {without:?}");
                let item = format!("with{n}");
                ensure_eq!(look.misses(&item), [DOWN], "misses of {item}");
            }
            // Nor does a save wait for more than its tensor, after the first.
            let encoding = Duration::from_millis(ROWS);
            let waits = waits(outcome, "encoder0");
            let longest = waits[1..=ASKED as usize].iter().max();
            ensure!(longest <= Some(&(encoding + encoding / 100)), "a wait took {longest:?}");
            let [saving, loading] = [("encoder0", 1), ("prefill0", 0)]
                .map(|(host, link)| look.end(host).map(|end| end.links[link].clone()));
            let (saving, loading) = (saving?, loading?);
            for link in [&saving, &loading] {
                ensure_eq!((link.came_up, link.went_down), (2, 1), "times up and down");
                // A try every two and a half seconds: a pause of two, and the time limit of a call.
                let tries = link.attempts_failed;
                ensure!((20..=32).contains(&tries), "tries while it was down: {tries}");
            }
            let refused: u64 = loading.refused.values().sum();
            // A lookup a request at least, and for a save two: is it there, and the put.
            let asked = u64::from(ASKED);
            ensure!((asked..2 * asked).contains(&refused), "refused: {:?}", loading.refused);
            ensure_eq!(saving.refused.get("put"), Some(&(asked + 1)), "puts that were refused");
            ensure_eq!(look.saves("encoder0", "last"), [&SaveEnd::Stored], "save of last");
            ensure_eq!(look.hits("last"), 1, "hits of last");
            ensure!(look.duration(0) < Duration::from_secs(4), "first: {:?}", look.duration(0));
            look.all_answered()
        },
    },
    Scenario {
        name: "f063_the_store_comes_after_its_instances",
        rows: &["F063"],
        text: "instances that start without a store encode at once, and use it as soon as it is there",
        make: |plan| {
            plan.with(|plan| plan.connector.link = true)
                .with(|plan| plan.phases.warm_up_ms = 0)
                .fault(0, Fault::Crash { host: "master".into(), for_ms: 1_500 })
                .ask(300, &["a"])
                .ask(4_000, &["b"])
                .with(|plan| plan.phases.heal_ms = 2_000)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let degraded = look.count(|event| matches!(event, Event::Degraded { .. }));
            ensure_eq!(degraded, 0, "instances without a connector");
            ensure_eq!(look.misses("a").first(), Some(&DOWN), "misses of a");
            ensure!(look.duration(0) < Duration::from_millis(100), "{:?}", look.duration(0));
            ensure_eq!(look.saves("encoder0", "b"), [&SaveEnd::Stored], "save of b");
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            for (host, link) in [(encoder(), 1), (prefill(), 0)] {
                let link = &look.end(&host)?.links[link];
                ensure_eq!((link.came_up, link.went_down), (1, 0), "times up and down of {host}");
                ensure!(link.attempts_failed >= 1, "{host} never tried in vain");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f088_what_is_held_is_published_again",
        rows: &["F088", "F090"],
        text: "an item that the store has lost and its encoder's engine still holds is stored again with the next request",
        make: |plan| {
            plan.with(|plan| plan.topology.prefills = 2)
                .ask_at(300, &["a"], 0, 0)
                .fault(600, Fault::Remove { item: "a".into() })
                .ask_at(900, &["a"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let stored = [&SaveEnd::Stored, &SaveEnd::Stored];
            ensure_eq!(look.saves("encoder0", "a"), stored, "saves of a");
            ensure_eq!((look.stored("a"), look.lost("a")), (2, 1), "times stored and lost");
            ensure!(look.misses("a").is_empty(), "misses of a: {:?}", look.misses("a"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f102_an_order_that_comes_twice_is_copied_once",
        rows: &["F102"],
        text: "an engine that schedules ahead sends an order again before its copy is acknowledged: it is copied once",
        make: |plan| {
            plan.with(|plan| plan.engine.schedules_ahead = true)
                .ask(300, &["a"])
                .but(|request| request.decode_steps = 4)
                .with(|plan| plan.phases.verify_ms = 0)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let loading = look.loading("prefill0")?;
            ensure_eq!((loading.orders, loading.acknowledged), (1, 1), "orders and acknowledged");
            ensure_eq!((look.hits("a"), look.delivered("a")), (1, 1), "hits and copies of a");
            look.all_answered()
        },
    },
];

/// How long each wait for saves of a host took, in order.
fn waits(outcome: &Outcome, host: &str) -> Vec<Duration> {
    let (mut began, mut waits) = (None, Vec::new());
    for recorded in outcome.events.iter().filter(|recorded| recorded.host == host) {
        match recorded.event {
            Event::WaitBegan { .. } => began = Some(recorded.time),
            Event::WaitEnded { .. } => {
                waits.extend(began.take().map(|began| recorded.time - began))
            }
            _ => {}
        }
    }
    waits
}
