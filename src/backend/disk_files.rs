//! The files of a [`DiskStore`](super::DiskStore): one object a file, whole or absent.
//!
//! ```text
//!   ROOT/objects/ab/ab12…  one object; the name is the digest of its key, so no key is a path
//!   ROOT/partial/…         objects being written; linked to their final name when they are complete
//! ```
//!
//! A file gets its final name by a hard link, which fails if the name exists: two writers of one key leave
//! one whole object, and a crash at any point leaves none or a whole one. Modification times order the
//! eviction; readers touch them. A file that is evicted under a reader stays readable to it.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    env::{ErrorCode, Key},
    pool::Transfer,
};

/// Bytes between memory and file at a time.
const SLICE: usize = 1 << 20;

/// Unfinished files older than this belong to nobody any more.
const PARTIAL_AGE: Duration = Duration::from_secs(3600);

/// Puts between two looks at what other processes have written.
const PUTS_PER_SCAN: u32 = 64;

pub(super) struct Files {
    objects: PathBuf,
    partial: PathBuf,
    capacity: u64,
    next: AtomicU64,
    space: Mutex<Space>,
}

/// What this process believes is used. Others write too, so it looks again now and then.
struct Space {
    used: u64,
    puts: u32,
}

impl Files {
    pub(super) fn open(root: &Path, capacity: u64) -> io::Result<Self> {
        let files = Self {
            objects: root.join("objects"),
            partial: root.join("partial"),
            capacity,
            next: AtomicU64::new(0),
            space: Mutex::new(Space { used: 0, puts: 0 }),
        };
        fs::create_dir_all(&files.objects)?;
        fs::create_dir_all(&files.partial)?;
        // A directory that can be made but not written is found out now, not at the first save.
        let probe = files.partial_path();
        File::create_new(&probe)?;
        fs::remove_file(&probe)?;
        files.remove_abandoned()?;
        files.space().used = files.scan()?.iter().map(|found| found.bytes).sum();
        Ok(files)
    }

    pub(super) fn put(&self, key: &Key, source: &Transfer) -> Result<(), ErrorCode> {
        let path = self.path(key);
        if path.exists() {
            return Ok(());
        }
        self.make_room(source.len())?;
        let partial = Partial(self.partial_path());
        let written = self.write(&partial.0, source).and_then(|()| {
            let parent = path.parent().unwrap_or(&self.objects);
            fs::create_dir_all(parent)?;
            fs::hard_link(&partial.0, &path)?;
            File::open(parent)?.sync_all()
        });
        match written {
            Ok(()) => {
                self.space().used += source.len();
                Ok(())
            }
            // Another writer was first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(code(&error, ErrorCode::FileWriteFail)),
        }
    }

    pub(super) fn get(&self, key: &Key, dest: &mut Transfer) -> Result<u64, ErrorCode> {
        let read = |error: io::Error| code(&error, ErrorCode::FileReadFail);
        let mut file = File::open(self.path(key)).map_err(read)?;
        let len = file.metadata().map_err(read)?.len();
        if len != dest.len() {
            return Err(ErrorCode::InvalidParams);
        }
        touch(&file);
        let mut buffer = vec![0; SLICE.min(len as usize)];
        let mut at = 0;
        while at < len {
            let slice = (len - at).min(SLICE as u64) as usize;
            file.read_exact(&mut buffer[..slice]).map_err(read)?;
            dest.write_at(at, &buffer[..slice]);
            at += slice as u64;
        }
        Ok(len)
    }

