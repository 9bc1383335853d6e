//! Sequences on files: what once differed is kept, and runs first from then on.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    arm::Broken,
    step::{Step, World},
};

/// A sequence on a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The store.
    pub world: World,
    /// What happens.
    pub steps: Vec<Step>,
}

impl Saved {
    /// All of a directory, in the order of their names. No directory is an empty one.
    ///
    /// # Errors
    /// [`Broken::Harness`] for what cannot be read.
    pub fn all(directory: &Path) -> Result<Vec<(PathBuf, Self)>, Broken> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(broken(directory, &error)),
        };
        let paths = entries.map_while(Result::ok).map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
        paths.sort();
        let load = |path: PathBuf| Self::load(&path).map(|saved| (path, saved));
        paths.into_iter().map(load).collect()
    }

    fn load(path: &Path) -> Result<Self, Broken> {
        let text = fs::read_to_string(path).map_err(|error| broken(path, &error))?;
        serde_json::from_str(&text).map_err(|error| broken(path, &error))
    }

    /// Keeps it under a name; gives its file.
    ///
    /// # Errors
    /// [`Broken::Harness`] if it cannot be written.
    pub fn keep(&self, directory: &Path, name: &str) -> Result<PathBuf, Broken> {
        let path = directory.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(self).map_err(|error| broken(&path, &error))?;
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, text + "\n"));
        written.map_err(|error| broken(&path, &error))?;
        Ok(path)
    }
}

fn broken(path: &Path, error: &dyn std::fmt::Display) -> Broken {
    Broken::Harness(format!("{}: {error}", path.display()))
}
