//! Lookups and loads: what is no hit, what is given up in time, what is kept.

use std::time::Duration;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{encoder, prefill},
};
use crate::{
    event::{Event, SaveEnd},
    plan::{Fault, MessageFate, Moment, Op},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f009_a_miss_leaves_no_tensor",
        rows: &["F009"],
        text: "an item that is rejected is not in the engine's cache; it is encoded, not used",
        make: |plan| {
            plan.fault(300, flipped(Op::GetTransfer, prefill(), 1))
                .ask(310, &["a"])
                .ask(700, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.misses("a").first(), Some(&"rejected checksum"), "misses of a");
            ensure_eq!(look.requests().len(), 2, "requests that ended");
            look.all_answered()
        },
    },
    Scenario {
        name: "f010_a_negative_status_is_a_miss",
        rows: &["F010"],
        text: "an existence probe that fails is no hit: no load is scheduled, the error is counted",
        make: |plan| {
            let fault = Fault::StoreCode {
                host: prefill(),
                op: Op::Exists,
                code: -900,
                moment: Moment::Before,
                item: None,
                count: 1_000,
                for_ms: 2_900,
            };
            plan.fault(300, fault).ask(310, &["a"]).with(|plan| plan.phases.verify_ms = 0)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.hits("a"), 0, "hits of a");
            ensure_eq!(look.misses("a"), ["RPC_FAIL (-900)"], "misses of a");
            let loading = look.loading("prefill0")?;
            ensure_eq!(loading.gets, 0, "gets");
            ensure!(loading.errors.contains_key("RPC_FAIL (-900)"), "{:?}", loading.errors);
            look.all_answered()
        },
    },
    Scenario {
        name: "f012_a_short_read_is_a_miss",
        rows: &["F012"],
        text: "a get that delivers fewer bytes than the item has exposes none of them",
        make: |plan| {
            let fault =
                Fault::ShortRead { host: prefill(), missing: 512, count: 100, for_ms: 2_000 };
            plan.fault(300, fault).ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = look.misses("a").first().copied().unwrap_or_default();
            ensure!(first.starts_with("rejected"), "misses of a: {first}");
            look.all_answered()
        },
    },
    Scenario {
        name: "f029_asked_for_before_it_is_ready",
        rows: &["F029"],
        text: "a lookup while the item is being saved waits for it: not ready is not absent",
        make: |plan| {
            let fault = Fault::Stall {
                host: encoder(),
                op: Op::PutTransfer,
                stall_ms: 100,
                item: None,
                count: 1,
                for_ms: 1_000,
            };
            // The request reaches the prefill instance while the put runs.
            plan.fault(300, fault).ask(310, &["a"]).ask(345, &["a"]).but(|r| r.early = true)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let waits = |event: &Event| matches!(event, Event::Waiting { request: 1 });
            ensure_eq!(look.count(waits), 1, "waits of request 1");
            let missed = |event: &Event| matches!(event, Event::Miss { request: 1, .. });
            ensure_eq!(look.count(missed), 0, "misses of request 1: {:?}", look.misses("a"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f034_one_instance_with_both_roles",
        rows: &["F034"],
        text: "what lies in the pool is delivered without a call to the store",
        make: |plan| {
            plan.with(|plan| plan.connector.prefill_saves = true)
                .with(|plan| plan.engine.cache_items_max = 1)
                .ask(300, &["a"])
                .ask(500, &["b"])
                .ask(700, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.misses("a"), Vec::<&str>::new(), "misses of a");
            let loading = look.loading("prefill0")?;
            ensure!(loading.resident_hits >= 1, "resident hits: {}", loading.resident_hits);
            ensure_eq!(loading.gets, 2, "gets");
            look.all_answered()
        },
    },
    Scenario {
        name: "f035_a_slow_lookup_holds_up_nobody",
        rows: &["F035"],
        text: "while one request's lookup takes 300 ms another one is served",
        make: |plan| {
            let fault = Fault::Stall {
                host: prefill(),
                op: Op::Exists,
                stall_ms: 300,
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.fault(300, fault).ask(310, &["a"]).ask(400, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(look.duration(1) < Duration::from_millis(150), "b took {:?}", look.duration(1));
            look.all_answered()
        },
    },
    Scenario {
        name: "f037_a_preempted_request_gets_its_items_again",
        rows: &["F037"],
        text: "a request that loses its cache entries to a preemption is served all the same",
        make: |plan| plan.ask(300, &["a", "b"]).but(|r| (r.preempt, r.decode_steps) = (true, 3)),
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(look.hits("a") >= 1 && look.hits("b") >= 1, "a and b were not loaded");
            look.all_answered()
        },
    },
    Scenario {
        name: "f062_a_load_that_is_never_answered",
        rows: &["F062", "F063"],
        text: "lost replies end in a local encode by the load's deadline",
        make: |plan| plan.fault(300, lost_replies(Op::Query)).ask(310, &["a"]),
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.misses("a").first(), Some(&"deadline"), "misses of a");
            let deadline = Duration::from_millis(400);
            let limit = deadline + Duration::from_millis(150);
            ensure!(look.duration(0) < limit, "the request took {:?}", look.duration(0));
            look.all_answered()
        },
    },
    Scenario {
        name: "f068_one_of_three_is_encoded",
        rows: &["F068", "F067"],
        text: "one bad item of three is encoded, the other two are loaded, in one request",
        make: |plan| {
            let fault = Fault::FlippedByte {
                host: encoder(),
                op: Op::PutTransfer,
                position: 30_000,
                item: Some("b".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.fault(300, fault).ask(310, &["a", "b", "c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(look.hits("a") >= 1 && look.hits("c") >= 1, "a and c were not loaded");
            ensure_eq!(look.misses("b").first(), Some(&"rejected checksum"), "misses of b");
            look.all_answered()
        },
    },
    Scenario {
        name: "f077_gone_between_lookup_and_load",
        rows: &["F077"],
        text: "an item that vanishes between its lookup and its load is a miss, the request succeeds",
        make: |plan| {
            let fault = Fault::Stall {
                host: prefill(),
                op: Op::Query,
                stall_ms: 100,
                item: None,
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.connector.attempts_max = 1)
                .fault(300, fault)
                .fault(400, Fault::Remove { item: "a".into() })
                .ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::Stored], "save of a");
            ensure_eq!(look.misses("a").first(), Some(&"vanished"), "misses of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f083_the_lease_ends_during_the_read",
        rows: &["F083"],
        text: "a read that outlasts its lease is not believed, and the item is read again",
        make: |plan| {
            let fault = Fault::Stall {
                host: prefill(),
                op: Op::GetTransfer,
                stall_ms: 150,
                item: None,
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.store.lease_ttl_ms = 100).fault(300, fault).ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let loading = look.loading("prefill0")?;
            ensure!(loading.errors.contains_key("LEASE_EXPIRED (-707)"), "{:?}", loading.errors);
            ensure!(look.hits("a") >= 1, "a was not loaded: {:?}", look.misses("a"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f118_a_node_stands_still",
        rows: &["F118"],
        text: "a node that stops in the middle of a read costs the load, not the request",
        make: |plan| {
            plan.with(|plan| plan.topology.nodes = 1)
                .ask(300, &["a"])
                .fault(360, Fault::Pause { host: "node0".into(), for_ms: 2_500 })
                .ask(370, &["a"])
                .with(|plan| plan.engine.cache_items_max = 1)
                .ask(450, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let longest = (0..3).map(|request| look.duration(request)).max().unwrap_or_default();
            ensure!(longest < Duration::from_secs(3), "the longest request took {longest:?}");
            look.all_answered()
        },
    },
];

/// One byte of the payload is inverted on its way.
pub(super) fn flipped(op: Op, host: String, count: u32) -> Fault {
    Fault::FlippedByte { host, op, position: 30_000, item: None, count, for_ms: 2_000 }
}

fn lost_replies(op: Op) -> Fault {
    let (host, fate) = (prefill(), MessageFate::LoseReply);
    Fault::Messages { host, op, fate, item: None, count: 1_000, for_ms: 2_500 }
}
