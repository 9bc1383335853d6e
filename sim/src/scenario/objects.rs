//! Objects: header and payload as one, damage, other shapes, other models.

use super::{
    Look, Scenario,
    loading::flipped,
    look::{ensure, ensure_eq},
    plans::{ROWS, encoder, fails, prefill},
};
use crate::{
    event::{Event, SaveEnd},
    plan::{Fault, Moment, Op, Plan},
};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "f007_header_and_payload_are_one_object",
        rows: &["F007", "F108"],
        text: "a commit that fails leaves nothing visible; a commit makes header and payload visible",
        make: |plan| {
            let fault = Fault::StoreCode {
                host: encoder(),
                op: Op::PutEnd,
                code: -900,
                moment: Moment::Before,
                item: Some("a".into()),
                count: 1,
                for_ms: 1_000,
            };
            plan.with(|plan| plan.connector.save_deadline_ms = 500)
                .fault(300, fault)
                .ask(310, &["a", "b"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let bytes = |event: &Event| match event {
                Event::Stored { bytes, .. } => *bytes == ROWS * 64 + 64,
                _ => true,
            };
            ensure_eq!(look.count(|event| !bytes(event)), 0, "objects of another length");
            ensure_eq!(look.stored("b"), 1, "objects of b");
            let first = look.saves("encoder0", "a").first().is_some_and(|end| end.is_saved());
            ensure!(!first, "a was reported as saved without a commit");
            look.all_answered()
        },
    },
    Scenario {
        name: "f007_one_commit_of_a_save_fails",
        rows: &["F007"],
        text: "the first commit of a save fails: nothing is promised of an item that is half there",
        make: |plan| plan.fault(300, fails(encoder(), Op::PutEnd, -900)).ask(310, &["a"]),
        expect: |outcome| {
            let look = Look(outcome);
            let first = look.saves("encoder0", "a").first().is_some_and(|end| end.is_saved());
            ensure!(!first, "a was reported as saved without a commit");
            ensure!(!look.misses("a").is_empty(), "a was promised");
            ensure_eq!(look.delivered("a"), look.hits("a"), "deliveries of what was promised");
            look.all_answered()
        },
    },
    Scenario {
        name: "f008_another_shape_under_the_same_key",
        rows: &["F008", "F047"],
        text: "a reader that expects another shape than the object's gets a miss, never a mixture",
        make: |plan| {
            plan.with(|plan| plan.topology.prefills = 2)
                .ask_at(300, &["a"], 0, 0)
                .ask_at(600, &["a"], 0, 1)
                .but(|request| {
                    request.items[0].rows = ROWS / 2;
                    request.early = true;
                })
        },
        expect: |outcome| {
            let look = Look(outcome);
            let missed = look.time(|event| matches!(event, Event::Miss { request: 1, .. }));
            ensure!(missed.is_some(), "request 1 was served with an object of another shape");
            look.all_answered()
        },
    },
    Scenario {
        name: "f008_another_length_than_what_lies_in_the_pool",
        rows: &["F008"],
        text: "a request for an item in another length than the pool's is a miss with that reason",
        make: |plan| {
            plan.with(|plan| plan.engine.cache_items_max = 1)
                .ask(300, &["a"])
                .ask(500, &["b"])
                .ask(700, &["a"])
                .but(|request| request.items[0].rows = ROWS / 2)
        },
        expect: |outcome| {
            let look = Look(outcome);
            let missed = |event: &Event| matches!(event, Event::Miss { request: 2, reason, .. } if reason == "wrong spec");
            ensure_eq!(look.count(missed), 1, "misses of request 2: {:?}", look.misses("a"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f018_removal_under_a_lease",
        rows: &["F018"],
        text: "an item that a stranger removes, forced, is a miss once and is saved again",
        make: |plan| {
            plan.with(|plan| (plan.topology.prefills, plan.store.lease_ttl_ms) = (2, 5_000))
                .ask_at(300, &["a"], 0, 0)
                .fault(600, Fault::Remove { item: "a".into() })
                .ask_at(700, &["a"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.stored("a"), 2, "objects of a over time");
            ensure_eq!(look.misses("a"), Vec::<&str>::new(), "misses of a");
            look.all_answered()
        },
    },
    Scenario {
        name: "f049_a_damaged_object_is_removed",
        rows: &["F049"],
        text: "who finds an object damaged removes it; the next save makes it good",
        make: |plan| {
            plan.with(|plan| plan.topology.prefills = 2)
                .fault(300, flipped(Op::PutTransfer, encoder(), 1))
                .ask_at(310, &["a"], 0, 0)
                .ask_at(900, &["a"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.misses("a").first(), Some(&"rejected checksum"), "misses of a");
            ensure_eq!(look.loading("prefill0")?.removed, 1, "objects that were removed");
            ensure_eq!(look.stored("a"), 2, "objects of a over time");
            ensure!(
                look.hits("a") >= 1,
                "the second object was not loaded: {:?}",
                look.misses("a")
            );
            look.all_answered()
        },
    },
    Scenario {
        name: "f050_two_models_one_image",
        rows: &["F050", "F019", "F051"],
        text: "the same item under two models is two objects with two contents",
        make: |plan| plan.with(two_models).ask_at(300, &["a"], 0, 0).ask_at(300, &["a"], 1, 1),
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.stored("a"), 2, "objects of a");
            ensure!(look.delivered("a") >= 2, "deliveries of a: {}", look.delivered("a"));
            look.all_answered()
        },
    },
    Scenario {
        name: "f114_foreign_bytes_are_seen",
        rows: &["F114", "F070"],
        text: "bytes of another object that arrive as success are rejected and counted",
        make: |plan| {
            let (host, op) = (prefill(), Op::GetTransfer);
            plan.with(|plan| plan.topology.nodes = 1)
                .ask(250, &["x"])
                .fault(400, Fault::ForeignBytes { host, op, count: 1, for_ms: 2_000 })
                .ask(500, &["a"])
        },
        expect: |outcome| {
            let look = Look(outcome);
            let first = look.misses("a").first().copied().unwrap_or_default();
            ensure!(first.starts_with("rejected"), "misses of a: {first}");
            let rejected: u64 = look.loading("prefill0")?.rejected.values().sum();
            ensure_eq!(rejected, 1, "rejected objects");
            look.all_answered()
        },
    },
    Scenario {
        name: "f049_a_stranger_under_the_key",
        rows: &["F049"],
        text: "meaningless bytes under an item's key are a miss, and are replaced by the item",
        make: |plan| {
            plan.fault(300, Fault::Plant { item: "a".into(), bytes: ROWS * 64 + 64, forged: false })
                .ask(500, &["a"])
                .with(|plan| plan.topology.prefills = 2)
                .ask_at(900, &["a"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.saves("encoder0", "a").first(), Some(&&SaveEnd::AlreadyThere), "save");
            let first = look.misses("a").first().copied().unwrap_or_default();
            ensure!(first.starts_with("rejected"), "misses of a: {first}");
            ensure!(look.hits("a") >= 1, "the item never replaced the stranger's bytes");
            look.all_answered()
        },
    },
    Scenario {
        name: "f049_a_forged_object_has_no_seal",
        rows: &["F049"],
        text: "where instances share a secret, a stranger's well-formed object is a miss, and is replaced by the item",
        make: |plan| {
            plan.fault(300, Fault::Plant { item: "a".into(), bytes: ROWS * 64 + 64, forged: true })
                .ask(500, &["a"])
                .with(|plan| (plan.topology.prefills, plan.connector.secret) = (2, true))
                .ask_at(900, &["a"], 0, 1)
        },
        expect: |outcome| {
            let look = Look(outcome);
            ensure_eq!(look.misses("a").first(), Some(&"rejected seal"), "first miss of a");
            ensure!(look.hits("a") >= 1, "the item never replaced the forged one");
            look.all_answered()
        },
    },
];

fn two_models(plan: &mut Plan) {
    (plan.topology.encoders, plan.topology.prefills, plan.topology.namespaces) = (2, 2, 2);
}
