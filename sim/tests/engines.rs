//! The fast engine: the same verdicts as turmoil, and the same run every time.

use std::{ops::ControlFlow, path::Path, thread};

use springtide_sim::{
    campaign::{Job, campaign, run_on},
    generate::generate,
    plan::Plan,
    recorder::Keep,
    scenario,
    world::{engine::EngineKind, run::Outcome},
};

fn run(plan: &Plan) -> Outcome {
    run_on(EngineKind::Fast, plan, Keep::Everything)
}

#[test]
fn every_scenario_is_as_expected() {
    let engine = EngineKind::Fast;
    let jobs: Vec<Job> = scenario::all()
        .map(|scenario| Job { plan: scenario.plan(), expect: Some(scenario.expect), engine })
        .collect();
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let verdicts = campaign(&jobs, threads, directory, &|_| ControlFlow::Continue(()));
    assert_eq!(verdicts.len(), jobs.len());
    let failures: Vec<String> = verdicts
        .iter()
        .filter_map(|verdict| {
            let failure = verdict.failure.as_ref()?;
            Some(format!("{}: {}", verdict.label(), failure.violation.message))
        })
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// `sim engines` does this for all scenarios and 200 plans.
#[test]
fn random_plans_have_the_verdicts_of_the_other_engine() {
    for seed in 0..6 {
        let plan = generate(seed);
        let [turmoil, fast] = [EngineKind::Turmoil, EngineKind::Fast].map(|engine| {
            let outcome = run_on(engine, &plan, Keep::Nothing);
            assert!(outcome.trace.events() > 100, "seed {seed} did something");
            (outcome.violation.map(|violation| violation.oracle), outcome.simulated)
        });
        assert_eq!(turmoil.0, fast.0, "seed {seed}");
        let end = plan.phases.end_at();
        assert_eq!(fast.1.as_millis(), u128::from(end), "it ends at its end, not at the next tick");
    }
}

#[test]
fn the_same_plan_does_the_same_beside_others() {
    let plans = [generate(3), generate(4)];
    let alone = run(&plans[0]);
    let together: Vec<Outcome> = thread::scope(|scope| {
        let runs = [0, 1, 0].map(|n| &plans[n]).map(|plan| scope.spawn(move || run(plan)));
        runs.map(|run| run.join().unwrap()).into()
    });
    for other in [&together[0], &together[2]] {
        assert_eq!(alone.trace.difference(&other.trace), None);
        assert_eq!(alone.trace.hash(), other.trace.hash());
    }
    assert_ne!(alone.trace.hash(), together[1].trace.hash());
}
