//! The store: master and nodes that restart, die, forget or are full.

use std::time::Duration;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{encoder, prefill, stall},
};
use crate::{
    event::{Event, SaveEnd},
    plan::{Fault, MessageFate, Moment, Op},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f081_the_writer_dies_in_the_middle",
        rows: &["F081"],
        text: "a key whose writer died is not ready until the store discards the put, then good",
        make: |plan| {
            let fault = Fault::Stall {
                host: encoder(),
                op: Op::PutTransfer,
                stall_ms: 500,
                item: None,
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| {
                (plan.topology.encoders, plan.topology.prefills) = (2, 2);
                plan.store.put_discard_ms = 1_500;
                plan.engine.wait_ms = 300;
            })
            .fault(300, fault)
            .ask_at(310, &["a"], 0, 0)
            .fault(420, Fault::Crash { host: encoder(), for_ms: 2_000 })
            .ask_at(700, &["a"], 1, 1)
            .ask_at(2_500, &["a"], 1, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let ends = look.saves("encoder1", "a");
            ensure_eq!(ends.first(), Some(&&SaveEnd::TimedOut), "the save before the discard");
            ensure!(ends.last().is_some_and(|end| end.is_saved()), "the save after it: {ends:?}");
            ensure!(look.saving("encoder1")?.invisible >= 1, "no put was seen to store nothing");
            ensure_eq!(look.stored("a"), 1, "objects of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f081_a_probe_fails_over_a_half_written_key",
        rows: &["F081", "F010"],
        text: "a put over a key that its dead writer left behind stores nothing; a probe that fails is no proof",
        make: |plan| {
            let probe = Fault::StoreCode {
                host: "encoder1".to_owned(),
                op: Op::Exists,
                code: -900,
                moment: Moment::Before,
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| {
                (plan.topology.encoders, plan.topology.prefills) = (2, 2);
                plan.engine.wait_ms = 300;
            })
            .fault(300, stall(encoder(), Op::PutTransfer, 500))
            .ask_at(310, &["a"], 0, 0)
            .fault(420, Fault::Crash { host: encoder(), for_ms: 2_000 })
            .fault(600, probe)
            .ask_at(700, &["a"], 1, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = look.saves("encoder1", "a").first().copied();
            ensure_eq!(first, Some(&SaveEnd::TimedOut), "the save over the half-written key");
            ensure!(look.saving("encoder1")?.invisible >= 1, "no put was seen to store nothing");
            look.all_answered()
        },
    },
    Scenario {
        name: "f081_a_start_that_arrives_again",
        rows: &["F081"],
        text: "a duplicate of a put's start leaves the key half written; saves get through in the end",
        make: |plan| {
            let fault = Fault::Messages {
                host: encoder(),
                op: Op::PutStart,
                fate: MessageFate::Duplicate { after_ms: 300 },
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| {
                plan.topology.prefills = 2;
                plan.store.put_discard_ms = 800;
                plan.engine.wait_ms = 300;
            })
            .fault(300, fault)
            .ask_at(310, &["a"], 0, 0)
            .fault(500, Fault::Remove { item: "a".into() })
            .ask_at(700, &["a"], 0, 1)
            .ask_at(2_500, &["a"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let ends = look.saves("encoder0", "a");
            ensure_eq!(
                ends.get(1),
                Some(&&SaveEnd::TimedOut),
                "the save over the half-written key"
            );
            ensure!(ends.last().is_some_and(|end| end.is_saved()), "the last save: {ends:?}");
            ensure!(look.saving("encoder0")?.invisible >= 1, "no put was seen to store nothing");
            look.all_answered()
        },
    },
    Scenario {
        name: "f088_the_master_restarts_and_the_store_fills_again",
        rows: &["F088", "F090"],
        text: "after a restart of the master everything is saved and loaded anew",
        make: |plan| {
            plan.with(|plan| plan.engine.cache_items_max = 1)
                .ask(300, &["a"])
                .fault(600, Fault::Crash { host: "master".into(), for_ms: 200 })
                .ask(2_200, &["a"])
                .ask(2_600, &["b"])
                .with(|plan| plan.connector.prefill_pool_bytes = 73_728)
                .ask(2_900, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.stored("a"), 2, "objects of a over time");
            let lost = |event: &Event| matches!(event, Event::Lost { .. });
            ensure!(look.count(lost) >= 1, "the restart lost nothing");
            look.all_answered()
        },
    },
    Scenario {
        name: "f089_the_master_restarts_under_a_reader",
        rows: &["F089"],
        text: "bytes that were overwritten under an old descriptor are not believed",
        make: |plan| {
            let fault = Fault::Stall {
                host: prefill(),
                op: Op::GetTransfer,
                stall_ms: 1_300,
                item: Some("a".into()),
                count: 1,
                for_ms: 2_000,
            };
            plan.with(|plan| {
                plan.topology.nodes = 1;
                plan.connector.load_deadline_ms = 2_500;
                plan.connector.attempts_max = 1;
                plan.store.lease_ttl_ms = 5_000;
                plan.store.transfer_limit_ms = 5_000;
                plan.connector.io_timeout_ms = 6_000;
            })
            .fault(300, fault)
            .ask(310, &["a"])
            .fault(450, Fault::Crash { host: "master".into(), for_ms: 50 })
            .ask(1_550, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = look.misses("a").first().copied().unwrap_or_default();
            ensure!(first.starts_with("rejected"), "misses of a: {first}");
            look.all_answered()
        },
    },
    Scenario {
        name: "f092_the_only_node_leaves",
        rows: &["F092", "F041"],
        text: "objects that leave with their node are misses; the next save goes elsewhere",
        make: |plan| {
            plan.with(|plan| (plan.topology.nodes, plan.topology.prefills) = (1, 2))
                .ask_at(300, &["a"], 0, 0)
                .fault(500, Fault::Crash { host: "node0".into(), for_ms: 400 })
                .ask_at(600, &["a"], 0, 1)
                .but(|request| request.early = true)
                .ask_at(3_200, &["c"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let missed = |event: &Event| matches!(event, Event::Miss { request: 1, .. });
            ensure_eq!(look.count(missed), 1, "misses of request 1");
            let lost = |event: &Event| matches!(event, Event::Lost { .. });
            ensure!(look.count(lost) >= 1, "the node's end lost nothing");
            ensure!(look.hits("c") >= 1, "c was not loaded: {:?}", look.misses("c"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f094_a_node_that_times_out",
        rows: &["F094", "F086", "F001"],
        text: "saves to a node that does not answer never hold up a request beyond its wait",
        make: |plan| {
            plan.with(|plan| (plan.topology.nodes, plan.engine.wait_ms) = (1, 200))
                .fault(300, Fault::Pause { host: "node0".into(), for_ms: 1_500 })
                .ask(400, &["a"])
                .ask(700, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let longest = look.duration(0).max(look.duration(1));
            ensure!(longest < Duration::from_millis(900), "the longest request took {longest:?}");
            look.all_answered()
        },
    },
    Scenario {
        name: "f106_the_master_is_absent_at_the_start",
        rows: &["F106"],
        text: "instances that start without a master serve requests, and use it when it comes",
        make: |plan| {
            plan.with(|plan| plan.phases.warm_up_ms = 0)
                .fault(0, Fault::Crash { host: "master".into(), for_ms: 800 })
                .ask(200, &["a"])
                .ask(2_500, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "b"), [&SaveEnd::Stored], "save of b");
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            look.all_answered()
        },
    },
];
