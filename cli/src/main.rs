//! The command line of springtide; see `springtide --help`.

use std::process::ExitCode;

use springtide_cli::{NoInterpreter, run};

fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os(), &NoInterpreter))
}
