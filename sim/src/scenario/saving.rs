//! Saves and the wait for them: timeouts, duplicates, items that cannot be saved, late kernels.

use std::time::Duration;

use springtide::connector::HEADER_BYTES;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{BLOCK, ROWS, encoder},
};
use crate::{
    event::{Event, SaveEnd, TransferEnd},
    plan::{Direction, Fault, Moment, Op, Plan},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f001_timeout_while_put_runs",
        rows: &["F001"],
        text: "a wait that times out frees nothing: the block stays with its put",
        make: |plan| {
            plan.with(one_block_pool)
                .fault(300, stalled_put(1_000))
                .ask(310, &["a"])
                .ask(900, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::TimedOut], "save of a");
            let full = SaveEnd::Dropped("pool_full".into());
            ensure_eq!(look.saves("encoder0", "b"), [&full], "save of b, whose block is not free");
            ensure_eq!(look.saving("encoder0")?.late, 1, "uploads that ended after their tickets");
            ensure_eq!(look.stored("a"), 1, "objects of a in the store");
            look.all_answered()
        },
    },
    Scenario {
        name: "f002_eviction_spares_a_running_put",
        rows: &["F002", "F004"],
        text: "a full pool evicts the idle block, not the older one that a put reads",
        make: |plan| {
            plan.with(|plan| plan.connector.encoder_pool_bytes = 2 * BLOCK)
                .with(|plan| plan.engine.wait_ms = 100)
                .fault(300, stalled_put(1_000))
                .ask(310, &["a"])
                .ask(500, &["b"])
                .ask(700, &["c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "b"), [&SaveEnd::Stored], "save of b");
            ensure_eq!(look.saves("encoder0", "c"), [&SaveEnd::Stored], "save of c, in b's block");
            ensure_eq!(look.stored("a"), 1, "objects of a in the store");
            ensure_eq!(evictions(&look, "encoder0", "worker")?, 1, "evictions");
            look.all_answered()
        },
    },
    Scenario {
        name: "f004_more_items_in_a_step_than_the_pool_holds",
        rows: &["F004", "F002"],
        text: "a step's items that find every block under a put are dropped: no block is taken away",
        make: |plan| {
            let items = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
            plan.with(|plan| plan.connector.encoder_pool_bytes = 4 * BLOCK)
                .with(|plan| plan.engine.encode_us_per_row = 1)
                .ask(300, &items)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let full = SaveEnd::Dropped("pool_full".into());
            let ends = |wanted: &dyn Fn(&SaveEnd) -> bool| {
                look.count(|event| matches!(event, Event::SaveEnded { end, .. } if wanted(end)))
            };
            let (saved, dropped) = (ends(&SaveEnd::is_saved), ends(&|end| *end == full));
            ensure!(saved >= 4, "saved {saved} of 12, with room for 4");
            ensure_eq!(saved + dropped, 12, "saved or dropped for want of room");
            look.all_answered()
        },
    },
    Scenario {
        name: "f005_item_larger_than_the_pool",
        rows: &["F005"],
        text: "an item that no pool takes is dropped at once and leaves nothing pending",
        make: |plan| {
            plan.with(|plan| plan.connector.encoder_pool_bytes = BLOCK / 4)
                .with(|plan| plan.connector.prefill_pool_bytes = BLOCK / 4)
                .ask(300, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let large = SaveEnd::Dropped("too_large".into());
            ensure_eq!(look.saves("encoder0", "a"), [&large], "save of a");
            ensure!(longest_wait(&look) <= Duration::from_millis(2), "the wait lasted");
            look.all_answered()
        },
    },
    Scenario {
        name: "f006_two_saves_of_one_key",
        rows: &["F006"],
        text: "a second save of a key joins the first and is waited for to its own end",
        make: |plan| {
            plan.with(|plan| plan.engine.wait_ms = 250)
                .fault(300, stalled_put(400))
                .ask(310, &["a"])
                .ask(320, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let ends = look.saves("encoder0", "a");
            ensure_eq!(ends, [&SaveEnd::TimedOut, &SaveEnd::Stored], "saves of a");
            let saving = look.saving("encoder0")?;
            ensure_eq!((saving.joined, saving.puts), (1, 1), "joined tickets and puts");
            look.all_answered()
        },
    },
    Scenario {
        name: "f016_the_first_failure_frees_nothing_of_its_siblings",
        rows: &["F016", "F026"],
        text: "one item of a batch fails early; the other's block stays until its put has ended",
        make: |plan| {
            // The two are ready while a third, twice as long, fills what may be in flight: they go together.
            let in_flight = 2 * (ROWS * 64 + HEADER_BYTES);
            let stall = |item: &str, stall_ms| Fault::Stall {
                host: encoder(),
                op: Op::PutTransfer,
                stall_ms,
                item: Some(item.into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.connector.attempts_max = 1)
                .with(|plan| plan.connector.in_flight_bytes_max = in_flight)
                .fault(300, store_code(encoder(), Op::PutTransfer, -800, "a"))
                .fault(300, stall("first", 100))
                .fault(300, stall("b", 500))
                .ask(310, &["first", "a", "b"])
                .but(|request| request.items[0].rows = 2 * ROWS)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let [began, _] = look.transfer("a", true);
            let [together, ended] = look.transfer("b", true);
            ensure!(began.is_some() && began == together, "puts: {began:?} and {together:?}");
            let lasted = ended.zip(began).map(|(ended, began)| ended - began);
            ensure!(lasted >= Some(Duration::from_millis(500)), "the put of b took {lasted:?}");
            let failed = SaveEnd::Failed("TRANSFER_FAIL (-800)".into());
            ensure_eq!(look.saves("encoder0", "a"), [&failed], "save of a");
            ensure_eq!(look.saves("encoder0", "b"), [&SaveEnd::Stored], "save of b");
            look.all_answered()
        },
    },
    Scenario {
        name: "f017_late_kernel",
        rows: &["F017", "F132"],
        text: "a save that is issued before its kernel has finished copies what the kernel writes",
        make: |plan| {
            let fault =
                Fault::LateKernel { host: encoder(), late_ms: 300, count: 1, for_ms: 1_000 };
            plan.fault(300, fault).ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::Stored], "save of a");
            let opened = look.time(|event| matches!(event, Event::SaveOpened { .. }));
            let put = look.time(|event| matches!(event, Event::TransferBegan { put: true, .. }));
            let (Some(opened), Some(put)) = (opened, put) else { return Err("no put".into()) };
            ensure!(put - opened >= Duration::from_millis(300), "put {:?} early", put - opened);
            ensure!(look.hits("a") > 0, "a was not loaded: {:?}", look.misses("a"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f020_tensor_parallel_saves_once",
        rows: &["F020"],
        text: "of two ranks one saves, both load; a producer's scheduler pins nothing",
        make: |plan| plan.with(|plan| plan.topology.tensor_parallel = 2).ask(300, &["a"]),
        expect: |outcome| {
            let look = Look(outcome);
            let puts = look.count(|event| matches!(event, Event::TransferBegan { put: true, .. }));
            ensure_eq!(puts, 1, "puts");
            ensure_eq!(look.delivered("a"), 2 * look.hits("a"), "deliveries");
            ensure!(look.hits("a") > 0, "a was not loaded: {:?}", look.misses("a"));
            let pools: Vec<&str> = look.end("encoder0")?.pools.keys().copied().collect();
            ensure_eq!(pools, ["worker"], "pools of the encoder");
            look.all_answered()
        },
    },
    Scenario {
        name: "f022_an_empty_tensor_takes_no_block",
        rows: &["F022"],
        text: "a tensor without elements is skipped on both sides, with a reason",
        make: |plan| plan.ask(300, &["a"]).but(|request| request.items[0].rows = 0),
        expect: |outcome| {
            let look = Look(outcome);
            let empty = SaveEnd::Dropped("empty".into());
            ensure_eq!(look.saves("encoder0", "a"), [&empty], "save of a");
            ensure_eq!(look.misses("a").first(), Some(&"empty"), "misses of a");
            ensure_eq!(look.end("encoder0")?.pools["worker"].counters.allocated, 0, "allocations");
            look.all_answered()
        },
    },
    Scenario {
        name: "f025_a_slow_copy_delays_nobody",
        rows: &["F025"],
        text: "a slow copy to the pool delays neither other saves nor loads",
        make: |plan| {
            let fault = Fault::SlowCopy {
                host: encoder(),
                direction: Direction::Out,
                late_ms: 800,
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.engine.wait_ms = 100)
                .fault(300, fault)
                .ask(310, &["a"])
                .ask(450, &["b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::TimedOut], "save of a");
            ensure_eq!(look.saves("encoder0", "b"), [&SaveEnd::Stored], "save of b");
            ensure!(look.duration(1) < Duration::from_millis(150), "b took {:?}", look.duration(1));
            look.all_answered()
        },
    },
    Scenario {
        name: "f044_failing_copies_are_counted",
        rows: &["F044", "F115"],
        text: "copies from the device that fail end their saves, with the cause, and nothing else",
        make: |plan| {
            let fault = Fault::FailCopy { host: encoder(), count: 3, for_ms: 1_000 };
            plan.fault(300, fault).ask(310, &["a", "b", "c"]).ask(600, &["d"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c"] {
                let failed = SaveEnd::Failed("copy".into());
                ensure_eq!(look.saves("encoder0", item), [&failed], "save of {item}");
            }
            ensure_eq!(look.saves("encoder0", "d"), [&SaveEnd::Stored], "save of d");
            ensure_eq!(look.saving("encoder0")?.failed.get("copy"), Some(&3), "failed copies");
            look.all_answered()
        },
    },
    Scenario {
        name: "f085_two_producers_of_one_key",
        rows: &["F085"],
        text: "two encoders save one key at once: one object, two successes",
        make: |plan| {
            plan.with(|plan| (plan.topology.encoders, plan.topology.prefills) = (2, 2))
                .ask_at(300, &["a"], 0, 0)
                .ask_at(300, &["a"], 1, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.stored("a"), 1, "objects of a in the store");
            for encoder in ["encoder0", "encoder1"] {
                let ends = look.saves(encoder, "a");
                ensure!(ends.iter().all(|end| end.is_saved()), "{encoder}: {ends:?}");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f117_a_late_write_reads_from_quarantine",
        rows: &["F117", "F028", "F122"],
        text: "a put that the store gives up at its limit goes on reading: its block is quarantined",
        make: |plan| {
            let fault = Fault::LateWrite {
                host: encoder(),
                op: Op::PutTransfer,
                late_ms: 400,
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.store.transfer_limit_ms = 300)
                .with(|plan| plan.connector.encoder_pool_bytes = 2 * BLOCK)
                .with(|plan| plan.connector.quarantine_permille = 1_000)
                .fault(300, fault)
                .ask(310, &["a"])
                .ask(700, &["b"])
                .ask(800, &["c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let uncertain = SaveEnd::Failed("uncertain TRANSFER_FAIL (-800)".into());
            ensure_eq!(look.saves("encoder0", "a"), [&uncertain], "save of a");
            ensure_eq!(look.saves("encoder0", "c"), [&SaveEnd::Stored], "save of c");
            let uncertain = |event: &Event| {
                matches!(event, Event::TransferEnded { end: TransferEnd::Uncertain(_), .. })
            };
            ensure_eq!(look.count(uncertain), 1, "uncertain transfers");
            let counters = &look.end("encoder0")?.pools["worker"].counters;
            ensure_eq!(counters.quarantined_uncertain, 1, "quarantined allocations");
            look.all_answered()
        },
    },
];

fn one_block_pool(plan: &mut Plan) {
    plan.connector.encoder_pool_bytes = BLOCK;
    plan.engine.wait_ms = 300;
}

fn stalled_put(stall_ms: u64) -> Fault {
    let (host, op) = (encoder(), Op::PutTransfer);
    Fault::Stall { host, op, stall_ms, item: Some("a".into()), count: 1, for_ms: 2_000 }
}

/// One call of `op` for `item` fails before its effect.
pub(super) fn store_code(host: String, op: Op, code: i32, item: &str) -> Fault {
    let (moment, item) = (Moment::Before, Some(item.to_owned()));
    Fault::StoreCode { host, op, code, moment, item, count: 1, for_ms: 2_000 }
}

/// Residents that a pool has evicted.
pub(super) fn evictions(look: &Look<'_>, host: &str, owner: &str) -> Result<u64, String> {
    Ok(look.end(host)?.pools[owner].counters.evictions)
}

fn longest_wait(look: &Look<'_>) -> Duration {
    let began = look.time(|event| matches!(event, Event::WaitBegan { .. }));
    let ended = look.time(|event| matches!(event, Event::WaitEnded { .. }));
    match (began, ended) {
        (Some(began), Some(ended)) => ended - began,
        _ => Duration::MAX,
    }
}
