//! Runs one model in shuttle under random schedules, and says what it took and how to see a failure again.

use std::path::PathBuf;

use shuttle::{
    Config, FailurePersistence, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};
use springtide::{env::Clock as _, runtime::TokioClock};

/// Draws other schedules than the campaign's own.
const SEED: &str = "SPRINGTIDE_SHUTTLE_SEED";
/// How many executions each scheduler makes, in place of the campaign's own number.
const EXECUTIONS: &str = "SPRINGTIDE_SHUTTLE_EXECUTIONS";
/// A schedule that a failure left behind, to be run again alone.
const REPLAY: &str = "SPRINGTIDE_SHUTTLE_REPLAY";
/// Preemptions that the PCT scheduler places, plus one. It finds a bug that needs so many with a probability
/// that it guarantees (Burckhardt et al., ASPLOS 2010).
const PCT_DEPTH: usize = 4;

/// Runs a model so many times under each scheduler, and prints a line
/// `campaign NAME SCHEDULER SEED EXECUTIONS SECONDS` for each. A schedule that fails is kept as a file, whose
/// name is printed.
///
/// # Panics
/// If a schedule does: an assertion, or threads that all wait.
pub fn campaign(name: &str, executions: usize, model: fn()) {
    if let Some(schedule) = std::env::var_os(REPLAY) {
        return shuttle::replay_from_file(model, schedule);
    }
    let number = |variable| {
        let value = std::env::var(variable).ok()?;
        Some(value.parse::<u64>().unwrap_or_else(|_| panic!("{variable} is {value}, not a number")))
    };
    let seed = number(SEED).unwrap_or(0);
    let executions = number(EXECUTIONS).map_or(executions, |number| number as usize);
    run(name, "random", seed, RandomScheduler::new_from_seed(seed, executions), model);
    run(name, "pct", seed, PctScheduler::new_from_seed(seed, PCT_DEPTH, executions), model);
}

fn run(name: &str, kind: &str, seed: u64, scheduler: impl Scheduler + 'static, model: fn()) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::File(Some(schedules()));
    config.silence_warnings = true;
    let clock = TokioClock::new();
    let start = clock.now();
    println!("begins {name} {kind} {seed}");
    let executions = Runner::new(scheduler, config).run(model);
    let seconds = (clock.now() - start).as_secs_f64();
    println!("campaign {name} {kind} {seed} {executions} {seconds:.1}");
}

/// Where schedules that failed are kept.
fn schedules() -> PathBuf {
    let directory = std::env::temp_dir().join("springtide-schedules");
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    directory
}
