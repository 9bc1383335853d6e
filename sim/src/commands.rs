//! What the commands do.

mod campaign;
mod compare;
mod engines;
mod studies;
mod timeline;

use std::{
    convert::Infallible,
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    path::{self, PathBuf},
    process::{ExitCode, exit},
    slice,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

pub use self::campaign::CampaignArgs;
use self::{
    campaign::run_campaign,
    engines::compare_engines,
    studies::{coverage, explore_worlds, minimize_plan, missed},
    timeline::{page_of_first, timeline},
};
use crate::{
    campaign::{Job, Verdict, aborted, campaign, file::StateError, run_on},
    cli::{Cli, Command, Drawn, On, RunArgs, Side, Source},
    generate::{generate, generate_with},
    plan::{FaultKind, Plan, PlanError},
    recorder::Keep,
    report::{self, Report},
    scenario::{self, Scenario},
    trace::combine,
    world::{engine::EngineKind, panics},
};

/// Random plans of a run without arguments.
const PLANS: u64 = 100;
/// Exit code for a request that cannot be carried out.
const USAGE: u8 = 2;
/// Exit code for two runs of one plan that differ.
const NOT_DETERMINISTIC: u8 = 4;

/// A request that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// No scenario whose name begins so.
    #[error(
        "--scenario: expected the beginning of a scenario's name, got `{got}`; near it: {near} \
         (`sim --list` shows all)"
    )]
    Scenario {
        /// What was asked for.
        got: String,
        /// The names most like it.
        near: String,
    },
    /// More scenarios than one whose names begin so, where one is wanted.
    #[error("--scenario: expected one scenario, `{got}` is the beginning of {names}")]
    Ambiguous {
        /// What was asked for.
        got: String,
        /// Those it may stand for.
        names: String,
    },
    /// A number of random plans beside what is named.
    #[error("--plans: expected --seed beside it, got --scenario or --plan without one")]
    Plans,
    /// Nothing to compare.
    #[error("--plans: expected at least 1 with --random-only, got 0")]
    Nothing,
    /// No small world of this name.
    #[error("--world: expected one of {expected}, got {got}")]
    World {
        /// The worlds.
        expected: String,
        /// What was asked for.
        got: String,
    },
    /// The plan file cannot be run.
    #[error("--plan: {0}")]
    Plan(#[from] PlanError),
    /// The plan file that a command was given cannot be run.
    #[error("PLAN: {0}")]
    File(PlanError),
    /// Runs would not be deterministic.
    #[error(
        "expected a build with `--cfg tokio_unstable` (.cargo/config.toml sets it), got one without"
    )]
    Build,
    /// The plan that is to be minimized does not fail.
    #[error("{0}: expected a plan that breaks a promise, got one that keeps all of them")]
    NoFailure(String),
    /// The state of a campaign cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The output could not be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

/// Does what the command line says.
pub fn execute(cli: Cli) -> ExitCode {
    let out = &mut Output(io::stdout());
    let code = match cli.command {
        _ if cfg!(not(tokio_unstable)) => Err(UsageError::Build),
        None if cli.run.list => list(cli.run.json, out),
        None => run(&cli.run, out),
        Some(Command::Meta { drawn: Drawn { plans: 0, .. }, random_only: true, .. }) => {
            Err(UsageError::Nothing)
        }
        Some(Command::Meta { drawn, random_only, on, side }) => {
            let scenarios = scenario::all().filter(|_| !random_only).map(job);
            // An expectation is of no interest here.
            let scenarios = scenarios.map(|job| Job { expect: None, ..job });
            let compared = scenarios.chain(random(drawn.seed, drawn.plans));
            meta(compared.map(|job| on.of(job)).collect(), side.threads(), out)
        }
        Some(Command::Engines { drawn, json, side }) => {
            compare_engines(with_scenarios(drawn), side.threads(), json, out)
        }
        Some(Command::Campaign(args)) => run_campaign(&args, out),
        Some(Command::Faults { json }) => faults(json, out),
        Some(Command::Coverage { drawn, on, write, side }) => {
            let jobs = with_scenarios(drawn).into_iter().map(|job| on.of(job)).collect();
            coverage(jobs, side.threads(), write, out)
        }
        Some(Command::Explore { world, executions, json }) => {
            explore_worlds(&world, executions, json, out)
        }
        Some(Command::Compare(args)) => compare::compare(&args, out),
        Some(Command::Minimize { plan, tries, out: file, on }) => {
            minimize_plan(&plan, tries, file, on.engine, out)
        }
        Some(Command::Plan(source)) => print_plan(&source, out),
        Some(Command::Timeline { plan, source, on, html }) => {
            timeline(plan.as_deref(), &source, on.engine, html.as_deref(), out)
        }
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        USAGE
    }))
}

