//! What a long campaign knows when it stops, kept in a file so that the next one goes on from there.
//!
//! Seeds run in order, and the state is always that of a beginning of them: every seed below `next_seed` is
//! counted once, none above it at all. The file is replaced as a whole, so that a process that dies while it
//! writes leaves the one before.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Failure, Verdict};
use crate::{oracle::OracleId, world::engine::EngineKind};

/// The format of the file.
pub const STATE_VERSION: u32 = 1;
/// The file's name in the campaign's directory.
const NAME: &str = "state.json";
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

/// A state file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory or a file in it cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Not what a campaign writes.
    #[error(
        "{path}: expected the state of a campaign, got a file that is none ({source}); move it \
         away to begin again at the first seed"
    )]
    Corrupt {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Another version's.
    #[error(
        "{path}: field `version`: expected {STATE_VERSION}, got {got}; move it away to begin again \
         at the first seed"
    )]
    Version {
        /// The file.
        path: String,
        /// What it says.
        got: String,
    },
    /// Another process works on the same campaign.
    #[error("{path}: another campaign is using this directory; --dir names another")]
    Busy {
        /// The directory.
        path: String,
    },
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

    /// The state that was saved in `directory`, if one was.
    ///
    /// # Errors
    /// [`StateError`] when there is one that cannot be used.
    pub fn load(directory: &Path) -> Result<Option<Self>, StateError> {
        let file = directory.join(NAME);
        let path = file.display().to_string();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::Io { path, source }),
        };
        let corrupt = |source| StateError::Corrupt { path: path.clone(), source };
        // The version first: another version's fields would be reported as unknown.
        let value: serde_json::Value = serde_json::from_str(&text).map_err(corrupt)?;
        match value.get("version") {
            Some(version) if *version != STATE_VERSION => {
                Err(StateError::Version { path, got: version.to_string() })
            }
            _ => serde_json::from_value(value).map(Some).map_err(corrupt),
        }
    }

    /// Replaces what is saved in `directory`.
    ///
    /// # Errors
    /// [`StateError::Io`]; what was saved before is still there then.
    pub fn save(&self, directory: &Path) -> Result<(), StateError> {
        let file = directory.join(NAME);
        let new = directory.join(format!("{NAME}.new"));
        let text = serde_json::to_string_pretty(self).expect("a state is plain data");
        let written = || {
            let mut to = File::create(&new)?;
            to.write_all(text.as_bytes())?;
            to.sync_all()?;
            fs::rename(&new, &file)
        };
        written().map_err(|source| StateError::Io { path: file.display().to_string(), source })
    }

    /// Counts the verdict on the plan of the next seed. Of plans that fail alike only the first one's file stays.
    pub fn take(&mut self, verdict: &Verdict) {
        self.next_seed = verdict.seed.wrapping_add(1);
        self.plans += 1;
        self.events += verdict.events;
        self.simulated_ms += verdict.simulated_ms;
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
            found.count += 1;
            return false;
        }
        if self.failures.len() >= FAILURES_MAX {
            self.failures_beyond += 1;
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
        self.failures.iter().map(|found| found.count).sum::<u64>() + self.failures_beyond
    }
}

/// Makes a directory this process's own for as long as the file is open.
///
/// # Errors
/// [`StateError::Busy`] when it is another one's.
pub fn claim(directory: &Path) -> Result<File, StateError> {
    let path = || directory.display().to_string();
    let io = |source| StateError::Io { path: path(), source };
    fs::create_dir_all(directory).map_err(io)?;
    let lock = File::create(directory.join("lock")).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(StateError::Busy { path: path() }),
        Err(fs::TryLockError::Error(source)) => Err(io(source)),
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
mod tests {
    use super::*;
    use crate::{coverage::Coverage, reach::Reach, recorder::Violation, stats::Stats};

    fn failure(oracle: OracleId, message: &str, plan_file: Option<PathBuf>) -> Failure {
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

    fn verdict(seed: u64, failure: Option<Failure>) -> Verdict {
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

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("sim-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
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

    #[test]
    fn what_was_saved_is_loaded() {
        let directory = directory("state-saved");
        assert_eq!(State::load(&directory).unwrap(), None);
        let mut state = State::new(5);
        state.take(&verdict(5, Some(failure(OracleId::I1, "lost", None))));
        state.save(&directory).unwrap();
        assert_eq!(State::load(&directory).unwrap(), Some(state.clone()));
        // A write that was cut short leaves a file beside it, and what was saved.
        fs::write(directory.join("state.json.new"), "{").unwrap();
        assert_eq!(State::load(&directory).unwrap(), Some(state.clone()));
        state.take(&verdict(6, None));
        state.save(&directory).unwrap();
        assert_eq!(State::load(&directory).unwrap(), Some(state));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn one_campaign_has_a_directory() {
        let directory = directory("state-claimed");
        let first = claim(&directory).unwrap();
        assert!(matches!(claim(&directory), Err(StateError::Busy { .. })));
        drop(first);
        claim(&directory).unwrap();
        fs::remove_dir_all(directory).unwrap();
    }
}
