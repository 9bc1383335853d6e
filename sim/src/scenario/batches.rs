//! Batches: one failing item, room for some, a call that fails whole.

use springtide::connector::HEADER_BYTES;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{BLOCK, ROWS, encoder, prefill, stall},
    saving::store_code,
};
use crate::{
    event::SaveEnd,
    plan::{Fault, Moment, Op},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f014_a_batch_get_fails_whole",
        rows: &["F014"],
        text: "a batch of four that fails is four misses, and the pool is as before",
        make: |plan| {
            let fault = Fault::StoreCode {
                host: prefill(),
                op: Op::Query,
                code: -1012,
                moment: Moment::Before,
                item: None,
                count: 4,
                for_ms: 1_000,
            };
            plan.fault(300, fault).ask(310, &["a", "b", "c", "d"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c", "d"] {
                let first = look.misses(item).first().copied();
                ensure_eq!(first, Some("NOT_SUPPORTED (-1012)"), "miss of {item}");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f015_room_for_two_of_three",
        rows: &["F015"],
        text: "a batch of three with room for two loads two; the third is a miss, nothing leaks",
        make: |plan| {
            plan.with(|plan| plan.connector.prefill_pool_bytes = 2 * BLOCK)
                .ask(300, &["a", "b", "c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = ["a", "b", "c"].map(|item| look.misses(item).first().copied());
            let full = first.iter().filter(|reason| **reason == Some("pool full")).count();
            ensure_eq!(full, 1, "items without room, of {first:?}");
            look.all_answered()
        },
    },
    Scenario {
        name: "f057_known_and_new_items_in_one_request",
        rows: &["F057"],
        text: "a request with an item in the engine, one in the pool and a new one ends exactly once",
        make: |plan| {
            plan.with(|plan| plan.engine.cache_items_max = 3)
                .ask(300, &["a", "b"])
                .ask(500, &["c", "d"])
                .ask(700, &["a", "d", "e"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c", "d", "e"] {
                ensure_eq!(look.misses(item), Vec::<&str>::new(), "misses of {item}");
            }
            ensure!(look.loading("prefill0")?.resident_hits >= 1, "no resident was used");
            look.all_answered()
        },
    },
    Scenario {
        name: "f087_a_full_store_is_tried_again_and_given_up",
        rows: &["F087", "F086"],
        text: "while every object is leased saves are tried a bounded number of times, then dropped",
        make: |plan| {
            let capacity = 2 << 20;
            plan.with(|plan| {
                plan.topology.nodes = 1;
                plan.store.segment_bytes = capacity;
                plan.store.lease_ttl_ms = 5_000;
                plan.store.watermark_permille = 1_000;
                plan.connector.attempts_max = 4;
                plan.connector.retry_pause_ms = 10;
            })
            .fault(300, Fault::FillStore { object_bytes: 65_536, objects: 33, for_ms: 2_000 })
            .ask(1_500, &["a", "b"])
            .ask(2_800, &["c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let full = SaveEnd::Failed("NO_AVAILABLE_HANDLE (-200)".into());
            ensure_eq!(look.saves("encoder0", "a"), [&full], "save of a");
            ensure_eq!(look.saves("encoder0", "b"), [&full], "save of b");
            ensure_eq!(look.saves("encoder0", "c"), [&SaveEnd::Stored], "save of c");
            ensure_eq!(look.saving("encoder0")?.puts, 2 * 4 + 1, "puts");
            look.all_answered()
        },
    },
    Scenario {
        name: "f026_a_refused_commit_of_one_item",
        rows: &["F026"],
        text: "the commit of one item of a batch is refused: the other is stored and loaded",
        make: |plan| {
            // The two are ready while a third, twice as long, fills what may be in flight: they go together.
            let in_flight = 2 * (ROWS * 64 + HEADER_BYTES);
            plan.with(|plan| plan.connector.attempts_max = 1)
                .with(|plan| plan.connector.in_flight_bytes_max = in_flight)
                .fault(300, stall(encoder(), Op::PutTransfer, 100))
                .fault(300, store_code(encoder(), Op::PutEnd, -601, "a"))
                .ask(310, &["first", "a", "b"])
                .but(|request| request.items[0].rows = 2 * ROWS)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let [began, _] = look.transfer("a", true);
            ensure!(began.is_some(), "a was not put");
            ensure_eq!(look.transfer("b", true)[0], began, "the put of b, in one batch with a");
            let ends = look.saves("encoder0", "a");
            ensure!(ends.iter().all(|end| !end.is_saved()), "save of a: {ends:?}");
            ensure_eq!(look.saves("encoder0", "b"), [&SaveEnd::Stored], "save of b");
            ensure!(look.hits("b") >= 1, "b was not loaded: {:?}", look.misses("b"));
            look.all_answered()
        },
    },
];
