//! The simulator's command line; see `sim --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use springtide_sim::{cli::Cli, commands};

fn main() -> ExitCode {
    commands::execute(Cli::parse())
}