/// Standard output, whose reader may have seen enough before the verdict: that is no error, and the exit code
/// still tells the verdict.
struct Output(io::Stdout);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush(), ())
    }
}

fn unless_closed<T>(written: io::Result<T>, instead: T) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(instead),
        other => other,
    }
}

impl On {
    /// The job on this engine.
    fn of(self, job: Job) -> Job {
        Job { engine: self.engine, ..job }
    }
}

impl Side {
    /// Threads to run on.
    fn threads(self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        self.jobs.map_or_else(cores, |jobs| jobs as usize)
    }
}

/// Where plans of failures go.
fn directory() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let directory = target.join("sim");
    // Absolute, so that the line that replays a failure works from everywhere.
    path::absolute(&directory).unwrap_or(directory)
}

fn run(args: &RunArgs, out: &mut impl Write) -> Result<u8, UsageError> {
    let jobs = jobs(args)?;
    if args.trace {
        return trace(&jobs, out);
    }
    panics::before_abort(if args.json { last_words_json } else { last_words });
    let progress = progress(jobs.len() as u64);
    let violations = AtomicU64::new(0);
    let done = |verdict: &Verdict| {
        let new = u64::from(verdict.failure.is_some());
        let all = violations.fetch_add(new, Ordering::Relaxed) + new;
        progress.set_message(format!("{all} violations, {}", verdict.label()));
        progress.inc(1);
        if args.fail_fast && all > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let verdicts = campaign(&jobs, args.side.threads(), &directory(), &done);
    progress.finish_and_clear();
    if let Some(html) = &args.html {
        page_of_first(&jobs, &verdicts, html)?;
    }
    if args.json {
        writeln!(out, "{}", Report::new(&verdicts).to_json())?;
        return Ok(report::exit_code(&verdicts));
    }
    writeln!(out, "{}", report::table(&verdicts))?;
    for verdict in &verdicts {
        if let Some(failure) = &verdict.failure {
            write!(out, "{}", report::failure(verdict, failure))?;
        }
    }
    // A single plan reaches little by itself.
    let never = report::never_reached(&verdicts);
    if verdicts.len() >= PLANS as usize && !never.is_empty() {
        writeln!(out, "{never}")?;
    }
    let covered = if is_full(args) { missed(&verdicts, out)? } else { 0 };
    writeln!(out, "{}", report::summary(&verdicts))?;
    let code = report::exit_code(&verdicts);
    Ok(if code == 0 { covered } else { code })
}

/// The runs that the arguments ask for: what they name, or everything.
fn jobs(args: &RunArgs) -> Result<Vec<Job>, UsageError> {
    let mut jobs = Vec::new();
    for name in &args.scenario {
        jobs.extend(scenarios(name)?.into_iter().map(job));
    }
    if let Some(path) = &args.plan {
        jobs.push(replay(Plan::read(path)?));
    }
    if args.plans.is_some() && args.seed.is_none() && !jobs.is_empty() {
        return Err(UsageError::Plans);
    }
    if let Some(first) = args.seed {
        jobs.extend(drawn(first, args.plans.unwrap_or(1), args));
    } else if jobs.is_empty() {
        jobs.extend(scenario::all().map(job));
        jobs.extend(drawn(0, args.plans.unwrap_or(PLANS), args));
    }
    jobs.iter_mut().for_each(|job| job.engine = args.on.engine);
    Ok(jobs)
}

/// The scenarios whose names begin so; of a whole name that one alone.
fn scenarios(name: &str) -> Result<Vec<&'static Scenario>, UsageError> {
    if let Some(scenario) = scenario::find(name) {
        return Ok(vec![scenario]);
    }
    let found: Vec<_> = scenario::all().filter(|s| s.name.starts_with(name)).collect();
    if !name.is_empty() && !found.is_empty() {
        return Ok(found);
    }
    let mut names: Vec<&str> = scenario::all().map(|scenario| scenario.name).collect();
    names.sort_by_key(|candidate| strsim::levenshtein(candidate, name));
    Err(UsageError::Scenario { got: name.to_owned(), near: names[..3].join(", ") })
}

