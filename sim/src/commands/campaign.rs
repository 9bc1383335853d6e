//! A campaign that lasts: seeds on all cores until the time is up, from where the last one stopped.

use std::{
    convert::Infallible,
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    path::{self, Path, PathBuf},
    process::exit,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use signal_hook::{consts::SIGINT, flag};

use super::{UsageError, directory};
use crate::{
    campaign::{Job, aborted, campaign, file::claim, state::State},
    cli::Side,
    generate::generate,
    oracle::OracleId,
    plan::Plan,
    world::{engine::EngineKind, panics},
};

/// Plans that a thread runs between two savings of the state.
const PLANS_BETWEEN: u64 = 16;
/// Exit code of a second interruption, as shells have it for the signal.
const INTERRUPTED: i32 = 130;

/// Where the campaign keeps its state, for a run that takes the process with it.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// What to do, and for how long.
#[derive(Clone, Debug, clap::Args)]
pub struct CampaignArgs {
    /// Minutes that it lasts; may be a fraction
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: f64,
    /// How many at a time
    #[command(flatten)]
    pub side: Side,
    /// What moves the world: the fast engine, whose time jumps from event to event, or turmoil
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = EngineKind::Fast)]
    pub engine: EngineKind,
    /// Where its state and the failing plans are kept [default: target/sim/campaign]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The first seed of a campaign that has no state yet
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.001..=100_000.0).contains(minutes));
    minutes.ok_or_else(|| "expected minutes from 0.001 to 100000".to_owned())
}

/// Runs seeds until the time is up or somebody interrupts, and reports what came of them and of those before.
pub(super) fn run_campaign(args: &CampaignArgs, out: &mut impl Write) -> Result<u8, UsageError> {
    let place = args.dir.clone().unwrap_or_else(|| directory().join("campaign"));
    // Absolute, so that the lines that replay failures work from everywhere.
    let place = path::absolute(&place).unwrap_or(place);
    let _claim = claim(&place)?;
    let mut state = State::load(&place)?.unwrap_or_else(|| State::new(args.seed));
    state.save(&place)?;
    let interrupted = interruption()?;
    // The first call decides; a process runs one campaign.
    let _ = DIRECTORY.set(place.clone());
    panics::before_abort(keep_aborted);
    let session = Session::run(&mut state, &place, args, &interrupted)?;
    if args.json {
        writeln!(out, "{:#}", session.json(&state, &place))?;
    } else {
        write!(out, "{}", session.text(&state))?;
    }
    Ok(exit_code(&state))
}

/// Becomes true when somebody asks the process to stop; a second time it stops at once.
fn interruption() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // In this order: the first signal finds the flag unset, and sets it.
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&interrupted))?;
    flag::register(SIGINT, Arc::clone(&interrupted))?;
    Ok(interrupted)
}

/// One call of the campaign.
struct Session {
    plans: u64,
    simulated_ms: u64,
    wall: Duration,
    threads: usize,
    interrupted: bool,
}

