//! The order of device work: copies behind the kernels that write, and before those that read.

use std::time::Duration;

use springtide::env::DType;

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{ROWS, encoder, prefill},
};
use crate::{
    event::{Event, SaveEnd},
    plan::{Direction, Fault, Plan},
    world::run::Outcome,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f021_float16_comes_back",
        rows: &["F021"],
        text: "items of half precision come back with their type, shape and bytes",
        make: |plan| typed(plan, DType::F16),
        expect: |outcome| came_back(outcome, "float16"),
    },
    Scenario {
        name: "f021_float32_comes_back",
        rows: &["F021"],
        text: "items of single precision come back with their type, shape and bytes",
        make: |plan| typed(plan, DType::F32),
        expect: |outcome| came_back(outcome, "float32"),
    },
    Scenario {
        name: "f021_float8_comes_back",
        rows: &["F021"],
        text: "items of eight bits come back with their type, shape and bytes",
        make: |plan| typed(plan, DType::F8E4M3),
        expect: |outcome| came_back(outcome, "float8_e4m3fn"),
    },
    Scenario {
        name: "f042_nothing_beside_an_odd_item_is_touched",
        rows: &["F042"],
        text: "an item that fills no whole block is moved without a byte beside it",
        make: |plan| {
            plan.with(|plan| plan.engine.width = 29).ask(300, &["a", "b"]).but(|request| {
                request.items[0].rows = 1_001;
                request.items[1].rows = 7;
            })
        },
        expect: |outcome| {
            let look = Look(outcome);
            for (host, owner) in [("encoder0", "worker"), ("prefill0", "scheduler")] {
                let usage = &look.end(host)?.pools[owner];
                ensure!(usage.waste > 0, "the items of {host} fill their blocks");
                ensure_eq!(usage.counters.guard_violations, 0, "writes past an end on {host}");
            }
            ensure!(
                look.delivered("a") >= 1 && look.delivered("b") >= 1,
                "a and b were not loaded"
            );
            look.all_answered()
        },
    },
    Scenario {
        name: "f047_rows_four_times_as_wide",
        rows: &["F047"],
        text: "an item with four features a row is delivered as its header says",
        make: |plan| plan.with(|plan| plan.engine.width = 128).ask(300, &["a"]),
        expect: |outcome| {
            let look = Look(outcome);
            let wide = |event: &Event| match event {
                Event::Delivered { spec, .. } => spec.shape.dims() == [ROWS, 128],
                _ => false,
            };
            ensure!(look.count(wide) >= 1, "no delivery of 1024 rows of 128");
            ensure_eq!(look.misses("a"), Vec::<&str>::new(), "misses of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f047_larger_than_the_consumer",
        rows: &["F047"],
        text: "an item that the producer holds and the consumer cannot is a miss with that reason",
        make: |plan| plan.with(|plan| plan.connector.prefill_pool_bytes = 40_000).ask(300, &["a"]),
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a"), [&SaveEnd::Stored], "save of a");
            ensure_eq!(look.misses("a").first(), Some(&"too large"), "misses of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f070_large_and_small_at_once",
        rows: &["F070"],
        text: "large and small items that move side by side arrive as what they were",
        make: |plan| {
            let sizes = |request: &mut crate::plan::Request| {
                for (item, rows) in request.items.iter_mut().zip([12_000, 80, 12_000, 80]) {
                    item.rows = rows;
                }
            };
            plan.with(|plan| plan.engine.encode_us_per_row = 1)
                .with(|plan| (plan.topology.encoders, plan.topology.prefills) = (2, 2))
                .ask_at(300, &["a", "b", "c", "d"], 0, 0)
                .but(sizes)
                .ask_at(300, &["e", "f", "g", "h"], 1, 1)
                .but(sizes)
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c", "d", "e", "f", "g", "h"] {
                ensure!(look.delivered(item) >= 1, "{item}: {:?}", look.misses(item));
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f072_each_copy_waits_for_its_own_kernel",
        rows: &["F072"],
        text: "three items whose kernels end long after the launch are saved with what was written",
        make: |plan| {
            let fault =
                Fault::LateKernel { host: encoder(), late_ms: 150, count: 3, for_ms: 1_000 };
            plan.fault(300, fault).ask(310, &["a", "b", "c"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let mut last = springtide::env::Time::ZERO;
            for (item, kernels) in [("a", 1), ("b", 2), ("c", 3)] {
                let [Some(put), _] = look.transfer(item, true) else {
                    return Err(format!("{item} was not put"));
                };
                let due = Duration::from_millis(310 + 150 * kernels);
                ensure!(put.since_origin() >= due, "{item} was put at {put}, before its kernel");
                last = last.max(put);
                ensure_eq!(look.misses(item), Vec::<&str>::new(), "misses of {item}");
            }
            ensure!(last.since_origin() < Duration::from_secs(1), "the last put was at {last}");
            look.all_answered()
        },
    },
    Scenario {
        name: "f073_a_load_waits_for_the_last_reader",
        rows: &["F073"],
        text: "a load into memory that a kernel still reads begins when the kernel has ended",
        make: |plan| {
            let fault =
                Fault::LateKernel { host: prefill(), late_ms: 200, count: 1, for_ms: 1_000 };
            plan.fault(250, fault).ask(300, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let hit = look.time(|event| matches!(event, Event::Hit { .. }));
            let delivered = look.time(|event| matches!(event, Event::Delivered { .. }));
            let (Some(hit), Some(delivered)) = (hit, delivered) else {
                return Err(format!("a was not loaded: {:?}", look.misses("a")));
            };
            let took = delivered - hit;
            ensure!(took >= Duration::from_millis(200), "it was copied after {took:?}");
            look.all_answered()
        },
    },
    Scenario {
        name: "f132_the_put_waits_for_the_copy",
        rows: &["F132"],
        text: "while the copy to the pool runs nothing of the item is sent",
        make: |plan| {
            let fault = Fault::SlowCopy {
                host: encoder(),
                direction: Direction::Out,
                late_ms: 300,
                count: 1,
                for_ms: 1_000,
            };
            plan.fault(300, fault).ask(310, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let [Some(put), _] = look.transfer("a", true) else { return Err("no put".into()) };
            let due = Duration::from_millis(610);
            ensure!(put.since_origin() >= due, "the put began at {put}");
            ensure_eq!(look.misses("a"), Vec::<&str>::new(), "misses of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f130_every_shape_of_an_item",
        rows: &["F130"],
        text: "items of one row, of a prime number of rows and of many come back equal",
        make: |plan| {
            plan.ask(300, &["a", "b", "c"]).but(|request| {
                for (item, rows) in request.items.iter_mut().zip([1, 1_009, 20_000]) {
                    item.rows = rows;
                }
            })
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b", "c"] {
                ensure!(look.delivered(item) >= 1, "{item}: {:?}", look.misses(item));
            }
            look.all_answered()
        },
    },
];

fn typed(plan: Plan, dtype: DType) -> Plan {
    plan.with(|plan| plan.engine.dtype = dtype).ask(300, &["a", "b"])
}

fn came_back(outcome: &Outcome, dtype: &str) -> Result<(), String> {
    let look = Look(outcome);
    for item in ["a", "b"] {
        ensure!(look.delivered(item) >= 1, "{item}: {:?}", look.misses(item));
    }
    let other = |event: &Event| match event {
        Event::Delivered { spec, .. } => spec.dtype.name() != dtype,
        _ => false,
    };
    ensure_eq!(look.count(other), 0, "deliveries of another type than {dtype}");
    look.all_answered()
}