/// A plan file's run. What a scenario expects belongs to its own plan: one that was changed is judged by the
/// oracles alone.
fn replay(plan: Plan) -> Job {
    match scenario::find(&plan.name) {
        Some(scenario) if scenario.plan() == plan => job(scenario),
        Some(scenario) => {
            eprintln!(
                "note: not the plan of {} in this build: only oracles judge it",
                scenario.name
            );
            Job { plan, expect: None, engine: EngineKind::default() }
        }
        None => Job { plan, expect: None, engine: EngineKind::default() },
    }
}

/// Whether the arguments leave nothing out of what a full campaign runs.
fn is_full(args: &RunArgs) -> bool {
    let some = args.seed.is_some() || args.plan.is_some() || !args.scenario.is_empty();
    let fewer = args.plans.is_some_and(|plans| plans < PLANS) || args.fail_fast;
    !some && !fewer && args.fault.is_empty() && args.no_fault.is_empty()
}

/// Random plans with the kinds of fault that the arguments leave.
fn drawn(first: u64, plans: u64, args: &RunArgs) -> impl Iterator<Item = Job> {
    let allowed = |kind: FaultKind| {
        (args.fault.is_empty() || args.fault.contains(&kind)) && !args.no_fault.contains(&kind)
    };
    (0..plans).map(move |n| {
        let plan = generate_with(first.wrapping_add(n), &allowed);
        Job { plan, expect: None, engine: EngineKind::default() }
    })
}

fn job(scenario: &Scenario) -> Job {
    Job { plan: scenario.plan(), expect: Some(scenario.expect), engine: EngineKind::default() }
}

/// All scenarios, and random plans beside them.
fn with_scenarios<const PLANS: u64>(drawn: Drawn<PLANS>) -> Vec<Job> {
    scenario::all().map(job).chain(random(drawn.seed, drawn.plans)).collect()
}

fn random(first: u64, plans: u64) -> impl Iterator<Item = Job> {
    (0..plans).map(move |n| Job {
        plan: generate(first.wrapping_add(n)),
        expect: None,
        engine: EngineKind::default(),
    })
}

/// Reports a run that takes the whole campaign with it, and ends the process.
fn last_words(plan: &Plan, engine: EngineKind, message: &str) -> Infallible {
    let verdict = aborted(plan, engine, message, &directory());
    let text = verdict.failure.as_ref().map(|failure| report::failure(&verdict, failure));
    end(&[verdict], &text.unwrap_or_default())
}

fn last_words_json(plan: &Plan, engine: EngineKind, message: &str) -> Infallible {
    let verdicts = [aborted(plan, engine, message, &directory())];
    end(&verdicts, &Report::new(&verdicts).to_json())
}

fn end(verdicts: &[Verdict], text: &str) -> ! {
    // Whether anybody reads it or not, the exit code tells the verdict.
    let _ = writeln!(io::stdout(), "{text}");
    exit(report::exit_code(verdicts).into())
}