impl Session {
    #[expect(clippy::disallowed_types, reason = "the campaign lasts as long as people wait")]
    fn run(
        state: &mut State,
        place: &Path,
        args: &CampaignArgs,
        interrupted: &AtomicBool,
    ) -> Result<Self, UsageError> {
        let threads = args.side.threads();
        let started = std::time::Instant::now();
        let length = Duration::from_secs_f64(args.minutes * 60.0);
        let before = state.clone();
        let progress = progress(length);
        let failed = AtomicU64::new(state.failed());
        let plans = AtomicU64::new(0);
        let is_over = || started.elapsed() >= length || interrupted.load(Ordering::Relaxed);
        while !is_over() {
            let jobs = jobs(state, threads as u64 * PLANS_BETWEEN, args.engine);
            let verdicts = campaign(&jobs, threads, &place.join("plans"), &|verdict| {
                let new = u64::from(verdict.failure.is_some());
                let failed = failed.fetch_add(new, Ordering::Relaxed) + new;
                let plans = plans.fetch_add(1, Ordering::Relaxed) + 1;
                progress.set_position(started.elapsed().min(length).as_secs());
                progress.set_message(format!("{plans} plans, {failed} failed"));
                if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            // Plans start in order and end all, so those that ran are the first of the jobs.
            verdicts.iter().for_each(|verdict| state.take(verdict));
            state.wall_ms = before.wall_ms.saturating_add(started.elapsed().as_millis() as u64);
            state.save(place)?;
        }
        progress.finish_and_clear();
        Ok(Self {
            plans: state.plans - before.plans,
            simulated_ms: state.simulated_ms - before.simulated_ms,
            wall: started.elapsed(),
            threads,
            interrupted: interrupted.load(Ordering::Relaxed),
        })
    }

    /// Simulated seconds a second, and plans a second and core.
    fn speed(&self) -> (f64, f64) {
        let seconds = self.wall.as_secs_f64();
        let plans = self.plans as f64 / seconds / self.threads as f64;
        (self.simulated_ms as f64 / 1000.0 / seconds, plans)
    }

    fn json(&self, state: &State, place: &Path) -> serde_json::Value {
        let (simulated_per_second, plans_per_second_and_core) = self.speed();
        json!({
            "directory": place,
            "session": {
                "plans": self.plans,
                "seconds": self.wall.as_secs_f64(),
                "threads": self.threads,
                "interrupted": self.interrupted,
                "simulated_seconds_per_second": simulated_per_second,
                "plans_per_second_and_core": plans_per_second_and_core,
            },
            "plans": state.plans,
            "failed": state.failed(),
            "next_seed": state.next_seed,
            "violations": state.failures,
        })
    }

    fn text(&self, state: &State) -> String {
        let mut text = String::new();
        for found in &state.failures {
            text += &format!(
                "{} violated by {} plans, first by seed {}\n  {}\n",
                found.oracle, found.count, found.first_seed, found.message
            );
            if let Some(file) = &found.plan_file {
                let (engine, file) = (&found.engine, file.display());
                text +=
                    &format!("  replay: ./ci/just sim --engine {engine} --trace --plan {file}\n");
            }
        }
        if state.failures_beyond > 0 {
            text += &format!("{} plans failed in yet other ways\n", state.failures_beyond);
        }
        let (simulated, plans) = self.speed();
        let stopped = if self.interrupted { ", interrupted" } else { "" };
        text + &format!(
            "{} of {} plans failed, in {} ways; the next seed is {}\nthis time: {} plans in \
             {:.1} s on {} cores, {simulated:.0} simulated seconds a second, {plans:.1} plans a \
             second and core{stopped}\n",
            state.failed(),
            state.plans,
            state.failures.len(),
            state.next_seed,
            self.plans,
            self.wall.as_secs_f64(),
            self.threads,
        )
    }
}

/// The plans of the next seeds, without those that are known to take the process with them.
fn jobs(state: &State, count: u64, engine: EngineKind) -> Vec<Job> {
    let seeds = (0..count).map(|n| state.next_seed.wrapping_add(n));
    let seeds = seeds.filter(|seed| !state.aborting.contains(seed));
    seeds.map(|seed| Job { plan: generate(seed), expect: None, engine }).collect()
}

fn exit_code(state: &State) -> u8 {
    match state.failures.iter().all(|found| found.oracle == OracleId::I5) {
        _ if state.failures.is_empty() => 0,
        true => 3,
        false => 1,
    }
}

/// Keeps what a run has to say that takes the process with it. The next campaign leaves its seed out.
fn keep_aborted(plan: &Plan, engine: EngineKind, message: &str) -> Infallible {
    let place = DIRECTORY.get().expect("set before the first run");
    let verdict = aborted(plan, engine, message, &place.join("plans"));
    let failure = verdict.failure.expect("an aborted run has failed");
    eprintln!("{} violated by seed {}: {message}", failure.violation.oracle, plan.seed);
    let kept = State::load(place).and_then(|state| {
        let mut state = state.unwrap_or_else(|| State::new(plan.seed));
        state.take_aborted(plan.seed, engine, &failure);
        state.save(place)
    });
    match kept {
        Ok(()) => eprintln!("the process cannot go on; the next campaign leaves this seed out"),
        Err(error) => eprintln!("error: {error}"),
    }
    exit(1)
}

fn progress(length: Duration) -> ProgressBar {
    let seconds = length.as_secs().max(1);
    if !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(seconds), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:32} {elapsed} of {prefix}, {wide_msg}");
    ProgressBar::new(seconds)
        .with_style(style.expect("the template is constant"))
        .with_prefix(HumanDuration(length).to_string())
}
