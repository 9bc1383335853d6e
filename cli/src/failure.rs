//! Why a command ends other than well.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Exit code for a request that cannot be carried out.
pub(crate) const USAGE: u8 = 2;
const FAILED: u8 = 1;

/// Why a command ends other than well: each says what was tried, what came and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
    /// Somebody wanted it to end.
    #[error("ended by signal {0}")]
    Ended(u8),
}

impl Failure {
    /// It was tried and did not work.
    pub fn failed(text: impl ToString) -> Self {
        Self::Failed(text.to_string())
    }

    /// What was asked for makes no sense.
    pub fn usage(text: impl ToString) -> Self {
        Self::Usage(text.to_string())
    }

    /// The exit code of a command that ends so.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Failed(_) => FAILED,
            // As a shell tells it.
            Self::Ended(signal) => 128 + signal,
        }
    }
}

/// Says something on the standard error. Where that is full or closed there is nobody to tell.
pub(crate) fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "springtide: {text}");
}
