//! What a long campaign knows when it stops, so that the next one goes on from there.
//!
//! Seeds run in order, and the state is always that of a beginning of them: every seed below `next_seed` is
//! counted once, none above it at all.

use std::{fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Failure, Verdict};
use crate::{oracle::OracleId, world::engine::EngineKind};

/// The format of the file.
pub const STATE_VERSION: u32 = 1;
/// Different failures that are kept apart; those beyond are counted together.
const FAILURES_MAX: usize = 1_000;

/// The state of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Format version, [`STATE_VERSION`].
    pub version: u32,
    /// The first seed that has not run.
    pub next_seed: u64,
    /// Plans that ran.
    pub plans: u64,
    /// Events in them.
    pub events: u64,
    /// Simulated time.
    pub simulated_ms: u64,
    /// Wall-clock time, of all its sessions.
    pub wall_ms: u64,
    /// Seeds that take the whole process with them, and are left out from then on.
    pub aborting: Vec<u64>,
    /// What failed, each kind once.
    pub failures: Vec<Found>,
    /// Plans that failed in ways of which no more are kept apart.
    pub failures_beyond: u64,
}

/// Plans that failed in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// The promise that they break.
    pub oracle: OracleId,
    /// How, with `N` for every number.
    pub signature: String,
    /// How many they are.
    pub count: u64,
    /// The first one's seed.
    pub first_seed: u64,
    /// What ran the first one.
    pub engine: String,
    /// The first one's words.
    pub message: String,
    /// The first one's plan.
    pub plan_file: Option<PathBuf>,
}

impl State {
    /// The state before the first seed.
    pub fn new(next_seed: u64) -> Self {
        Self {
            version: STATE_VERSION,
            next_seed,
            plans: 0,
            events: 0,
            simulated_ms: 0,
            wall_ms: 0,
            aborting: Vec::new(),
            failures: Vec::new(),
            failures_beyond: 0,
        }
    }

    /// Counts the verdict on the plan of the next seed. Of plans that fail alike only the first one's file stays.
    pub fn take(&mut self, verdict: &Verdict) {
        self.next_seed = verdict.seed.wrapping_add(1);
        // What the file said may be anything.
        self.plans = self.plans.saturating_add(1);
        self.events = self.events.saturating_add(verdict.events);
        self.simulated_ms = self.simulated_ms.saturating_add(verdict.simulated_ms);
        let Some(failure) = &verdict.failure else { return };
        let is_new = self.found(verdict.seed, verdict.engine, failure);
        if let (false, Some(file)) = (is_new, &failure.plan_file) {
            // A file that stays behind harms nobody.
            let _ = fs::remove_file(file);
        }
    }

    /// Counts a plan that took the whole process with it; its seed is left out from then on.
    pub fn take_aborted(&mut self, seed: u64, engine: EngineKind, failure: &Failure) {
        self.aborting.push(seed);
        self.found(seed, engine, failure);
    }

    /// Whether a failure is the first of its kind.
    fn found(&mut self, seed: u64, engine: EngineKind, failure: &Failure) -> bool {
        let violation = &failure.violation;
        let signature = signature(&violation.message);
        let known = self
            .failures
            .iter_mut()
            .find(|found| found.oracle == violation.oracle && found.signature == signature);
        if let Some(found) = known {
            found.count = found.count.saturating_add(1);
            return false;
        }
        if self.failures.len() >= FAILURES_MAX {
            self.failures_beyond = self.failures_beyond.saturating_add(1);
            return false;
        }
        self.failures.push(Found {
            oracle: violation.oracle,
            signature,
            count: 1,
            first_seed: seed,
            engine: engine.name().to_owned(),
            message: violation.message.clone(),
            plan_file: failure.plan_file.clone(),
        });
        true
    }

    /// Plans that failed.
    pub fn failed(&self) -> u64 {
        let counts = self.failures.iter().map(|found| found.count);
        counts.fold(self.failures_beyond, u64::saturating_add)
    }
}

/// What failures of one kind have in common: their words, without numbers.
fn signature(message: &str) -> String {
    let mut signature = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            c if !c.is_ascii_digit() => signature.push(c),
            _ if signature.ends_with('N') => {}
            _ => signature.push('N'),
        }
    }
    signature
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        campaign::file::testing::directory, coverage::Coverage, reach::Reach, recorder::Violation,
        stats::Stats,
    };

    pub(in crate::campaign) fn failure(
        oracle: OracleId,
        message: &str,
        plan_file: Option<PathBuf>,
    ) -> Failure {
        let violation = Violation {
            oracle,
            event: 1,
            time_us: 1,
            host: "encoder0".into(),
            what: "what".into(),
            message: message.into(),
            key: None,
        };
        Failure { violation, history: Vec::new(), plan_file }
    }

    pub(in crate::campaign) fn verdict(seed: u64, failure: Option<Failure>) -> Verdict {
        Verdict {
            group: "random w1".into(),
            seed,
            engine: EngineKind::Fast,
            trace_hash: String::new(),
            events: 10,
            simulated_ms: 1_500,
            stats: Stats::default(),
            failure,
            reach: Reach::default(),
            coverage: Coverage::default(),
            hash: 0,
        }
    }

    #[test]
    fn failures_that_differ_in_numbers_are_one_and_keep_the_first_plan() {
        let directory = directory("state-failures");
        let file = |seed: u64| {
            let path = directory.join(format!("{seed}.json"));
            fs::write(&path, "{}").unwrap();
            Some(path)
        };
        let mut state = State::new(5);
        let lost = "m0/item007 is reported as stored, but the store never had it";
        state.take(&verdict(5, Some(failure(OracleId::I1, lost, file(5)))));
        state.take(&verdict(6, None));
        let other = lost.replace("007", "12");
        state.take(&verdict(7, Some(failure(OracleId::I1, &other, file(7)))));
        state.take(&verdict(8, Some(failure(OracleId::I2, &other, file(8)))));
        let panicked = failure(OracleId::I8, "a host panicked: 3", None);
        state.take_aborted(9, EngineKind::Turmoil, &panicked);
        let counts: Vec<_> = state.failures.iter().map(|f| (f.first_seed, f.count)).collect();
        assert_eq!(counts, [(5, 2), (8, 1), (9, 1)]);
        let signature = "mN/itemN is reported as stored, but the store never had it";
        assert_eq!(state.failures[0].signature, signature);
        assert_eq!((state.next_seed, state.plans, state.failed()), (9, 4, 4));
        assert_eq!(
            (state.events, state.simulated_ms, state.aborting.as_slice()),
            (40, 6_000, &[9][..])
        );
        let left = [5, 7, 8].map(|seed| directory.join(format!("{seed}.json")).exists());
        assert_eq!(left, [true, false, true]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn kinds_of_failure_are_bounded() {
        let mut state = State::new(0);
        for n in 0..FAILURES_MAX as u64 + 3 {
            let message = "x".repeat(n as usize);
            state.take(&verdict(n, Some(failure(OracleId::I1, &message, None))));
        }
        assert_eq!((state.failures.len(), state.failures_beyond), (FAILURES_MAX, 3));
        assert_eq!(state.failed(), FAILURES_MAX as u64 + 3);
    }
}
