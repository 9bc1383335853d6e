//! Files in a directory.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

use springtide::{
    backend::{DiskConfig, DiskStore},
    runtime::TokioClock,
};

use super::{Joining, Target};
use crate::{args::BenchArgs, failure::Failure};

/// A directory; one that was made here is removed at the end.
#[derive(Debug)]
pub struct Disk {
    directory: PathBuf,
    capacity_bytes: u64,
    is_ours: bool,
}

impl Disk {
    /// The directory that the arguments name, or a new one with room for `stored_bytes_max`.
    ///
    /// # Errors
    /// The system's, with the directory.
    pub fn open(arguments: &BenchArgs, stored_bytes_max: u64) -> Result<Self, Failure> {
        let capacity_bytes = stored_bytes_max.saturating_mul(2);
        if let Some(directory) = arguments.directory.clone() {
            return Ok(Self { directory, capacity_bytes, is_ours: false });
        }
        let directory = env::temp_dir().join(format!("springtide-bench-{}", process::id()));
        fs::create_dir(&directory).map_err(|error| cannot_use(&directory, &error))?;
        Ok(Self { directory, capacity_bytes, is_ours: true })
    }
}

impl Target for Disk {
    type Store = DiskStore;

    fn name(&self) -> String {
        format!("disk {}", self.directory.display())
    }

    async fn join(&self, joining: Joining, _clock: TokioClock) -> Result<DiskStore, Failure> {
        let config = DiskConfig {
            directory: self.directory.clone(),
            capacity_bytes: self.capacity_bytes,
            threads: joining.data_threads,
        };
        DiskStore::open(&config).map_err(|error| cannot_use(&self.directory, &error))
    }

    fn no_room(&self) -> String {
        format!("{}: is the disk full? Name another with --directory", self.directory.display())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = fs::remove_dir_all(&self.directory)
        {
            eprintln!("springtide: {} is left behind: {error}", self.directory.display());
        }
    }
}

fn cannot_use(directory: &Path, error: &io::Error) -> Failure {
    let directory = directory.display();
    Failure::failed(format!(
        "cannot keep files in {directory} ({error}): name a directory that can be written with --directory"
    ))
}
