//! Many runs, side by side: one world a thread, each thread fresh.
//!
//! Which thread runs which plan does not matter: a run depends on its plan alone, and verdicts come back in
//! the order of the jobs.

pub mod file;
pub mod state;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde::Serialize;

use crate::{
    coverage::Coverage,
    oracle::OracleId,
    plan::Plan,
    reach::Reach,
    recorder::{Keep, Violation},
    stats::Stats,
    world::{
        engine::EngineKind,
        panics,
        run::{Outcome, run},
    },
};

/// What an outcome must look like beyond the oracles; the error says what it looks like instead.
pub type Expectation = fn(&Outcome) -> Result<(), String>;

/// Lines of history that a violation shows.
const HISTORY_LINES: usize = 40;
/// Stack of a run: deep enough for unoptimised builds.
const STACK_BYTES: usize = 16 << 20;

/// A run to make.
#[derive(Clone, Debug)]
pub struct Job {
    /// The plan.
    pub plan: Plan,
    /// What its outcome must look like, for scenarios.
    pub expect: Option<Expectation>,
    /// What runs it.
    pub engine: EngineKind,
}

/// How a run went.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The row of the report that it belongs to.
    pub group: String,
    /// The seed of its plan.
    pub seed: u64,
    /// What ran it.
    pub engine: EngineKind,
    /// Trace hash, in hexadecimal.
    pub trace_hash: String,
    /// Events.
    pub events: u64,
    /// Simulated time.
    pub simulated_ms: u64,
    /// Counts.
    #[serde(flatten)]
    pub stats: Stats,
    /// The first illegal event, with what is needed to look at it.
    pub failure: Option<Failure>,
    /// Rare states that were reached.
    #[serde(skip)]
    pub reach: Reach,
    /// Faults that met states of a connector.
    #[serde(skip)]
    pub coverage: Coverage,
    /// The trace hash.
    #[serde(skip)]
    pub hash: u64,
}

/// A violation and how to look at it.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The violation.
    #[serde(flatten)]
    pub violation: Violation,
    /// The history of the object or host concerned.
    pub history: Vec<String>,
    /// The plan to replay it with.
    pub plan_file: Option<PathBuf>,
}

impl Verdict {
    /// The verdict on `outcome`, which came of `job`.
    fn new(job: &Job, outcome: &Outcome) -> Self {
        let hash = outcome.trace.hash();
        Self {
            group: job.plan.name.clone(),
            seed: job.plan.seed,
            engine: job.engine,
            trace_hash: format!("{hash:016x}"),
            events: outcome.trace.events(),
            simulated_ms: outcome.simulated.as_millis() as u64,
            stats: outcome.stats.clone(),
            reach: outcome.reach.clone(),
            coverage: outcome.coverage.clone(),
            failure: None,
            hash,
        }
    }

    /// The name of this run among all runs.
    pub fn label(&self) -> String {
        if self.group.starts_with("random") {
            format!("{} seed {}", self.group, self.seed)
        } else {
            self.group.clone()
        }
    }
}

/// Makes all runs on up to `threads` threads; calls `done` after each, which may end the campaign. Failing
/// plans are written to `directory`.
pub fn campaign(
    jobs: &[Job],
    threads: usize,
    directory: &Path,
    done: &(dyn Fn(&Verdict) -> ControlFlow<()> + Sync),
) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    let verdict = judge(job, directory);
                    if done(&verdict).is_break() {
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                    verdicts.lock().expect("no panic while held").push((index, verdict));
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().expect("no panic while held");
    verdicts.sort_by_key(|(index, _)| *index);
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

/// One run and its verdict. A failing plan runs once more with its timeline kept: it does the same again.
fn judge(job: &Job, directory: &Path) -> Verdict {
    let keep = if job.expect.is_some() { Keep::Everything } else { Keep::Nothing };
    let outcome = run_on(job.engine, &job.plan, keep);
    let mut verdict = Verdict::new(job, &outcome);
    let violation = outcome.violation.clone().or_else(|| unexpected(job, &outcome));
    if let Some(violation) = violation {
        let replay = run_on(job.engine, &job.plan, Keep::Everything);
        let history = history(replay.trace.lines(), &violation);
        let plan_file = write_plan(&job.plan, directory);
        verdict.failure = Some(Failure { violation, history, plan_file });
    }
    verdict
}

/// Runs a plan on the default engine, as [`run_on`] does.
pub fn run_fresh(plan: &Plan, keep: Keep) -> Outcome {
    run_on(EngineKind::default(), plan, keep)
}

/// Runs a plan on a thread of its own, so that nothing of an earlier run is left in thread-locals.
pub fn run_on(engine: EngineKind, plan: &Plan, keep: Keep) -> Outcome {
    thread::scope(|scope| {
        let run = || {
            panics::collect(plan, engine);
            run(plan, engine, keep)
        };
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, run).expect("a thread for the run");
        thread.join().expect("a run turns panics of its hosts into events")
    })
}

/// What a scenario expected and did not get.
fn unexpected(job: &Job, outcome: &Outcome) -> Option<Violation> {
    let message = job.expect?(outcome).err()?;
    Some(Violation {
        oracle: OracleId::Expectation,
        event: outcome.trace.events(),
        time_us: outcome.simulated.as_micros() as u64,
        host: "world".to_owned(),
        what: "the end of the run".to_owned(),
        message,
        key: None,
    })
}

/// The lines about the object concerned, or the last ones of the host.
fn history(lines: &[String], violation: &Violation) -> Vec<String> {
    let about = violation.key.clone().unwrap_or_else(|| format!(" {} ", violation.host));
    let relevant: Vec<&String> = lines.iter().filter(|line| line.contains(&about)).collect();
    let relevant = if relevant.is_empty() { lines.iter().collect() } else { relevant };
    let skip = relevant.len().saturating_sub(HISTORY_LINES);
    relevant.into_iter().skip(skip).cloned().collect()
}

/// The verdict on a run that panicked so that nobody can go on: what [`panics::before_abort`] has to tell.
pub fn aborted(plan: &Plan, engine: EngineKind, message: &str, directory: &Path) -> Verdict {
    let violation = Violation {
        oracle: OracleId::I8,
        event: 0,
        time_us: 0,
        host: "world".to_owned(),
        what: "a panic in a destructor while another one was under way".to_owned(),
        message: format!("a host panicked: {message}"),
        key: None,
    };
    let plan_file = write_plan(plan, directory);
    Verdict {
        group: plan.name.clone(),
        seed: plan.seed,
        engine,
        trace_hash: String::new(),
        events: 0,
        simulated_ms: 0,
        stats: Stats::default(),
        failure: Some(Failure { violation, history: Vec::new(), plan_file }),
        reach: Reach::default(),
        coverage: Coverage::default(),
        hash: 0,
    }
}

fn write_plan(plan: &Plan, directory: &Path) -> Option<PathBuf> {
    let name = format!("{}-{}.json", plan.name.replace(' ', "-"), plan.seed);
    let path = directory.join(name);
    let written =
        std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, plan.to_json()));
    written.ok().map(|()| path)
}

/// The simulated time of many runs.
pub fn simulated(verdicts: &[Verdict]) -> Duration {
    verdicts.iter().map(|verdict| Duration::from_millis(verdict.simulated_ms)).sum()
}