    pub(super) fn exists(&self, key: &Key) -> Result<bool, ErrorCode> {
        match File::open(self.path(key)) {
            Ok(file) => {
                touch(&file);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(code(&error, ErrorCode::FileOpenFail)),
        }
    }

    pub(super) fn size(&self, key: &Key) -> Result<u64, ErrorCode> {
        let metadata = fs::metadata(self.path(key));
        metadata.map(|found| found.len()).map_err(|error| code(&error, ErrorCode::FileOpenFail))
    }

    pub(super) fn remove(&self, key: &Key) -> Result<(), ErrorCode> {
        let (path, len) = (self.path(key), self.size(key)?);
        fs::remove_file(path).map_err(|error| code(&error, ErrorCode::FileWriteFail))?;
        let mut space = self.space();
        space.used = space.used.saturating_sub(len);
        Ok(())
    }

    // -- inside ----------------------------------------------------------------------------------------

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name = blake3::hash(key.as_str().as_bytes()).to_hex();
        self.objects.join(&name[..2]).join(name.as_str())
    }

    fn partial_path(&self) -> PathBuf {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        self.partial.join(format!("{}-{:p}-{n}", process::id(), self))
    }

    fn write(&self, path: &Path, source: &Transfer) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        let mut buffer = vec![0; SLICE.min(source.len() as usize)];
        let mut at = 0;
        while at < source.len() {
            let slice = (source.len() - at).min(SLICE as u64) as usize;
            source.read_at(at, &mut buffer[..slice]);
            file.write_all(&buffer[..slice])?;
            at += slice as u64;
        }
        file.sync_all()
    }

    /// Evicts the objects that were touched longest ago until `len` more bytes fit.
    fn make_room(&self, len: u64) -> Result<(), ErrorCode> {
        if len > self.capacity {
            return Err(ErrorCode::NoAvailableHandle);
        }
        let mut space = self.space();
        space.puts += 1;
        if space.used + len <= self.capacity && !space.puts.is_multiple_of(PUTS_PER_SCAN) {
            return Ok(());
        }
        let mut found = self.scan().map_err(|error| code(&error, ErrorCode::FileReadFail))?;
        space.used = found.iter().map(|object| object.bytes).sum();
        found.sort_by(|a, b| (a.touched, &a.path).cmp(&(b.touched, &b.path)));
        for object in found {
            if space.used + len <= self.capacity {
                break;
            }
            match fs::remove_file(&object.path) {
                Ok(()) => space.used -= object.bytes,
                Err(error) if error.kind() == ErrorKind::NotFound => space.used -= object.bytes,
                Err(error) => return Err(code(&error, ErrorCode::FileWriteFail)),
            }
        }
        Ok(())
    }

    fn scan(&self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for shelf in fs::read_dir(&self.objects)? {
            for entry in fs::read_dir(shelf?.path())? {
                let entry = entry?;
                match entry.metadata() {
                    Ok(metadata) => found.push(Found {
                        path: entry.path(),
                        bytes: metadata.len(),
                        touched: metadata.modified()?,
                    }),
                    // Removed meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// What writers left behind that died in the middle.
    fn remove_abandoned(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.partial)? {
            let entry = entry?;
            let age = entry.metadata().and_then(|m| m.modified()).map(|at| at.elapsed());
            if let Ok(Ok(age)) = age
                && age > PARTIAL_AGE
            {
                // Somebody else may be tidying up too.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

struct Found {
    path: PathBuf,
    bytes: u64,
    #[expect(clippy::disallowed_types, reason = "file times order the eviction, nothing else")]
    touched: std::time::SystemTime,
}

/// A file that is not an object yet; goes when its writer goes.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // It never came into being, or has gone: either way nothing is left behind.
        let _ = fs::remove_file(&self.0);
    }
}

/// Marks a file as used. On a read-only directory the order of eviction is that of writing.
#[expect(clippy::disallowed_types, reason = "file times order the eviction, nothing else")]
fn touch(file: &File) {
    let _ = file.set_modified(std::time::SystemTime::now());
}

/// The store's code for an error of the file system.
fn code(error: &io::Error, otherwise: ErrorCode) -> ErrorCode {
    match error.kind() {
        ErrorKind::NotFound => ErrorCode::ObjectNotFound,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ErrorCode::NoAvailableHandle,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ErrorCode::FileOpenFail,
        _ => otherwise,
    }
}
