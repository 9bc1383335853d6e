//! The file behind a shared region: made, owned and removed by one pool, mapped by others.
//!
//! The owner holds an exclusive lock on it while it lives. A file that nobody holds was left by an owner that
//! died: it is marked as retired, which makes every handle of its mappers stale, and replaced by a new one.
//! Its pages are reserved at once: a memory file system that is too small (64 MiB is common in containers)
//! is an error here, where it would otherwise be a bus error at some later write.
//!
//! Where the mappers start before the owner, they *prepare* the file: whoever comes first makes it, the owner
//! adopts it and takes its name away. Every process of a prepared file holds a shared lock on it, so that
//! one whose processes all died before the adoption is known by being free, and removed by the next that
//! prepares a file in the same directory.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use memmap2::MmapRaw;
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, fallocate, linkat};

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

/// What the name of a prepared file begins with, and no other file's should.
pub const PREPARED_PREFIX: &str = "springtide-region-";

/// How often a file that vanishes between two looks is looked for again.
const TRIES: usize = 1000;

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

/// A mapper's hold on a file that waits for its owner, or has found it.
#[derive(Debug)]
pub(super) struct Prepared {
    path: PathBuf,
    /// Locked, shared, as long as it is open.
    file: File,
}

impl Prepared {
    /// The file at `path`, if it is there and stays there.
    pub(super) fn find(path: &Path) -> Result<Option<Self>, RegionError> {
        for _ in 0..TRIES {
            let file = match OpenOptions::new().read(true).write(true).open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                result => result.map_err(|source| io_error("open", path, source))?,
            };
            match file.try_lock_shared() {
                Ok(()) => {}
                // Another process removes one that was left, or an owner that needs no mappers has it.
                Err(TryLockError::WouldBlock) => {
                    let is_prepared = Region::existing(map(&file, path)?, path)?.is_prepared();
                    if !is_prepared && names(path, &file)? {
                        return Err(RegionError::InUse { path: path.to_owned() });
                    }
                    std::thread::yield_now();
                    continue;
                }
                Err(TryLockError::Error(source)) => return Err(io_error("lock", path, source)),
            }
            if names(path, &file)? {
                return Ok(Some(Self { path: path.to_owned(), file }));
            }
        }
        Ok(None)
    }

    /// The file at `path`, or a new one of `bytes` that `init` has filled. Removes what others, all dead,
    /// have left in its directory.
    pub(super) fn find_or_make(
        path: &Path,
        bytes: u64,
        init: impl FnOnce(MmapRaw),
    ) -> Result<Self, RegionError> {
        sweep(path);
        if let Some(found) = Self::find(path)? {
            return Ok(found);
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        // Without a name until it is whole and locked: nobody sees it half made.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(directory)
            .map_err(|source| io_error("create a file for", path, source))?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)
            .map_err(|source| io_error("reserve memory for", path, source.into()))?;
        file.try_lock_shared().map_err(|error| lock_error(error, path))?;
        init(map(&file, path)?);
        for _ in 0..TRIES {
            let unnamed = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            match linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return Ok(Self { path: path.to_owned(), file }),
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(io_error("name", path, error.into())),
            }
            if let Some(found) = Self::find(path)? {
                return Ok(found);
            }
        }
        Err(RegionError::InUse { path: path.to_owned() })
    }

    pub(super) fn map(&self) -> Result<MmapRaw, RegionError> {
        map(&self.file, &self.path)
    }

    /// The hold of the one owner; the file loses its name.
    pub(super) fn into_owner(self) -> Result<FileOwner, RegionError> {
        let owner = FileOwner { path: self.path, file: self.file };
        owner.unlink().map_err(|source| io_error("remove", &owner.path, source))?;
        Ok(owner)
    }
}

/// Whether `path` still is the name of `file`.
fn names(path: &Path, file: &File) -> Result<bool, RegionError> {
    let failed = |source| io_error("look at", path, source);
    let named = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        result => result.map_err(failed)?,
    };
    let file = file.metadata().map_err(failed)?;
    Ok((named.dev(), named.ino()) == (file.dev(), file.ino()))
}

/// Removes prepared files beside `path` that no process has open any more. Best effort: what cannot be
/// looked at is somebody else's.
fn sweep(path: &Path) {
    let entries = path.parent().map(std::fs::read_dir).into_iter().flatten().flatten();
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREPARED_PREFIX) {
            continue;
        }
        let left = entry.path();
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&left) else { continue };
        if file.try_lock().is_ok() && names(&left, &file).unwrap_or(false) {
            tracing::warn!(path = %left.display(), "removing the region of processes that have died");
            // Whoever is faster has removed it.
            let _ = std::fs::remove_file(&left);
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
    file.try_lock().map_err(|error| lock_error(error, path))
}

fn lock_error(error: TryLockError, path: &Path) -> RegionError {
    match error {
        TryLockError::WouldBlock => RegionError::InUse { path: path.to_owned() },
        TryLockError::Error(source) => io_error("lock", path, source),
    }
}

fn map(file: &File, path: &Path) -> Result<MmapRaw, RegionError> {
    MmapRaw::map_raw(file).map_err(|source| io_error("map", path, source))
}
