//! Files in a directory.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use springtide::{
    backend::{DiskConfig, DiskStore},
    env::Clock,
    runtime::TokioClock,
};

use super::{Joining, Target};
use crate::{
    args::BenchArgs,
    failure::{Failure, tell},
};

/// How often the directory is tried to be removed, and how long it must stay away.
const REMOVALS: u32 = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// A directory that is made here, and removed by [`Disk::remove`]: the measurement evicts what lies in it.
#[derive(Debug)]
pub struct Disk {
    within: PathBuf,
    directory: PathBuf,
    capacity_bytes: u64,
}

impl Disk {
    /// A new directory within the one that the arguments name, with room for `stored_bytes_max`.
    ///
    /// # Errors
    /// The system's, with the directory.
    pub fn open(arguments: &BenchArgs, stored_bytes_max: u64) -> Result<Self, Failure> {
        let capacity_bytes = stored_bytes_max.saturating_mul(2);
        let within = arguments.directory.clone().unwrap_or_else(env::temp_dir);
        let directory = within.join(format!("springtide-bench-{}", process::id()));
        fs::create_dir(&directory).map_err(|error| cannot_use(&within, &error))?;
        Ok(Self { within, directory, capacity_bytes })
    }

    /// Removes what was made. Where a signal ended the measurement, calls that were under way still make files
    /// and directories.
    pub async fn remove(self, clock: TokioClock) {
        for _ in 0..REMOVALS {
            let removed = fs::remove_dir_all(&self.directory);
            clock.sleep_until(clock.now() + REMOVAL_PAUSE).await;
            if removed.is_ok() && !self.directory.exists() {
                return;
            }
        }
        tell(format!("{} could not be removed", self.directory.display()));
    }
}

impl Target for Disk {
    type Store = DiskStore;

    fn name(&self) -> String {
        format!("disk {}", self.within.display())
    }

    async fn join(&self, joining: Joining, _clock: TokioClock) -> Result<DiskStore, Failure> {
        let config = DiskConfig {
            directory: self.directory.clone(),
            capacity_bytes: self.capacity_bytes,
            threads: joining.data_threads,
        };
        DiskStore::open(&config).map_err(|error| cannot_use(&self.within, &error))
    }

    fn no_room(&self) -> String {
        format!("{}: is the disk full? Name another with --directory", self.within.display())
    }
}

fn cannot_use(directory: &Path, error: &io::Error) -> Failure {
    let directory = directory.display();
    Failure::failed(format!(
        "cannot keep files in {directory} ({error}): name a directory that can be written with --directory"
    ))
}
