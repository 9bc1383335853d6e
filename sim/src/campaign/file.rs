//! The file that keeps a campaign's state, and whose directory it is.
//!
//! The file is replaced as a whole, so that a process that dies while it writes leaves the one before.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use super::state::{STATE_VERSION, State};

/// The file's name in the campaign's directory.
const NAME: &str = "state.json";

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

#[cfg(test)]
pub(super) mod testing {
    use std::path::PathBuf;

    /// A directory of a test's own.
    pub(in crate::campaign) fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::state::tests::{failure, verdict},
        testing::directory,
        *,
    };
    use crate::oracle::OracleId;

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

    #[test]
    fn numbers_that_a_file_has_too_large_stay_so() {
        let directory = directory("state-large");
        let mut large = State::new(5);
        (large.plans, large.events, large.simulated_ms) = (u64::MAX, u64::MAX, u64::MAX);
        large.take(&verdict(5, Some(failure(OracleId::I1, "lost", None))));
        large.failures[0].count = u64::MAX;
        large.save(&directory).unwrap();
        let mut state = State::load(&directory).unwrap().unwrap();
        state.take(&verdict(6, Some(failure(OracleId::I1, "lost", None))));
        assert_eq!((state.plans, state.events, state.failed()), (u64::MAX, u64::MAX, u64::MAX));
        fs::remove_dir_all(directory).unwrap();
    }
}
