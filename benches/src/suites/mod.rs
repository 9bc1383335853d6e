//! What is compared.

mod capacity;
mod checksum;
mod churn;
mod cost;
mod growth;
mod residents;
mod simulator;

use crate::report::Section;

/// How much work a suite does.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// For a first look: fewer rounds and steps, the same rows.
    pub quick: bool,
}

impl Scale {
    fn pick<T>(self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A suite: its name, and what runs it.
pub struct Suite {
    /// As it is chosen on the command line.
    pub name: &'static str,
    /// Does the work.
    pub run: fn(Scale) -> Section,
}

/// All of them, in the order of the report.
pub const SUITES: [Suite; 7] = [
    Suite { name: "capacity", run: capacity::run },
    Suite { name: "churn", run: churn::run },
    Suite { name: "cost", run: cost::run },
    Suite { name: "checksum", run: checksum::run },
    Suite { name: "residents", run: residents::run },
    Suite { name: "growth", run: growth::run },
    Suite { name: "simulator", run: simulator::run },
];
