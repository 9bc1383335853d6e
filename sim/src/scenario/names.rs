//! Names of objects: identifiers from outside, models, adapters, ranks.

use super::{
    Look, Scenario,
    look::{ensure, ensure_eq},
    plans::{encoder, prefill},
};
use crate::{
    event::{Check, Event, SaveEnd},
    plan::{Apart, Fault, Op, Plan},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f018_removal_spares_longer_names",
        rows: &["F018"],
        text: "a damaged object is removed by its whole name: objects whose names begin with it stay",
        make: |plan| {
            let fault = Fault::FlippedByte {
                host: encoder(),
                op: Op::PutTransfer,
                position: 30_000,
                item: Some("x".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.ask(250, &["x1", "x_metadata"]).fault(300, fault).ask(500, &["x"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.loading("prefill0")?.removed, 1, "objects that were removed");
            for item in ["x1", "x_metadata"] {
                ensure_eq!(look.lost(item), 0, "losses of {item}");
            }
            ensure_eq!(look.lost("x"), 1, "losses of x");
            look.all_answered()
        },
    },
    Scenario {
        name: "f019_a_name_that_ends_like_another",
        rows: &["F019"],
        text: "items x and x_metadata are two objects, and each comes back as itself",
        make: |plan| plan.ask(300, &["x", "x_metadata"]),
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["x", "x_metadata"] {
                ensure_eq!(look.stored(item), 1, "objects of {item}");
                ensure!(look.delivered(item) >= 1, "{item} was not delivered");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f048_names_that_begin_alike",
        rows: &["F048"],
        text: "long names that differ in their last character only are two objects",
        make: |plan| {
            let alike = ["0", "1"].map(|end| format!("{}{end}", "5eed".repeat(40)));
            plan.ask(300, &alike.each_ref().map(String::as_str))
        },
        expect: |outcome| {
            let look = Look(outcome);
            let stored = look.count(|event| matches!(event, Event::Stored { .. }));
            ensure_eq!(stored, 2, "objects");
            ensure!(look.deliveries() >= 2, "deliveries: {}", look.deliveries());
            look.all_answered()
        },
    },
    Scenario {
        name: "f051_new_weights_under_the_old_name",
        rows: &["F051"],
        text: "one model in two revisions is two namespaces: nothing of the old one is served",
        make: |plan| {
            plan.with(two_models(Apart::Revision)).ask_at(300, &["a"], 0, 0).ask_at(
                600,
                &["a"],
                1,
                1,
            )
        },
        expect: apart,
    },
    Scenario {
        name: "f052_both_sides_name_an_adapters_item_alike",
        rows: &["F052"],
        text: "an identifier with an adapter's prefix is one name on both sides, and another item's",
        make: |plan| plan.ask(300, &["sql-lora:img", "img"]),
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["sql-lora:img", "img"] {
                ensure_eq!(look.stored(item), 1, "objects of {item}");
                ensure_eq!(look.misses(item), Vec::<&str>::new(), "misses of {item}");
            }
            look.all_answered()
        },
    },
    Scenario {
        name: "f054_three_hundred_names",
        rows: &["F054"],
        text: "three hundred small items are three hundred objects, each with its own bytes",
        make: |mut plan| {
            plan.engine.cache_items_max = 400;
            for group in 0..30 {
                let names: Vec<String> = (0..10).map(|n| format!("{group:x}{n:x}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                plan = plan.ask(300 + 40 * group, &names).but(|request| {
                    request.items.iter_mut().for_each(|item| item.rows = 8);
                });
            }
            plan
        },
        expect: |outcome| {
            let look = Look(outcome);
            let stored = look.count(|event| matches!(event, Event::Stored { .. }));
            ensure_eq!(stored, 300, "objects");
            ensure!(look.deliveries() >= 300, "deliveries: {}", look.deliveries());
            look.all_answered()
        },
    },
    Scenario {
        name: "f055_producer_and_consumer_do_not_match",
        rows: &["F055"],
        text: "a consumer with other weights hits nothing; its counters say so",
        make: |plan| plan.with(|plan| plan.topology.mismatch = true).ask(300, &["a", "b"]),
        expect: |outcome| {
            let look = Look(outcome);
            let loading = look.loading("prefill0")?;
            ensure!(loading.lookups >= 2, "lookups: {}", loading.lookups);
            ensure_eq!(loading.hits, 0, "hits");
            ensure_eq!(loading.misses.get("absent"), Some(&loading.lookups), "misses");
            ensure_eq!(look.deliveries(), 0, "deliveries");
            look.all_answered()
        },
    },
    Scenario {
        name: "f050_two_adapters_one_image",
        rows: &["F050"],
        text: "what one adapter saved is a miss for another",
        make: |plan| {
            plan.with(two_models(Apart::Adapter))
                .ask_at(300, &["a"], 0, 0)
                .ask_at(600, &["a"], 1, 1)
                .but(|request| request.early = true)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let missed = |event: &Event| matches!(event, Event::Miss { request: 1, reason, .. } if reason == "absent");
            let waited = |event: &Event| matches!(event, Event::Waiting { request: 1 });
            let asked = look.count(missed) + look.count(waited);
            ensure!(asked >= 1, "the second adapter was served what the first had saved");
            apart(outcome)
        },
    },
    Scenario {
        name: "f113_layouts_and_ranks",
        rows: &["F113"],
        text: "where ranks hold parts, each layout has its own objects; of four ranks one saves",
        make: |plan| {
            plan.with(two_models(Apart::Layout))
                .with(|plan| plan.topology.tensor_parallel = 4)
                .ask_at(300, &["a"], 0, 0)
                .ask_at(300, &["a"], 1, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let puts = look.count(|event| matches!(event, Event::TransferBegan { put: true, .. }));
            ensure_eq!(puts, 2, "puts");
            ensure_eq!(look.delivered("a"), 4 * look.hits("a"), "deliveries");
            apart(outcome)
        },
    },
    Scenario {
        name: "f108_one_object_an_item",
        rows: &["F108"],
        text: "six items are six names in the store, whatever ranks and replicas there are",
        make: |plan| {
            plan.with(|plan| (plan.topology.tensor_parallel, plan.store.replicas) = (2, 2))
                .ask(300, &["a", "b", "c"])
                .ask(600, &["d", "e", "f"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let stored = look.count(|event| matches!(event, Event::Stored { .. }));
            ensure_eq!(stored, 6, "objects");
            look.all_answered()
        },
    },
    Scenario {
        name: "f034_a_resident_of_the_same_host",
        rows: &["F034"],
        text: "an instance of both roles loads what a stranger saved, and recomputes nothing",
        make: |plan| {
            plan.with(|plan| plan.connector.prefill_saves = true)
                .fault(200, Fault::Pause { host: prefill(), for_ms: 50 })
                .ask(300, &["a"])
                .ask(500, &["a", "b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            for item in ["a", "b"] {
                ensure_eq!(look.misses(item), Vec::<&str>::new(), "misses of {item}");
                ensure_eq!(look.saves("prefill0", item), Vec::<&SaveEnd>::new(), "its saves");
            }
            look.all_answered()
        },
    },
];

/// Two instances of each kind, one pair a model, that differ in one part of their namespace.
fn two_models(apart: Apart) -> impl FnOnce(&mut Plan) {
    move |plan| {
        let topology = &mut plan.topology;
        (topology.encoders, topology.prefills, topology.namespaces) = (2, 2, 2);
        topology.apart = apart;
    }
}

/// Two namespaces share nothing: two objects of `a`, and each delivery is of its own.
fn apart(outcome: &crate::world::run::Outcome) -> Result<(), String> {
    let look = Look(outcome);
    ensure_eq!(look.stored("a"), 2, "objects of a");
    let foreign =
        look.count(|event| matches!(event, Event::Delivered { check: Check::Foreign, .. }));
    ensure_eq!(foreign, 0, "deliveries of another's bytes");
    ensure!(look.delivered("a") >= 2, "deliveries of a: {}", look.delivered("a"));
    look.all_answered()
}
