//! What the commands do.

use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    path::PathBuf,
    process::{ExitCode, exit},
    slice,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    campaign::{Job, Verdict, aborted, campaign, run_fresh},
    cli::{Cli, Command, RunArgs},
    generate::generate,
    plan::{FaultKind, Plan, PlanError},
    recorder::Keep,
    report::{self, Report},
    scenario::{self, Scenario},
    trace::combine,
    world::panics,
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
    /// No scenario of this name.
    #[error("--scenario: expected one of {expected}, got {got}")]
    Scenario {
        /// The scenarios.
        expected: String,
        /// What was asked for.
        got: String,
    },
    /// The plan file cannot be run.
    #[error("--plan: {0}")]
    Plan(#[from] PlanError),
    /// Runs would not be deterministic.
    #[error(
        "expected a build with `--cfg tokio_unstable` (.cargo/config.toml sets it), got one without"
    )]
    Build,
    /// The output could not be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

/// Does what the command line says.
pub fn execute(cli: Cli) -> ExitCode {
    let out = &mut io::stdout();
    let code = match cli.command {
        _ if cfg!(not(tokio_unstable)) => Err(UsageError::Build),
        None if cli.run.list => list(out),
        None => run(&cli.run, out),
        Some(Command::Meta { plans, seed, random_only, jobs }) => {
            let scenarios = scenario::all().filter(|_| !random_only).map(job);
            // An expectation is of no interest here.
            let scenarios = scenarios.map(|job| Job { expect: None, ..job });
            let compared = scenarios.chain(random(seed, plans)).collect();
            meta(compared, threads(jobs), out)
        }
        Some(Command::Faults) => faults(out),
        Some(Command::Plan { seed }) => print_plan(seed, out),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        // A reader that has seen enough is no mistake.
        if !matches!(&error, UsageError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
        {
            eprintln!("error: {error}");
        }
        USAGE
    }))
}

fn threads(jobs: Option<u64>) -> usize {
    let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
    jobs.map_or_else(cores, |jobs| jobs as usize)
}

/// Where plans of failures go.
fn directory() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    target.join("sim")
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
    let verdicts = campaign(&jobs, threads(args.jobs), &directory(), &done);
    progress.finish_and_clear();
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
    writeln!(out, "{}", report::summary(&verdicts))?;
    Ok(report::exit_code(&verdicts))
}

/// The runs that the arguments ask for: what they name, or everything.
fn jobs(args: &RunArgs) -> Result<Vec<Job>, UsageError> {
    let mut jobs = Vec::new();
    for name in &args.scenario {
        jobs.push(job(scenario::find(name).ok_or_else(|| UsageError::Scenario {
            expected: scenario::all().map(|s| s.name).collect::<Vec<_>>().join(", "),
            got: name.clone(),
        })?));
    }
    if let Some(path) = &args.plan {
        jobs.push(Job { plan: Plan::read(path)?, expect: None });
    }
    if let Some(first) = args.seed {
        jobs.extend(random(first, args.plans.unwrap_or(1)));
    } else if jobs.is_empty() {
        jobs.extend(scenario::all().map(job));
        jobs.extend(random(0, args.plans.unwrap_or(PLANS)));
    }
    Ok(jobs)
}

fn job(scenario: &Scenario) -> Job {
    Job { plan: scenario.plan(), expect: Some(scenario.expect) }
}

fn random(first: u64, plans: u64) -> impl Iterator<Item = Job> {
    (0..plans).map(move |n| Job { plan: generate(first.wrapping_add(n)), expect: None })
}

/// Reports a run that takes the whole campaign with it, and ends the process.
fn last_words(plan: &Plan, message: &str) {
    let verdict = aborted(plan, message, &directory());
    if let Some(failure) = &verdict.failure {
        println!("{}", report::failure(&verdict, failure));
    }
    exit(report::exit_code(&[verdict]).into());
}

fn last_words_json(plan: &Plan, message: &str) {
    let verdicts = [aborted(plan, message, &directory())];
    println!("{}", Report::new(&verdicts).to_json());
    exit(report::exit_code(&verdicts).into());
}

fn go_on(_: &Verdict) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Runs one after the other with their timelines.
fn trace(jobs: &[Job], out: &mut impl Write) -> Result<u8, UsageError> {
    let mut verdicts = Vec::new();
    for job in jobs {
        let outcome = run_fresh(&job.plan, Keep::Everything);
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
        let [one, two] = [0, 1].map(|_| run_fresh(&job.plan, Keep::Everything).trace);
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

fn list(out: &mut impl Write) -> Result<u8, UsageError> {
    for scenario in scenario::all() {
        writeln!(out, "{:<44} {}", scenario.name, scenario.text)?;
    }
    Ok(0)
}

fn faults(out: &mut impl Write) -> Result<u8, UsageError> {
    for kind in FaultKind::ALL {
        writeln!(out, "{:<17} {}", kind.name(), kind.text())?;
    }
    Ok(0)
}

fn print_plan(seed: u64, out: &mut impl Write) -> Result<u8, UsageError> {
    writeln!(out, "{}", generate(seed).to_json())?;
    Ok(0)
}

fn progress(runs: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} plans, {elapsed}, {wide_msg}");
    ProgressBar::new(runs).with_style(style.expect("the template is constant"))
}
