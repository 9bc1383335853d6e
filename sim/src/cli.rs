//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{commands::CampaignArgs, plan::FaultKind, world::engine::EngineKind};

/// Runs the production connector and pool against a fake Mooncake Store under injected faults, in virtual
/// time, and judges every event.
#[derive(Debug, Parser)]
#[command(name = "sim", version, args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  sim                                   all scenarios and 100 random plans
  sim --seed 7                          the plan that seed 7 draws
  sim --seed 1000 --plans 500           the plans of seeds 1000 to 1499
  sim --scenario f001_timeout_while_put_runs --trace
                                        one scenario, with its timeline
  sim --scenario f08                    all whose names begin so
  sim --plan target/sim/random-w1-7.json --trace
                                        replays the plan of a failure
  sim --engine fast --plans 2000 --seed 0
                                        many plans in little time
  sim meta --plans 50                   runs 50 plans twice each and compares
  sim engines --plans 200               runs 200 plans and all scenarios on both engines
  sim plan --seed 7                     prints the plan that seed 7 draws
  sim plan --scenario f001              prints a scenario's plan
  sim minimize target/sim/random-w1-7.json
                                        finds the smallest plan that fails in the same way
  sim explore                           every order of what can happen in six small worlds
  sim coverage --plans 500              which faults met which states of a connector
  sim --seed 7 --plans 100 --html first.html
                                        a page with the timeline of the first violation
  sim timeline target/sim/random-w1-7.json --html run.html
                                        the same of one plan, with a violation or without
  sim campaign --minutes 60             seeds for an hour, from where the last campaign stopped
  sim compare --plans 100               the original pull request's design on the same plans

Exit codes: 0 no violation, 1 violation, 2 usage, 3 only liveness violated, 4 not deterministic, 5 a fault
and a state that met before did not meet.")]
pub struct Cli {
    /// What to run.
    #[command(flatten)]
    pub run: RunArgs,
    /// Something else than a run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Random plans that one command runs at most: they are all drawn before the first one runs.
const PLANS_MAX: u64 = 20_000;

/// What moves the world.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct On {
    /// What moves the world: turmoil, or fast, whose time jumps from event to event
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t, hide_possible_values = true)]
    pub engine: EngineKind,
}

/// How many runs at a time.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Side {
    /// Runs side by side [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,
}

/// Random plans beside all scenarios, `PLANS` of them unless another number is asked for.
#[derive(Clone, Copy, Debug, Args)]
pub struct Drawn<const PLANS: u64> {
    /// Number of random plans beside the scenarios
    #[arg(long, value_name = "N", default_value_t = PLANS, value_parser = plans)]
    pub plans: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
}

/// What to run and how to report it.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Run the plan that this seed draws, and with --plans those of the following seeds
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Number of random plans [default: 100 beside all scenarios, 1 with --seed]
    #[arg(long, value_name = "N", value_parser = plans)]
    pub plans: Option<u64>,
    /// Run the scenarios whose names begin so; may be repeated
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Run this plan file; a scenario's own is judged as the scenario is
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Draw faults of these kinds only; may be repeated (see `sim faults`)
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub fault: Vec<FaultKind>,
    /// Draw no faults of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub no_fault: Vec<FaultKind>,
    /// What moves the world
    #[command(flatten)]
    pub on: On,
    /// Start no more runs after the first violation
    #[arg(long)]
    pub fail_fast: bool,
    /// Print the timeline of every run
    #[arg(long)]
    pub trace: bool,
    /// Print one JSON object instead of the table
    #[arg(long, conflicts_with = "trace")]
    pub json: bool,
    /// Write the timeline of the first violation, or of the only plan, as a page for browsers
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub html: Option<PathBuf>,
    /// List the scenarios and what they show, with --json as an array
    #[arg(long, conflicts_with_all = ["seed", "plans", "scenario", "plan", "trace", "fail_fast", "jobs", "html"])]
    pub list: bool,
    /// How many at a time
    #[command(flatten)]
    pub side: Side,
}

