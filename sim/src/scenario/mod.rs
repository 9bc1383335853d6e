//! Named scenarios: hand-written plans, each with what its outcome must look like.
//!
//! A scenario stands for one or more rows of the fault catalogue (`docs/scenarios.md` has the table). Beyond
//! the oracles, which judge every run, it says what right means in this one case: outcomes, reasons, counts.

mod batches;
mod lifecycle;
mod loading;
mod look;
mod names;
mod objects;
mod outages;
mod patience;
mod plans;
mod pools;
mod pressure;
mod saving;
mod starting;
mod store;
mod streams;

pub use self::look::Look;
use crate::{campaign::Expectation, plan::Plan};

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// `f001_timeout_while_put_runs`.
    pub name: &'static str,
    /// Rows of the fault catalogue that it shows.
    pub rows: &'static [&'static str],
    /// What it shows, in one line.
    pub text: &'static str,
    /// What its outcome must look like.
    pub expect: Expectation,
    make: fn(Plan) -> Plan,
}

impl Scenario {
    /// The plan.
    pub fn plan(&self) -> Plan {
        (self.make)(plans::base(self.name))
    }
}

/// Every scenario, by name.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    let files = [
        batches::SCENARIOS,
        lifecycle::SCENARIOS,
        loading::SCENARIOS,
        names::SCENARIOS,
        objects::SCENARIOS,
        outages::SCENARIOS,
        patience::SCENARIOS,
        pools::SCENARIOS,
        pressure::SCENARIOS,
        saving::SCENARIOS,
        starting::SCENARIOS,
        store::SCENARIOS,
        streams::SCENARIOS,
    ];
    let mut all: Vec<&'static Scenario> = files.into_iter().flatten().collect();
    all.sort_by_key(|scenario| scenario.name);
    all.into_iter()
}

/// The scenario of this name.
pub fn find(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}
