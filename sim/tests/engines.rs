//! Both engines: every scenario as it is expected, and the same verdicts; the fast one: the same run every time.

use std::{ops::ControlFlow, path::Path, thread};

use springtide_sim::{
    campaign::{Job, Verdict, campaign, run_on},
    engines::on_both,
    generate::generate,
    plan::Plan,
    recorder::Keep,
    scenario,
    world::{engine::EngineKind, run::Outcome},
};

fn run(plan: &Plan) -> Outcome {
    run_on(EngineKind::Fast, plan, Keep::Everything)
}

fn go_on(_: &Verdict) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

fn every_scenario_is_as_expected_on(engine: EngineKind) {
    let jobs: Vec<Job> = scenario::all()
        .map(|scenario| Job { plan: scenario.plan(), expect: Some(scenario.expect), engine })
        .collect();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{}", engine.name()));
    let verdicts = campaign(&jobs, threads(), &directory, &go_on);
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

#[test]
fn every_scenario_is_as_expected_on_turmoil() {
    every_scenario_is_as_expected_on(EngineKind::Turmoil);
}

#[test]
fn every_scenario_is_as_expected_on_the_fast_engine() {
    every_scenario_is_as_expected_on(EngineKind::Fast);
}

/// `sim engines` does this for all scenarios and 200 plans.
#[test]
fn random_plans_have_the_verdicts_of_the_other_engine() {
    let job = |seed| Job { plan: generate(seed), expect: None, engine: EngineKind::default() };
    let jobs: Vec<Job> = (0..6).map(job).collect();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-both");
    let all = on_both(&jobs, threads(), &directory, &go_on);
    for (job, both) in jobs.iter().zip(&all) {
        let (seed, end) = (job.plan.seed, job.plan.phases.end_at());
        assert!(both.turmoil.events > 100 && both.fast.events > 100, "seed {seed} did something");
        assert!(both.agree(), "seed {seed}: {both:?}");
        assert_eq!(both.fast.simulated_ms, end, "it ends at its end, not at the next tick");
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