/// Something else than a run.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run plans twice and compare their traces
    Meta {
        /// Random plans beside the scenarios
        #[command(flatten)]
        drawn: Drawn<50>,
        /// Leave the scenarios out
        #[arg(long)]
        random_only: bool,
        /// What moves the world
        #[command(flatten)]
        on: On,
        /// How many at a time
        #[command(flatten)]
        side: Side,
    },
    /// Run plans on both engines and compare the verdicts
    Engines {
        /// Random plans beside the scenarios
        #[command(flatten)]
        drawn: Drawn<200>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// How many at a time
        #[command(flatten)]
        side: Side,
    },
    /// Run seeds for some minutes on all cores, from where the last campaign stopped
    Campaign(#[command(flatten)] CampaignArgs),
    /// List the kinds of fault
    Faults {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print which kinds of fault met which states of a connector, in all scenarios and random plans
    Coverage {
        /// Random plans beside the scenarios
        #[command(flatten)]
        drawn: Drawn<100>,
        /// What moves the world
        #[command(flatten)]
        on: On,
        /// Write what was reached to this file, as what every campaign has to reach
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
        /// How many at a time
        #[command(flatten)]
        side: Side,
    },
    /// Explore small worlds: every order of calls, answers, failures and deadlines
    Explore {
        /// Explore this world only; may be repeated
        #[arg(long, value_name = "NAME")]
        world: Vec<String>,
        /// Executions of a world at most
        #[arg(long, value_name = "N", default_value_t = 1_000_000)]
        executions: u64,
        /// Print one JSON object instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Run the design of the original pull request on the same plans: who violates what, class by class
    Compare(CompareArgs),
    /// Find the smallest plan that fails as this one does
    Minimize {
        /// The plan file
        #[arg(value_name = "PLAN")]
        plan: PathBuf,
        /// Plans to try at most
        #[arg(long, value_name = "N", default_value_t = 2_000)]
        tries: u64,
        /// Where the smallest plan goes [default: beside the plan]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// What moves the world
        #[command(flatten)]
        on: On,
    },
    /// Print the plan that a seed draws, or that of a scenario
    #[command(group = clap::ArgGroup::new("source").required(true))]
    Plan(#[command(flatten)] Source),
    /// Run one plan and show its timeline: as text, or as a page that a browser shows
    #[command(group = clap::ArgGroup::new("source").required(true))]
    Timeline {
        /// The plan file
        #[arg(value_name = "PLAN", group = "source")]
        plan: Option<PathBuf>,
        /// Where the plan comes from instead
        #[command(flatten)]
        source: Source,
        /// What moves the world
        #[command(flatten)]
        on: On,
        /// Write a page to this file instead of text to the output
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}

/// Where one plan comes from.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Source {
    /// The seed
    #[arg(long, value_name = "SEED", group = "source")]
    pub seed: Option<u64>,
    /// The scenario, by the beginning of its name
    #[arg(long, value_name = "NAME", group = "source")]
    pub scenario: Option<String>,
}

/// What to compare the two subjects on.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// Number of random plans [default: 20 beside all scenarios, 0 with --scenario]
    #[arg(long, value_name = "N", value_parser = plans)]
    pub plans: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// Compare on the scenarios whose names begin so; may be repeated
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub json: bool,
    /// How many at a time
    #[command(flatten)]
    pub side: Side,
}

/// A number of random plans.
fn plans(number: &str) -> Result<u64, String> {
    let plans = number.parse().ok().filter(|plans| *plans <= PLANS_MAX);
    plans.ok_or_else(|| {
        format!("expected 0 to {PLANS_MAX} (`sim campaign` runs as many as there is time for)")
    })
}

/// A kind of fault by its name.
fn kind(name: &str) -> Result<FaultKind, String> {
    FaultKind::find(name).ok_or_else(|| {
        let known: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("expected one of {}", known.join(", "))
    })
}
