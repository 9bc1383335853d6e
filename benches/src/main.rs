//! Runs the suites, prints the report and writes it to `target/bench`.

#![forbid(unsafe_code)]

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use springtide_benches::{
    report::{Report, machine},
    suites::{SUITES, Scale, Suite},
};

/// Compare springtide with its rivals, in one run, as ratios.
///
/// A goal that is missed is said and fails nothing: the machine may be busy. The full run takes some minutes.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    bench --quick                  every row, less work\n  \
    bench --only capacity,churn    these suites\n  \
    bench --json | jq .sections    for machines\n\n\
    Exit codes: 0 done, 1 the report could not be written, 2 usage.")]
struct Arguments {
    /// Fewer rounds and steps, the same rows.
    #[arg(long)]
    quick: bool,
    /// Suites to run, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "SUITE", value_parser = names())]
    only: Vec<String>,
    /// Print JSON instead of Markdown.
    #[arg(long)]
    json: bool,
    /// Where report.md and report.json go.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

fn names() -> Vec<&'static str> {
    SUITES.iter().map(|suite| suite.name).collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let report = run(&arguments);
    let json = serde_json::to_string_pretty(&report).expect("a report is plain data");
    let markdown = report.markdown();
    println!("{}", if arguments.json { &json } else { markdown.trim_end() });
    let write = || {
        fs::create_dir_all(&arguments.out)?;
        fs::write(arguments.out.join("report.json"), &json)?;
        fs::write(arguments.out.join("report.md"), &markdown)
    };
    if let Err(error) = write() {
        eprintln!("error: could not write the report to {}: {error}", arguments.out.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(arguments: &Arguments) -> Report {
    let chosen = |suite: &&Suite| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == suite.name)
    };
    let suites: Vec<&Suite> = SUITES.iter().filter(chosen).collect();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}");
    let bar =
        ProgressBar::new(suites.len() as u64).with_style(style.expect("the template is valid"));
    let scale = Scale { quick: arguments.quick };
    let sections = suites
        .iter()
        .map(|suite| {
            bar.set_message(suite.name);
            bar.enable_steady_tick(std::time::Duration::from_millis(200));
            let section = (suite.run)(scale);
            bar.inc(1);
            section
        })
        .collect();
    bar.finish_and_clear();
    Report {
        machine: machine(),
        version: env!("CARGO_PKG_VERSION"),
        quick: arguments.quick,
        sections,
    }
}
