//! Starts and ends of instances: registration, an absent master, a clean shutdown.

use std::time::Duration;

use springtide::env::Fence;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{encoder, fails, prefill, stall},
};
use crate::{
    event::{Event, SaveEnd},
    plan::{Fault, Op},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f046_without_a_connector_everything_is_encoded",
        rows: &["F046", "F059"],
        text: "an instance whose memory the store refuses encodes every item, as without a connector",
        make: |plan| {
            plan.with(|plan| plan.phases.warm_up_ms = 0)
                .fault(0, fails(prefill(), Op::Register, -1))
                .ask(300, &["a", "b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b"] {
                let reasons = look.misses(item);
                let all = reasons.iter().all(|reason| *reason == "no connector");
                ensure!(all && !reasons.is_empty(), "misses of {item}: {reasons:?}");
                ensure_eq!(look.saves("encoder0", item), [&SaveEnd::Stored], "save of {item}");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f064_a_registration_that_takes_a_second",
        rows: &["F064"],
        text: "a registration that is answered late delays the start, and ends it well",
        make: |plan| {
            plan.with(|plan| plan.phases.warm_up_ms = 0)
                .fault(0, stall(encoder(), Op::Register, 1_000))
                .ask(300, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let degraded = look.count(|event| matches!(event, Event::Degraded { .. }));
            ensure_eq!(degraded, 0, "instances without a connector");
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::Stored], "save of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f075_two_pools_of_one_instance",
        rows: &["F075"],
        text: "an instance that loads and saves registers two regions that do not overlap",
        make: |plan| {
            plan.with(|plan| plan.connector.prefill_saves = true)
                .fault(200, fails(encoder(), Op::PutStart, -200))
                .ask(300, &["a"])
                .but(|request| request.early = true)
                .ask(800, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let pools: Vec<&str> = look.end("prefill0")?.pools.keys().copied().collect();
            ensure_eq!(pools, ["scheduler", "worker"], "pools of the instance");
            let degraded = look.count(|event| matches!(event, Event::Degraded { .. }));
            ensure_eq!(degraded, 0, "instances without a connector");
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f096_a_refused_registration_names_its_length",
        rows: &["F096"],
        text: "a start that fails at the registration says how many bytes, and with which code",
        make: |plan| {
            plan.with(|plan| plan.phases.warm_up_ms = 0)
                .fault(0, fails(encoder(), Op::Register, -600))
                .ask(300, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let named = |event: &Event| match event {
                Event::Degraded { reason } => {
                    // 4 MiB in whole units of 576 bytes.
                    reason.contains("registering 4193856 bytes") && reason.contains("(-600)")
                }
                _ => false,
            };
            ensure_eq!(look.count(named), 1, "starts that named length and code");
            look.all_answered()
        },
    },
    Scenario {
        name: "f099_memory_that_stays_registered",
        rows: &["F099"],
        text: "memory whose registration does not end at the shutdown stays mapped, and is told",
        make: |plan| {
            plan.fault(300, fails(encoder(), Op::Unregister, -1))
                .ask(310, &["a"])
                .fault(500, Fault::Close { host: encoder() })
        },
        expect: |outcome| {
            let look = Look(outcome);
            let end = look.end("encoder0")?;
            let leaked: u64 = end.closed.iter().map(|report| report.leaked_bytes).sum();
            ensure_eq!(leaked, end.pools["worker"].total, "bytes that stayed mapped");
            look.all_answered()
        },
    },
    Scenario {
        name: "f101_nothing_is_moved_without_a_registration",
        rows: &["F101"],
        text: "after a refused registration no buffer of that pool reaches the store",
        make: |plan| {
            plan.with(|plan| plan.phases.warm_up_ms = 0)
                .fault(0, fails(prefill(), Op::Register, -600))
                .fault(0, fails(encoder(), Op::Register, -600))
                .ask(300, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let moved = look.count(|event| matches!(event, Event::TransferBegan { .. }));
            ensure_eq!(moved, 0, "transfers");
            look.all_answered()
        },
    },
    Scenario {
        name: "f104_thirty_two_first_contacts",
        rows: &["F104"],
        text: "32 requests at one instant, before anybody has spoken to anybody, are all served",
        make: |mut plan| {
            (plan.topology.encoders, plan.topology.prefills) = (2, 2);
            plan.engine.encode_us_per_row = 1;
            for n in 0..32u32 {
                let (encoder, prefill) = (n % 2, n / 2 % 2);
                plan = plan.ask_at(1, &[&format!("item{n}")], encoder, prefill);
            }
            plan
        },
        expect: |outcome| {
            let look = Look(outcome);
            let stored = look.count(|event| matches!(event, Event::Stored { .. }));
            ensure_eq!(stored, 32, "objects");
            ensure_eq!(look.requests().len(), 32, "requests that ended");
            look.all_answered()
        },
    },
    Scenario {
        name: "f090_a_start_while_the_master_is_away",
        rows: &["F090"],
        text: "an instance that starts while the master restarts is there, and works when it is back",
        make: |plan| {
            plan.ask(300, &["a"])
                .fault(500, Fault::Crash { host: "master".into(), for_ms: 900 })
                .fault(600, Fault::Crash { host: prefill(), for_ms: 200 })
                .ask(900, &["a"])
                .ask(2_900, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let degraded = look.count(|event| matches!(event, Event::Degraded { .. }));
            ensure_eq!(degraded, 0, "instances without a connector");
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f110_a_clean_end",
        rows: &["F110"],
        text: "at the end of a quiet run every instance gives all of its memory back, fenced",
        make: |plan| plan.ask(300, &["a", "b"]).ask(600, &["b", "c"]),
        expect: |outcome| {
            for (host, end) in &outcome.finals {
                ensure!(!end.closed.is_empty(), "{host} was not closed");
                for report in &end.closed {
                    ensure_eq!(report.abandoned, 0, "operations that {host} gave up");
                    ensure_eq!(report.leaked_bytes, 0, "bytes that {host} kept");
                    ensure_eq!(report.fence, Fence::Fenced, "fence of {host}");
                }
            }
            Look(outcome).all_answered()
        },
    },
    Scenario {
        name: "f023_close_during_a_load",
        rows: &["F023"],
        text: "a shutdown with a get that does not end returns in time; its requests are encoded",
        make: |plan| {
            plan.fault(300, stall(prefill(), Op::GetTransfer, 1_400))
                .ask(310, &["a"])
                .fault(450, Fault::Close { host: prefill() })
                .ask(900, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = |item| look.misses(item).first().copied();
            ensure_eq!(first("a"), Some("closed"), "misses of a");
            ensure_eq!(first("b"), Some("closed"), "misses of b");
            let began = look.time(|event| matches!(event, Event::CloseBegan { .. }));
            let ended = look.time(|event| matches!(event, Event::CloseEnded { .. }));
            let (Some(began), Some(ended)) = (began, ended) else { return Err("no close".into()) };
            ensure!(ended - began <= Duration::from_millis(305), "it took {:?}", ended - began);
            look.all_answered()
        },
    },
    Scenario {
        name: "f023_a_close_that_does_not_fence",
        rows: &["F023"],
        text: "a store that cannot say that its I/O is over: all memory stays mapped, and is told",
        make: |plan| {
            let late = Fault::LateWrite {
                host: prefill(),
                op: Op::GetTransfer,
                late_ms: 1_500,
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| (plan.store.close_fences, plan.store.transfer_limit_ms) = (false, 200))
                .fault(300, late)
                .ask(310, &["a"])
                .fault(800, Fault::Close { host: prefill() })
        },
        expect: |outcome| {
            let look = Look(outcome);
            let end = look.end("prefill0")?;
            let leaked: u64 = end.closed.iter().map(|report| report.leaked_bytes).sum();
            let usage = &end.pools["scheduler"];
            ensure_eq!(leaked, usage.total, "bytes that stayed mapped");
            ensure!(usage.quarantined > 0, "the quarantine has ended");
            look.all_answered()
        },
    },
    Scenario {
        name: "f041_a_node_starts_anew_under_a_reader",
        rows: &["F041"],
        text: "a descriptor of a node that has started anew is a miss, not an exception",
        make: |plan| {
            plan.with(|plan| (plan.topology.nodes, plan.store.transfer_limit_ms) = (1, 600))
                .fault(300, stall(prefill(), Op::GetTransfer, 300))
                .ask(310, &["a"])
                .fault(400, Fault::Crash { host: "node0".into(), for_ms: 50 })
                .ask(2_900, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(!look.misses("a").is_empty(), "a was loaded from a node that had died");
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            look.all_answered()
        },
    },
];
