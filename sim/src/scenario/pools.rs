//! The pool: eviction, stale handles, odd sizes, other holders.

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{BLOCK, prefill},
    saving::evictions,
};
use crate::{
    event::{Event, SaveEnd},
    plan::{Direction, Fault, Op},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f003_a_handle_outlives_its_block",
        rows: &["F003"],
        text: "an item whose block was evicted and reissued is saved again from its tensor",
        make: |plan| {
            plan.with(|plan| plan.connector.encoder_pool_bytes = BLOCK)
                .with(|plan| plan.topology.prefills = 2)
                .ask_at(300, &["a"], 0, 0)
                .ask_at(500, &["b"], 0, 0)
                .fault(700, Fault::Remove { item: "a".into() })
                .ask_at(800, &["a"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let stored = [&SaveEnd::Stored, &SaveEnd::Stored];
            ensure_eq!(look.saves("encoder0", "a"), stored, "saves of a");
            ensure_eq!(look.saving("encoder0")?.reused, 0, "uploads from the pool");
            ensure!(evictions(&look, "encoder0", "worker")? >= 2, "nothing was evicted");
            ensure_eq!(look.misses("a"), Vec::<&str>::new(), "misses of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f004_a_load_evicts_the_idle_only",
        rows: &["F004"],
        text: "a load that needs room takes the idle block, not the one that another load fills",
        make: |plan| {
            let fault = Fault::Stall {
                host: prefill(),
                op: Op::GetTransfer,
                stall_ms: 250,
                item: Some("b".into()),
                count: 1,
                for_ms: 2_000,
            };
            plan.with(|plan| plan.connector.prefill_pool_bytes = 2 * BLOCK)
                .fault(250, fault)
                .ask(300, &["a"])
                .ask(500, &["b"])
                .ask(600, &["c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c"] {
                let hit = look
                    .time(|event| matches!(event, Event::Hit { key, .. } if key.ends_with(item)));
                ensure!(hit.is_some(), "{item} was not loaded: {:?}", look.misses(item));
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f013_the_last_bytes_of_an_odd_pool",
        rows: &["F013", "F095"],
        text: "a pool that is no power of two is usable, registered and given back to its last byte",
        make: |plan| {
            let odd = 3 * BLOCK + BLOCK / 2 + 17;
            plan.with(|plan| plan.connector.encoder_pool_bytes = odd)
                .with(|plan| plan.connector.prefill_pool_bytes = odd)
                .ask(300, &["a", "b", "c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for (host, owner) in [("encoder0", "worker"), ("prefill0", "scheduler")] {
                let end = look.end(host)?;
                ensure_eq!(end.pools[owner].total, 3 * BLOCK + BLOCK / 2, "pool of {host}");
                let leaked: u64 = end.closed.iter().map(|report| report.leaked_bytes).sum();
                ensure_eq!(leaked, 0, "bytes that {host} did not give back");
            }
            for item in ["a", "b", "c"] {
                ensure!(look.hits(item) >= 1, "{item} was not loaded: {:?}", look.misses(item));
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f032_saves_without_a_reader",
        rows: &["F032", "F079", "F080"],
        text: "forty saves that nobody reads stay within the pool and the store",
        make: |mut plan| {
            plan.connector.encoder_pool_bytes = 4 * BLOCK;
            plan.store.segment_bytes = 1 << 20;
            plan.topology.nodes = 1;
            plan.store.lease_ttl_ms = 50;
            for n in 0..40 {
                plan = plan.ask(300 + 60 * n, &[&format!("item{n}")]);
            }
            plan
        },
        expect: |outcome| {
            let look = Look(outcome);
            let usage = &look.end("encoder0")?.pools["worker"];
            ensure!(usage.peak_used <= 4 * BLOCK, "the pool used {}", usage.peak_used);
            ensure!(usage.counters.evictions > 20, "evictions: {}", usage.counters.evictions);
            let saved = outcome.stats.saved;
            ensure!(saved >= 40, "saved {saved} of 40");
            look.all_answered()
        },
    },
    Scenario {
        name: "f058_the_slowest_rank_holds_the_block",
        rows: &["F058"],
        text: "an item stays in place until the last of two ranks has copied it",
        make: |plan| {
            let fault = Fault::SlowCopy {
                host: prefill(),
                direction: Direction::In,
                late_ms: 350,
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.topology.tensor_parallel = 2)
                .with(|plan| plan.connector.prefill_pool_bytes = BLOCK)
                .fault(250, fault)
                .ask(300, &["a"])
                .ask(300, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = |item: &'static str| {
                look.time(
                    |event| matches!(event, Event::Delivered { key, .. } if key.ends_with(item)),
                )
            };
            ensure!(first("a").is_some(), "a was not loaded: {:?}", look.misses("a"));
            ensure_eq!(look.delivered("a"), 2 * look.hits("a"), "deliveries of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f038_somebody_else_holds_the_pool",
        rows: &["F038"],
        text: "while others hold the pool loads are misses, and the engine makes progress",
        make: |plan| {
            let hog = Fault::HogPool { host: prefill(), permille: 1_000, for_ms: 1_500 };
            plan.fault(300, hog).ask(400, &["a", "b"]).ask(2_200, &["c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b"] {
                ensure_eq!(look.misses(item).first(), Some(&"pool full"), "misses of {item}");
            }
            ensure!(look.hits("c") >= 1, "c was not loaded: {:?}", look.misses("c"));
            look.all_answered()
        },
    },
];
