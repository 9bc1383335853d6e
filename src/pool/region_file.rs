//! The file behind a shared region: made, owned and removed by one pool, mapped by others.
//!
//! The owner holds an exclusive lock on it while it lives. A file that nobody holds was left by an owner that
//! died: it is marked as retired, which makes every handle of its mappers stale, and replaced by a new one.
//! Its pages are reserved at once: a memory file system that is too small (64 MiB is common in containers)
//! is an error here, where it would otherwise be a bus error at some later write.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use memmap2::MmapRaw;
use rustix::fs::{FallocateFlags, fallocate};

use super::region::Region;

/// A region file that is not one, or not usable.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file; empty for anonymous memory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another pool that is alive owns the file.
    #[error("{} belongs to a pool that is alive", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is no region, or one of another version.
    #[error("{} is no pool region: {what} is {found}, expected {expected}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What it should be.
        expected: u64,
    },
}

/// An owner's hold on its file. The name goes when this goes.
#[derive(Debug)]
pub(super) struct FileOwner {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
}

impl FileOwner {
    /// Makes a zeroed file of `bytes` in place of whatever a dead owner left at `path`.
    pub(super) fn create(path: &Path, bytes: u64) -> Result<Self, RegionError> {
        retire(path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| io_error("create", path, source))?;
        lock(&file, path)?;
        let owner = Self { path: path.to_owned(), file };
        fallocate(&owner.file, FallocateFlags::empty(), 0, bytes)
            .map_err(|source| io_error("reserve memory for", path, source.into()))?;
        Ok(owner)
    }

    pub(super) fn map(&self) -> Result<MmapRaw, RegionError> {
        map(&self.file, &self.path)
    }

    /// Removes the file's name, if it is still this file's; the memory lives on while it is mapped.
    pub(super) fn unlink(&self) -> io::Result<()> {
        let ours = self.file.metadata()?;
        let named = match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for FileOwner {
    fn drop(&mut self) {
        if let Err(error) = self.unlink() {
            tracing::warn!(%error, path = %self.path.display(), "a region's file stays behind");
        }
    }
}

/// Opens a region's file and maps all of it.
pub(super) fn open(path: &Path) -> Result<(File, MmapRaw), RegionError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|source| io_error("open", path, source))?;
    let map = map(&file, path)?;
    Ok((file, map))
}

pub(super) fn io_error(action: &'static str, path: &Path, source: io::Error) -> RegionError {
    RegionError::Io { action, path: path.to_owned(), source }
}

/// Clears the way for a new file.
fn retire(path: &Path) -> Result<(), RegionError> {
    let (file, map) = match open(path) {
        Ok(opened) => opened,
        Err(RegionError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    lock(&file, path)?;
    Region::existing(map, path)?.set_retired();
    std::fs::remove_file(path).map_err(|source| io_error("remove", path, source))
}

fn lock(file: &File, path: &Path) -> Result<(), RegionError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => RegionError::InUse { path: path.to_owned() },
        TryLockError::Error(source) => io_error("lock", path, source),
    })
}

fn map(file: &File, path: &Path) -> Result<MmapRaw, RegionError> {
    MmapRaw::map_raw(file).map_err(|source| io_error("map", path, source))
}
