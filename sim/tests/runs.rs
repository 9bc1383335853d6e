//! Whole runs: determinism, timelines, the table of scenarios.

use std::thread;

use springtide_sim::{
    campaign::run_fresh,
    generate::generate,
    plan::{Fault, Plan, PlanError, Scheduled, Workload},
    recorder::Keep,
    scenario,
    world::run::Outcome,
};

fn run(plan: &Plan) -> Outcome {
    run_fresh(plan, Keep::Everything)
}

#[test]
fn the_same_plan_does_the_same_beside_others() {
    for seed in [3, 11] {
        let plan = generate(seed);
        let alone = run(&plan);
        let together: Vec<Outcome> = thread::scope(|scope| {
            let runs: Vec<_> = (0..3)
                .map(|n| {
                    let plan = if n == 1 { generate(seed + 1) } else { plan.clone() };
                    scope.spawn(move || run(&plan))
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        for other in [&together[0], &together[2]] {
            assert_eq!(alone.trace.difference(&other.trace), None, "seed {seed}");
            assert_eq!(alone.trace.hash(), other.trace.hash(), "seed {seed}");
        }
    }
}

#[test]
fn a_plan_that_was_read_does_what_the_written_one_did() {
    let plan = generate(5);
    let read = Plan::from_json(&plan.to_json()).unwrap();
    assert_eq!(run(&plan).trace.hash(), run(&read).trace.hash());
}

#[test]
fn another_seed_of_the_same_plan_changes_no_content() {
    // The seed of a plan feeds turmoil and the store's placement only.
    let plan = scenario::find("f085_two_producers_of_one_key").unwrap().plan();
    let other = Plan { seed: plan.seed + 1, ..plan.clone() };
    assert_eq!(run(&plan).stats.saved, run(&other).stats.saved);
}

#[test]
fn timelines_of_three_scenarios() {
    for name in [
        "f001_timeout_while_put_runs",
        "f049_a_damaged_object_is_removed",
        "f089_the_master_restarts_under_a_reader",
    ] {
        let outcome = run(&scenario::find(name).unwrap().plan());
        insta::assert_snapshot!(name, outcome.trace.lines().join("\n"));
    }
}

#[test]
fn errors_name_field_expectation_and_value() {
    let mut messages = Vec::new();
    let mut refused = |change: fn(&mut Plan)| {
        let mut plan = Plan::base("test", Workload::W1);
        change(&mut plan);
        match plan.check() {
            Err(error @ PlanError::Range { .. }) => messages.push(error.to_string()),
            other => panic!("expected a field out of range, got {other:?}"),
        }
    };
    refused(|plan| plan.topology.encoders = 0);
    refused(|plan| plan.topology.namespaces = 2);
    refused(|plan| plan.connector.unit_payload_bytes = 500);
    refused(|plan| plan.store.put_release_ms = 1);
    refused(|plan| plan.phases.settle_ms = 400_000);
    refused(|plan| {
        let fault = Fault::Pause { host: "encoder7".into(), for_ms: 10 };
        plan.faults.push(Scheduled { at_ms: 600, fault });
    });
    refused(|plan| {
        let fault = Fault::Pause { host: "encoder0".into(), for_ms: 9_999 };
        plan.faults.push(Scheduled { at_ms: 600, fault });
    });
    refused(|plan| {
        let fault = Fault::Crash { host: "client".into(), for_ms: 10 };
        plan.faults.push(Scheduled { at_ms: 600, fault });
    });
    insta::assert_snapshot!(messages.join("\n"));
}
