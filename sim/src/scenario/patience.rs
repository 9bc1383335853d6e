//! Waiting: nothing waits without a bound, and nobody waits for somebody else's trouble.

use std::time::Duration;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{BLOCK, TAKEN, encoder, fails, prefill, stall},
};
use crate::{
    event::{Event, RequestEnd, SaveEnd, TransferEnd},
    plan::{Fault, MessageFate, Moment, Op},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f028_a_node_falls_silent_under_a_put",
        rows: &["F028"],
        text: "a put to a node that falls silent: no clock frees its block, only an end or a fence",
        make: |plan| {
            plan.with(|plan| (plan.topology.nodes, plan.store.transfer_limit_ms) = (1, 300))
                .with(|plan| plan.connector.quarantine_permille = 1_000)
                .fault(335, Fault::Pause { host: "node0".into(), for_ms: 2_500 })
                .ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let uncertain = SaveEnd::Failed("uncertain TRANSFER_FAIL (-800)".into());
            ensure_eq!(look.saves("encoder0", "a"), [&uncertain], "save of a");
            let end = look.end("encoder0")?;
            ensure_eq!(end.pools["worker"].counters.quarantined_uncertain, 1, "quarantined");
            let released: u64 = end.closed.iter().map(|report| report.released_bytes).sum();
            ensure_eq!(released, TAKEN, "bytes that the fence released");
            look.all_answered()
        },
    },
    Scenario {
        name: "f030_one_instance_dies_with_its_request",
        rows: &["F030"],
        text: "a request whose instance dies for good fails alone: the others are answered",
        make: |plan| {
            plan.with(|plan| (plan.topology.encoders, plan.topology.prefills) = (2, 2))
                .with(|plan| plan.engine.prefill_timeout_ms = 300)
                .ask_at(300, &["a"], 0, 0)
                .ask_at(300, &["a", "b"], 1, 1)
                .fault(310, Fault::Crash { host: prefill(), for_ms: 2_800 })
                .ask_at(500, &["a", "c"], 1, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let requests = look.requests();
            let failed = matches!(requests.get(&0), Some(RequestEnd::Failed(_)));
            ensure!(failed, "request 0: expected to fail, {:?}", requests.get(&0));
            for request in [1, 2] {
                ensure_eq!(requests.get(&request), Some(&&RequestEnd::Done), "request {request}");
            }
            Ok(())
        },
    },
    Scenario {
        name: "f035_one_lookup_for_twenty_requests",
        rows: &["F035"],
        text: "twenty requests that wait for one slow lookup ask the store once",
        make: |mut plan| {
            plan.engine.batch_requests_max = 32;
            plan = plan.fault(300, stall(prefill(), Op::Exists, 200)).ask(310, &["a"]);
            for _ in 0..19 {
                plan = plan.ask(330, &["a"]).but(|request| request.early = true);
            }
            plan.with(|plan| plan.phases.verify_ms = 0)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let loading = look.loading("prefill0")?;
            ensure!(loading.exists <= 3, "lookups in the store: {}", loading.exists);
            ensure_eq!(loading.gets, 1, "gets");
            look.all_answered()
        },
    },
    Scenario {
        name: "f040_nobody_has_saved_it",
        rows: &["F040"],
        text: "a consumer that is asked for what no producer saves answers at once, with the reason",
        make: |plan| {
            plan.fault(200, Fault::Crash { host: encoder(), for_ms: 3_000 })
                .ask(300, &["a"])
                .but(|request| request.early = true)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.misses("a").first(), Some(&"absent"), "misses of a");
            ensure!(look.duration(0) < Duration::from_millis(150), "{:?}", look.duration(0));
            look.all_answered()
        },
    },
    Scenario {
        name: "f056_lookups_overtake_transfers",
        rows: &["F056"],
        text: "while twenty items are on their way a small one is looked up, loaded and answered",
        make: |mut plan| {
            plan.connector.in_flight_bytes_max = 32 << 20;
            plan.engine.encode_us_per_row = 1;
            let stalled = Fault::Stall {
                host: encoder(),
                op: Op::PutTransfer,
                stall_ms: 1_000,
                item: Some("big".into()),
                count: 20,
                for_ms: 2_000,
            };
            plan = plan.with(|plan| plan.engine.wait_ms = 50).fault(300, stalled);
            for n in 0..20 {
                plan = plan.ask(310, &[&format!("big{n}")]);
            }
            plan.ask(500, &["small"]).but(|request| request.items[0].rows = 16)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "small"), [&SaveEnd::Stored], "save of small");
            ensure!(look.duration(20) < Duration::from_millis(250), "{:?}", look.duration(20));
            look.all_answered()
        },
    },
    Scenario {
        name: "f060_an_abort_waits_for_no_transfer",
        rows: &["F060"],
        text: "a request is given up while its get stands still: the next step is not held up",
        make: |plan| {
            plan.fault(300, stall(prefill(), Op::GetTransfer, 1_200))
                .ask(310, &["a"])
                .but(|request| request.abort_after_ms = Some(120))
                .ask(450, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.requests().get(&0), Some(&&RequestEnd::Aborted), "request 0");
            ensure_eq!(look.requests().get(&1), Some(&&RequestEnd::Done), "request 1");
            ensure!(look.duration(1) < Duration::from_millis(150), "{:?}", look.duration(1));
            Ok(())
        },
    },
    Scenario {
        name: "f063_cut_off_from_the_master",
        rows: &["F063"],
        text: "a consumer that cannot reach the master encodes by the load's deadline, then recovers",
        make: |plan| {
            let (a, b) = (prefill(), "master".to_owned());
            plan.fault(320, Fault::Partition { a, b, for_ms: 1_500 })
                .ask(310, &["a"])
                .ask(2_600, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(!look.misses("a").is_empty(), "a was loaded without a master");
            ensure!(look.duration(0) < Duration::from_millis(600), "{:?}", look.duration(0));
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f066_a_load_fails_where_saves_are_made",
        rows: &["F066"],
        text: "an instance of both roles whose load fails encodes, and finds the item saved already",
        make: |plan| {
            let fault = fails(prefill(), Op::GetTransfer, -900);
            plan.with(|plan| plan.connector.prefill_saves = true)
                .with(|plan| plan.connector.attempts_max = 1)
                .fault(300, fault)
                .ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.misses("a").first(), Some(&"RPC_FAIL (-900)"), "misses of a");
            let there = look.saves("prefill0", "a");
            ensure_eq!(there.first(), Some(&&SaveEnd::AlreadyThere), "its save");
            look.all_answered()
        },
    },
    Scenario {
        name: "f067_six_codes_fail_six_items",
        rows: &["F067"],
        text: "six items of a request fail with six codes: six reasons; the seventh is loaded",
        make: |mut plan| {
            plan.connector.attempts_max = 1;
            plan.connector.load_deadline_ms = 1_000;
            for (item, code) in ITEMS.iter().zip(CODES) {
                let fault = Fault::StoreCode {
                    host: prefill(),
                    op: Op::GetTransfer,
                    code,
                    moment: Moment::Before,
                    item: Some((*item).to_owned()),
                    count: 9,
                    for_ms: 2_000,
                };
                plan = plan.fault(300, fault);
            }
            plan.ask(310, &["a", "b", "c", "d", "e", "f", "g"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for (item, code) in ITEMS.iter().zip(CODES) {
                let first = look.misses(item).first().copied().unwrap_or_default();
                let named = first.contains(&format!("({code})"))
                    || ["vanished", "not ready"].contains(&first);
                ensure!(named, "{item} failed with {code}, it is a miss for: {first}");
            }
            ensure!(look.hits("g") >= 1, "g was not loaded: {:?}", look.misses("g"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f078_a_store_call_panics",
        rows: &["F078"],
        text: "a panic in the store's client costs the items of its call, and is a reason",
        make: |plan| {
            let panics = |host, op| Fault::Panic { host, op, count: 1, for_ms: 1_000 };
            plan.fault(300, panics(encoder(), Op::PutStart))
                .fault(300, panics(prefill(), Op::Query))
                .ask(310, &["a"])
                .ask(600, &["b"])
                .ask(2_000, &["c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let panicked = |event: &Event| match event {
                Event::TransferEnded { end: TransferEnd::Uncertain(why), .. } => why == "panic",
                _ => false,
            };
            ensure_eq!(look.count(panicked), 2, "calls that panicked");
            let saved = look.saves("encoder0", "a").iter().any(|end| end.is_saved());
            ensure!(!saved, "a was reported as saved by a call that panicked");
            ensure!(look.hits("c") >= 1, "c was not loaded: {:?}", look.misses("c"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f102_the_answer_comes_after_the_effect",
        rows: &["F102"],
        text: "a put whose answer is late has its block until the answer, though the bytes have gone",
        make: |plan| {
            let late = Fault::Messages {
                host: encoder(),
                op: Op::PutTransfer,
                fate: MessageFate::DelayReply { by_ms: 500 },
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| {
                (plan.connector.encoder_pool_bytes, plan.engine.wait_ms) = (BLOCK, 100)
            })
            .fault(300, late)
            .ask(310, &["a"])
            .ask(600, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::TimedOut], "save of a");
            let full = SaveEnd::Dropped("pool_full".into());
            ensure_eq!(look.saves("encoder0", "b"), [&full], "save of b");
            ensure_eq!(look.stored("a"), 1, "objects of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f115_a_timeout_is_told",
        rows: &["F115"],
        text: "a save that times out is in its report, in the counters, and in no success",
        make: |plan| {
            plan.with(|plan| plan.engine.wait_ms = 100)
                .fault(300, stall(encoder(), Op::PutTransfer, 800))
                .ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::TimedOut], "save of a");
            let saving = look.saving("encoder0")?;
            ensure_eq!((saving.timed_out, saving.stored, saving.late), (1, 0, 1), "counters");
            look.all_answered()
        },
    },
    Scenario {
        name: "f122_a_late_read_lands_in_quarantine",
        rows: &["F122"],
        text: "a get that is given up and writes later writes into memory that nobody has",
        make: |plan| {
            let late = Fault::LateWrite {
                host: prefill(),
                op: Op::GetTransfer,
                late_ms: 400,
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.store.transfer_limit_ms = 200)
                .with(|plan| plan.connector.prefill_pool_bytes = 2 * BLOCK)
                .with(|plan| plan.connector.quarantine_permille = 1_000)
                .fault(300, late)
                .ask(310, &["a"])
                .ask(650, &["b"])
                .ask(750, &["c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = look.misses("a").first().copied();
            ensure_eq!(first, Some("uncertain TRANSFER_FAIL (-800)"), "misses of a");
            ensure!(look.hits("b") >= 1 && look.hits("c") >= 1, "b and c were not loaded");
            let counters = &look.end("prefill0")?.pools["scheduler"].counters;
            ensure_eq!(counters.quarantined_uncertain, 1, "quarantined allocations");
            look.all_answered()
        },
    },
];

const ITEMS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const CODES: [i32; 6] = [-1, -200, -703, -704, -900, -1012];
