//! `conformance`: compares the fake store with the real one.
//!
//! Exit codes: 0 no difference and every state covered, 1 a difference or a state that was never covered,
//! 2 usage, or a comparison that could not be made.

#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use conformance::{
    campaign::{self, Plan},
    real::Installation,
    report, scenarios,
};

/// Compares the fake store with the real Mooncake Store, operation by operation.
///
/// Saved sequences run first, then the written ones, then random ones, several at a time. A random sequence that differs is
/// shortened and saved. Exit codes: 0 no difference and every state covered, 1 a difference or a state that
/// was never covered, 2 usage, or a comparison that could not be made.
#[derive(Debug, Parser)]
#[command(name = "conformance", args_override_self = true)]
struct Cli {
    /// Operations of random sequences, at least.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// What random sequences are drawn from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Only the written and saved sequences with this in their name.
    #[arg(long)]
    only: Option<String>,
    /// Also the written sequences that may take minutes.
    #[arg(long)]
    slow: bool,
    /// How many sequences run at a time, each on a store of its own.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=16))]
    at_a_time: u8,
    /// List the written sequences, and why one is slow.
    #[arg(long)]
    list: bool,
    /// The script that starts and stops masters.
    #[arg(long, default_value = "ci/real-store")]
    real_store: PathBuf,
    /// The interpreter that can import Mooncake.
    #[arg(long, required_unless_present = "list")]
    python: Option<PathBuf>,
    /// Where clients of the real store log.
    #[arg(long, default_value = "target/tmp")]
    logs: PathBuf,
    /// Where sequences that differed are kept.
    #[arg(long, default_value = "conformance/regressions")]
    saved: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        for scenario in scenarios::all() {
            let slow = scenario.slow.map(|why| format!(" (slow: {why})")).unwrap_or_default();
            println!("{}{slow}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(text) => {
            eprintln!("conformance: {text}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool, String> {
    let logs = &cli.logs;
    std::fs::create_dir_all(logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let installation = Installation {
        script: cli.real_store.clone(),
        python: cli.python.clone().unwrap_or_default(),
        logs: logs.clone(),
    };
    let plan = Plan {
        operations: cli.operations,
        seed: cli.seed,
        only: cli.only.clone(),
        slow: cli.slow,
        at_a_time: usize::from(cli.at_a_time),
        saved: cli.saved.clone(),
    };
    let progress = |what: &str| eprintln!("conformance: {what}");
    let outcome =
        campaign::compare(&installation, &plan, progress).map_err(|broken| broken.to_string())?;
    if cli.json {
        println!("{}", report::json(&outcome));
    } else {
        println!("{}", report::text(&outcome));
    }
    Ok(report::is_good(&outcome))
}
