//! Room: pools and stores that are full, cycles that must not leak, giants.

use std::time::Duration;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{BLOCK, TAKEN, encoder, prefill},
};
use crate::{
    event::{Event, SaveEnd},
    plan::{Fault, Moment, Op, Plan},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f079_unread_items_make_room",
        rows: &["F079"],
        text: "an item that nobody ever reads holds no block once somebody needs it",
        make: |plan| {
            plan.with(|plan| plan.connector.encoder_pool_bytes = 2 * BLOCK)
                .fault(200, Fault::Crash { host: prefill(), for_ms: 2_900 })
                .with(|plan| plan.engine.prefill_timeout_ms = 100)
                .ask(300, &["a"])
                .ask(500, &["b", "c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c"] {
                ensure_eq!(look.saves("encoder0", item), [&SaveEnd::Stored], "save of {item}");
            }
            let usage = &look.end("encoder0")?.pools["worker"];
            ensure!(usage.counters.evictions >= 1, "nothing was evicted");
            Ok(())
        },
    },
    Scenario {
        name: "f080_used_bytes_are_those_of_what_is_held",
        rows: &["F080"],
        text: "after six loads into four blocks the pool accounts for four items, not for six",
        make: |plan| {
            plan.with(|plan| plan.connector.prefill_pool_bytes = 4 * BLOCK)
                .ask(300, &["a", "b", "c"])
                .ask(600, &["d", "e", "f"])
                .with(|plan| plan.phases.verify_ms = 0)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let usage = &look.end("prefill0")?.pools["scheduler"];
            ensure_eq!(usage.allocations, 4, "allocations");
            ensure_eq!((usage.resident, usage.free), (4 * TAKEN, usage.total - 4 * TAKEN), "bytes");
            let counters = &usage.counters;
            ensure_eq!(counters.allocated - counters.freed, 4, "allocated and not freed");
            look.all_answered()
        },
    },
    Scenario {
        name: "f086_sixty_four_saves_into_a_full_store",
        rows: &["F086"],
        text: "64 saves into a store that is full end with a reason each, and no request waits",
        make: |mut plan| {
            plan.topology.nodes = 1;
            plan.store.segment_bytes = 1 << 20;
            plan.store.lease_ttl_ms = 5_000;
            plan.store.watermark_permille = 1_000;
            plan.connector.attempts_max = 3;
            plan.engine.encode_us_per_row = 1;
            for group in 0..8 {
                let names: Vec<String> = (0..8).map(|n| format!("item{group}{n}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                plan = plan.ask(300 + 100 * group, &names);
            }
            plan
        },
        expect: |outcome| {
            let look = Look(outcome);
            let ends = |wanted: fn(&SaveEnd) -> bool| {
                look.count(|event| matches!(event, Event::SaveEnded { end, .. } if wanted(end)))
            };
            ensure_eq!(ends(|_| true), 64, "saves that ended");
            let full = ends(|end| *end == SaveEnd::Failed("NO_AVAILABLE_HANDLE (-200)".into()));
            ensure!(full >= 40, "saves that found the store full: {full}");
            ensure_eq!(ends(SaveEnd::is_saved) + full, 64, "saved, or full");
            let longest = (0..8).map(|n| look.duration(n)).max().unwrap_or_default();
            ensure!(longest < Duration::from_millis(900), "the longest request took {longest:?}");
            look.all_answered()
        },
    },
    Scenario {
        name: "f095_the_last_chunk_of_the_region",
        rows: &["F095"],
        text: "items that fill a pool to its last unit are sent from there, and come back",
        make: |plan| {
            plan.with(|plan| plan.connector.encoder_pool_bytes = 4 * BLOCK)
                .with(|plan| plan.connector.prefill_pool_bytes = 4 * BLOCK)
                .ask(300, &["a", "b", "c", "d"])
                .but(|request| request.items.iter_mut().for_each(|item| item.rows = 1_151))
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c", "d"] {
                ensure!(look.delivered(item) >= 1, "{item}: {:?}", look.misses(item));
            }
            for (host, owner) in [("encoder0", "worker"), ("prefill0", "scheduler")] {
                ensure_eq!(look.end(host)?.pools[owner].free, 0, "free bytes of {host}");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f107_sixty_cycles",
        rows: &["F107"],
        text: "sixty items through small pools: as many ends as beginnings, and one region",
        make: |plan| sixty(plan.with(small_pools)),
        expect: |outcome| {
            let look = Look(outcome);
            for (host, owner) in [("encoder0", "worker"), ("prefill0", "scheduler")] {
                let usage = &look.end(host)?.pools[owner];
                let counters = &usage.counters;
                ensure!(counters.allocated >= 60, "allocations of {host}: {}", counters.allocated);
                ensure_eq!(counters.allocated - counters.freed, usage.allocations, "of {host}");
                ensure_eq!(usage.total, 3 * BLOCK, "region of {host}");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f112_an_item_of_three_hundred_mebibytes",
        rows: &["F112"],
        text: "a giant (scaled down) and a small item: both arrive, the small one is not held up",
        make: |plan| {
            plan.with(|plan| plan.engine.encode_us_per_row = 1)
                .with(|plan| plan.connector.encoder_pool_bytes = 8 << 20)
                .with(|plan| plan.connector.prefill_pool_bytes = 8 << 20)
                .with(|plan| plan.connector.load_deadline_ms = 2_000)
                .ask(300, &["giant"])
                .but(|request| request.items[0].rows = 76_800)
                .ask(420, &["small"])
                .but(|request| request.items[0].rows = 256)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure!(look.delivered("giant") >= 1, "giant: {:?}", look.misses("giant"));
            ensure!(look.delivered("small") >= 1, "small: {:?}", look.misses("small"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f117_quarantine_is_back_pressure",
        rows: &["F117"],
        text: "more memory in quarantine than its budget, and saves are dropped, not put elsewhere",
        make: |plan| {
            let late = Fault::LateWrite {
                host: encoder(),
                op: Op::PutTransfer,
                late_ms: 400,
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.store.transfer_limit_ms = 300)
                .with(|plan| plan.connector.encoder_pool_bytes = 4 * BLOCK)
                .with(|plan| plan.connector.quarantine_permille = 100)
                .fault(300, late)
                .ask(310, &["a"])
                .ask(900, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let full = SaveEnd::Dropped("pool_full".into());
            ensure_eq!(look.saves("encoder0", "b"), [&full], "save of b");
            let counters = &look.end("encoder0")?.pools["worker"].counters;
            ensure!(counters.quarantine_full >= 1, "no allocation was refused for the quarantine");
            look.all_answered()
        },
    },
    Scenario {
        name: "f123_a_failure_at_every_step_of_a_load",
        rows: &["F123"],
        text: "loads that fail at every step, and one that is given up, leave no pin and no block",
        make: |plan| {
            let at = |op, item: &str| Fault::StoreCode {
                host: prefill(),
                op,
                code: -900,
                moment: Moment::After,
                item: Some(item.to_owned()),
                count: 9,
                for_ms: 2_000,
            };
            plan.with(|plan| plan.connector.attempts_max = 2)
                .fault(300, at(Op::Exists, "a"))
                .fault(300, at(Op::Query, "b"))
                .fault(300, at(Op::GetTransfer, "c"))
                .fault(
                    300,
                    Fault::ShortRead { host: prefill(), missing: 64, count: 1, for_ms: 300 },
                )
                .ask(310, &["d"])
                .ask(700, &["a", "b", "c"])
                .ask(1_200, &["e"])
                .but(|request| request.abort_after_ms = Some(25))
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c", "d"] {
                ensure!(!look.misses(item).is_empty(), "{item} was loaded");
            }
            let usage = &look.end("prefill0")?.pools["scheduler"];
            ensure_eq!((usage.pinned, usage.filling, usage.in_flight), (0, 0, 0), "held bytes");
            Ok(())
        },
    },
    Scenario {
        name: "f124_blocks_come_together_again",
        rows: &["F124"],
        text: "after small items in every block a large one still finds room in the pool",
        make: |plan| {
            let eighth = |request: &mut crate::plan::Request| {
                request.items.iter_mut().for_each(|item| item.rows = 120);
            };
            plan.with(|plan| {
                (plan.connector.encoder_pool_bytes, plan.connector.extents_max) = (BLOCK, 1)
            })
            .ask(300, &["a", "b", "c", "d", "e", "f", "g", "h"])
            .but(eighth)
            .ask(600, &["large"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "large"), [&SaveEnd::Stored], "save of large");
            ensure!(evictions(&look)? >= 8, "the small ones were not evicted");
            look.all_answered()
        },
    },
    Scenario {
        name: "f126_evictions_give_everything_back",
        rows: &["F126"],
        text: "an allocation that evicts again and again never uses more than the pool",
        make: |plan| sixty(plan.with(small_pools).with(|plan| plan.connector.extents_max = 1)),
        expect: |outcome| {
            let look = Look(outcome);
            let usage = &look.end("encoder0")?.pools["worker"];
            ensure!(usage.counters.evictions >= 50, "evictions: {}", usage.counters.evictions);
            ensure!(usage.peak_used <= 3 * BLOCK, "the pool used {}", usage.peak_used);
            ensure_eq!(usage.pinned, 0, "pinned bytes");
            look.all_answered()
        },
    },
    Scenario {
        name: "f088_evictions_spare_what_is_leased",
        rows: &["F088"],
        text: "a store that evicts all it may spares what a consumer has just asked for",
        make: |plan| {
            plan.with(|plan| plan.engine.cache_items_max = 1)
                .fault(
                    300,
                    Fault::Stall {
                        host: prefill(),
                        op: Op::GetTransfer,
                        stall_ms: 150,
                        item: None,
                        count: 1,
                        for_ms: 1_000,
                    },
                )
                .ask(310, &["a"])
                .fault(400, Fault::EvictAll)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.lost("a"), 0, "losses of a");
            ensure!(look.hits("a") >= 1, "a was not loaded: {:?}", look.misses("a"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f026_one_upload_for_a_set_that_two_requests_share",
        rows: &["F026"],
        text: "two requests with a common set save it once: joined saves end with the first",
        make: |plan| {
            // An engine that saves what a step has in common for each of its requests.
            let twice = Fault::DoubleSave { host: encoder(), count: 2, for_ms: 1_000 };
            plan.fault(300, twice)
                .fault(
                    300,
                    Fault::Stall {
                        host: encoder(),
                        op: Op::PutTransfer,
                        stall_ms: 60,
                        item: None,
                        count: 3,
                        for_ms: 1_000,
                    },
                )
                .ask(310, &["a", "b"])
                .ask(310, &["a", "b", "c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b"] {
                let ends = look.saves("encoder0", item);
                ensure!(ends.len() == 2 && ends.iter().all(|e| e.is_saved()), "{item}: {ends:?}");
                ensure_eq!(look.stored(item), 1, "objects of {item}");
            }
            ensure_eq!(look.saving("encoder0")?.puts, 3, "puts");
            look.all_answered()
        },
    },
];

fn small_pools(plan: &mut Plan) {
    plan.connector.encoder_pool_bytes = 3 * BLOCK;
    plan.connector.prefill_pool_bytes = 3 * BLOCK;
    plan.engine.cache_items_max = 4;
}

/// Sixty items, one after the other.
fn sixty(mut plan: Plan) -> Plan {
    for n in 0..60 {
        plan = plan.ask(220 + 50 * n, &[&format!("item{n:02}")]);
    }
    plan
}

fn evictions(look: &Look<'_>) -> Result<u64, String> {
    super::saving::evictions(look, "encoder0", "worker")
}
