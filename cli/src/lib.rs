//! The command line of springtide, as a library: the program `springtide` is one caller, the extension module
//! of the Python package (`python -m springtide`) another, which brings the store that Python reaches.
//!
//! # Layout
//!
//! | module | what it is | relies on |
//! |---|---|---|
//! | [`args`] | what can be written on the command line | nothing |
//! | [`stores`] | the stores that can be chosen, and how each is joined | the back ends, the fake store |
//! | [`bench`](mod@bench) | what the connector costs on top of a store | the connector |
//! | [`doctor`] | what a machine has and lacks for an instance | the settings, files of the kernel |
//! | [`hw`] | what only hardware can show | the connector, the CUDA device |
//! | [`plan`] | how large a pool has to be | the pool |
//! | `config` | checking and describing settings | the settings |
//! | `commands` | what each command does | all of the above |
//!
//! Exit codes: 0 done, 1 it failed, 2 usage.

pub mod args;
pub mod bench;
mod commands;
mod config;
pub mod doctor;
mod failure;
pub mod hw;
pub mod plan;
pub mod stores;

use std::ffi::OsString;

use clap::Parser;

pub use self::{
    failure::Failure,
    stores::{Interpreter, NoInterpreter},
};

/// Does what the arguments say; the first is the program's name. Returns the exit code.
pub fn run<I: Interpreter>(arguments: impl IntoIterator<Item = OsString>, interpreter: &I) -> u8 {
    match args::Cli::try_parse_from(arguments) {
        Ok(cli) => commands::execute(cli, interpreter),
        Err(told) => {
            // Help goes to stdout with code 0, a mistake to stderr with code 2. Where nobody reads it, there is
            // nobody to tell.
            let _unread = told.print();
            u8::try_from(told.exit_code()).unwrap_or(failure::USAGE)
        }
    }
}