fn go_on(_: &Verdict) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Runs one after the other with their timelines.
fn trace(jobs: &[Job], out: &mut impl Write) -> Result<u8, UsageError> {
    let mut verdicts = Vec::new();
    for job in jobs {
        let outcome = run_on(job.engine, &job.plan, Keep::Everything);
        for line in outcome.trace.lines() {
            writeln!(out, "{line}")?;
        }
        verdicts.extend(campaign(slice::from_ref(job), 1, &directory(), &go_on));
    }
    for verdict in &verdicts {
        if let Some(failure) = &verdict.failure {
            write!(out, "{}", report::failure(verdict, failure))?;
        }
    }
    writeln!(out, "{}", report::summary(&verdicts))?;
    Ok(report::exit_code(&verdicts))
}

/// Runs every plan twice and compares the traces; shows the first difference.
fn meta(jobs: Vec<Job>, threads: usize, out: &mut impl Write) -> Result<u8, UsageError> {
    let progress = progress(2 * jobs.len() as u64);
    let done = |_: &Verdict| {
        progress.inc(1);
        ControlFlow::Continue(())
    };
    let first = campaign(&jobs, threads, &directory(), &done);
    let second = campaign(&jobs, threads, &directory(), &done);
    progress.finish_and_clear();
    for ((job, one), two) in jobs.iter().zip(&first).zip(&second) {
        if one.hash == two.hash {
            continue;
        }
        writeln!(out, "{}: {} and {}", one.label(), one.trace_hash, two.trace_hash)?;
        // Two runs more, with their lines; the difference is likely to show again.
        let [one, two] = [0, 1].map(|_| run_on(job.engine, &job.plan, Keep::Everything).trace);
        match one.difference(&two) {
            None => writeln!(out, "  does not show again with the timeline kept")?,
            Some(difference) => {
                let line = |line: &Option<String>| line.clone().unwrap_or("nothing".to_owned());
                writeln!(out, "  first difference, event {}:", difference.event)?;
                writeln!(out, "  {}", line(&difference.first))?;
                writeln!(out, "  {}", line(&difference.second))?;
            }
        }
        return Ok(NOT_DETERMINISTIC);
    }
    let hash = combine(first.iter().map(|verdict| verdict.hash));
    writeln!(out, "no difference in {} plans run twice, trace hash {hash:016x}", jobs.len())?;
    Ok(0)
}

fn list(json: bool, out: &mut impl Write) -> Result<u8, UsageError> {
    if json {
        let entry = |s: &Scenario| json!({ "name": s.name, "rows": s.rows, "text": s.text });
        writeln!(out, "{:#}", scenario::all().map(entry).collect::<Value>())?;
        return Ok(0);
    }
    let width = scenario::all().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    for scenario in scenario::all() {
        writeln!(out, "{:<width$} {}", scenario.name, scenario.text)?;
    }
    Ok(0)
}

fn faults(json: bool, out: &mut impl Write) -> Result<u8, UsageError> {
    if json {
        let kinds: Vec<serde_json::Value> = FaultKind::ALL
            .iter()
            .map(|kind| {
                let (name, text, moments) = (kind.name(), kind.text(), kind.moments());
                serde_json::json!({ "name": name, "text": text, "moments": moments })
            })
            .collect();
        writeln!(out, "{}", serde_json::Value::from(kinds))?;
        return Ok(0);
    }
    for kind in FaultKind::ALL {
        writeln!(out, "{:<17} {}", kind.name(), kind.text())?;
    }
    Ok(0)
}

fn print_plan(source: &Source, out: &mut impl Write) -> Result<u8, UsageError> {
    writeln!(out, "{}", one(source)?.plan.to_json())?;
    Ok(0)
}

/// The one run that a seed or the beginning of a scenario's name stands for.
fn one(source: &Source) -> Result<Job, UsageError> {
    let Some(name) = &source.scenario else {
        let plan = generate(source.seed.expect("one of the two is required"));
        return Ok(Job { plan, expect: None, engine: EngineKind::default() });
    };
    match *scenarios(name)? {
        [scenario] => Ok(job(scenario)),
        ref several => {
            let names = several.iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
            Err(UsageError::Ambiguous { got: name.clone(), names })
        }
    }
}

fn progress(runs: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} plans, {elapsed}, {wide_msg}");
    ProgressBar::new(runs).with_style(style.expect("the template is constant"))
}
