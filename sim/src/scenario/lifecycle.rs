//! Start, crash and shutdown of instances.

use std::time::Duration;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{encoder, prefill},
};
use crate::{
    event::{Event, RequestEnd, SaveEnd},
    plan::{Fault, Moment, Op},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f011_registration_fails",
        rows: &["F011", "F059"],
        text: "memory that the store refuses is never used; the engine runs without a connector",
        make: |plan| {
            let fault = Fault::StoreCode {
                host: encoder(),
                op: Op::Register,
                code: -1,
                moment: Moment::Before,
                item: None,
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.phases.warm_up_ms = 0).fault(0, fault).ask(300, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let told = |event: &Event| matches!(event, Event::Degraded { reason } if reason.contains("INTERNAL_ERROR (-1)"));
            ensure_eq!(look.count(told), 1, "starts that failed with their code");
            let put = |event: &Event| matches!(event, Event::TransferBegan { put: true, .. });
            ensure_eq!(look.count(put), 0, "puts");
            look.all_answered()
        },
    },
    Scenario {
        name: "f023_close_with_a_stuck_put",
        rows: &["F023", "F060"],
        text: "a shutdown with a put that does not end returns by its deadline and reuses nothing",
        make: |plan| {
            let fault = Fault::Stall {
                host: encoder(),
                op: Op::PutTransfer,
                stall_ms: 1_400,
                item: None,
                count: 1,
                for_ms: 2_000,
            };
            plan.with(|plan| plan.engine.wait_ms = 100)
                .fault(300, fault)
                .ask(310, &["a"])
                .fault(500, Fault::Close { host: encoder() })
                .ask(600, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let closed = &look.end("encoder0")?.closed;
            let abandoned: usize = closed.iter().map(|report| report.abandoned).sum();
            ensure_eq!(abandoned, 1, "operations that the shutdown gave up");
            let closed = SaveEnd::Dropped("closed".into());
            ensure_eq!(look.saves("encoder0", "b"), [&closed], "save after the shutdown");
            let began = look.time(|event| matches!(event, Event::CloseBegan { .. }));
            let ended = look.time(|event| matches!(event, Event::CloseEnded { .. }));
            let (Some(began), Some(ended)) = (began, ended) else { return Err("no close".into()) };
            ensure!(ended - began <= Duration::from_millis(305), "it took {:?}", ended - began);
            look.all_answered()
        },
    },
    Scenario {
        name: "f033_a_request_ends_while_its_save_runs",
        rows: &["F033"],
        text: "a request that its client gives up leaves its save alone",
        make: |plan| {
            let fault = Fault::Stall {
                host: encoder(),
                op: Op::PutTransfer,
                stall_ms: 300,
                item: None,
                count: 1,
                for_ms: 1_000,
            };
            plan.fault(300, fault).ask(310, &["a"]).but(|r| r.abort_after_ms = Some(50))
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.requests().get(&0), Some(&&RequestEnd::Aborted), "the request");
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::Stored], "save of a");
            Ok(())
        },
    },
    Scenario {
        name: "f069_start_and_stop_again",
        rows: &["F069", "F107"],
        text: "an instance that dies and starts again saves and loads as before",
        make: |plan| {
            plan.ask(300, &["a"])
                .fault(500, Fault::Crash { host: prefill(), for_ms: 300 })
                .ask(900, &["a"])
                .fault(1_200, Fault::Crash { host: encoder(), for_ms: 300 })
                .ask(1_700, &["a", "b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(look.hits("a") >= 2, "a was not loaded again: {:?}", look.misses("a"));
            ensure_eq!(look.saves("encoder0", "b"), [&SaveEnd::Stored], "save of b");
            let again = look.saves("encoder0", "a");
            ensure_eq!(again.last(), Some(&&SaveEnd::AlreadyThere), "save of a by the new encoder");
            look.all_answered()
        },
    },
    Scenario {
        name: "f118_an_instance_stands_still",
        rows: &["F118"],
        text: "an instance that stands still for a second goes on where it was",
        make: |plan| {
            plan.ask(300, &["a"])
                .fault(330, Fault::Pause { host: encoder(), for_ms: 1_000 })
                .fault(1_400, Fault::Pause { host: prefill(), for_ms: 700 })
                .ask(1_390, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(look.saves("encoder0", "a").iter().all(|end| end.is_saved()), "save of a");
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            look.all_answered()
        },
    },
];
