//! A store in a directory that the instances share: the default where no Mooncake is configured.
//!
//! Objects are whole or absent ([`super::disk_files`]), the least recently used go when the capacity is
//! reached, and a put over an existing key succeeds without writing, as in Mooncake. There are no leases: a
//! reader keeps its file open, so an eviction under it harms nothing.

use std::{future::Future, path::PathBuf, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{disk_files::Files, threads::Threads};
use crate::{
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits},
    pool::{Region, Transfer},
    size,
};

/// Where a disk store is and how much it may hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// The directory, shared by the instances. Made if it does not exist.
    pub directory: PathBuf,
    /// Bytes of objects that it may hold, over all instances.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub capacity_bytes: u64,
    /// Threads that read and write.
    #[serde(default = "default_threads")]
    pub threads: usize,
}

fn default_threads() -> usize {
    4
}

impl DiskConfig {
    /// What such a store can take in one call.
    pub fn limits(&self) -> StoreLimits {
        StoreLimits {
            buffers_per_object: usize::MAX,
            fragments_per_batch: usize::MAX,
            object_bytes_max: Some(self.capacity_bytes),
        }
    }
}

/// A store in a directory. Clones share it.
#[derive(Clone)]
pub struct DiskStore {
    files: Arc<Files>,
    threads: Threads,
    limits: StoreLimits,
}

impl DiskStore {
    /// Opens the directory, makes it if need be, and tries whether it can be written.
    ///
    /// # Errors
    /// As the file system reports them.
    pub fn open(config: &DiskConfig) -> std::io::Result<Self> {
        let files = Arc::new(Files::open(&config.directory, config.capacity_bytes)?);
        let threads = Threads::start("springtide-disk", config.threads.max(1))?;
        Ok(Self { files, threads, limits: config.limits() })
    }

    /// Runs a call on a thread. A call that a closed store refuses or that panics is an error.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Files) -> Result<T, ErrorCode> + Send + 'static,
    ) -> Result<T, StoreError> {
        let files = Arc::clone(&self.files);
        let result = match self.threads.run(move || call(&files)) {
            Ok(job) => job.await.unwrap_or(Err(ErrorCode::Internal)),
            Err(_closed) => Err(ErrorCode::UnavailableInCurrentStatus),
        };
        result.map_err(error)
    }

    /// Moves one buffer on a thread that owns it. `None` if the thread lost it in a panic.
    fn move_buffer<T: Send + 'static>(
        &self,
        buffer: Transfer,
        job: impl FnOnce(&Files, &mut Transfer) -> Result<T, ErrorCode> + Send + 'static,
    ) -> Moving<T> {
        let Ok(place) = self.threads.reserve() else {
            return Moving::Refused(Box::new(buffer));
        };
        let (files, mut buffer) = (Arc::clone(&self.files), buffer);
        Moving::Running(place.run(move || {
            let result = job(&files, &mut buffer).map_err(error);
            Outcome::Ended { buffer: buffer.finish(), result }
        }))
    }
}

enum Moving<T> {
    Running(oneshot::Receiver<Outcome<T>>),
    Refused(Box<Transfer>),
}

impl<T> Moving<T> {
    async fn outcome(self) -> Option<Outcome<T>> {
        match self {
            Self::Running(receiver) => receiver.await.ok(),
            Self::Refused(buffer) => {
                let result = Err(error(ErrorCode::UnavailableInCurrentStatus));
                Some(Outcome::Ended { buffer: buffer.finish(), result })
            }
        }
    }
}

impl Store for DiskStore {
    fn limits(&self) -> StoreLimits {
        self.limits
    }

    async fn register(&self, _region: Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn unregister(&self, _region: Arc<Region>) -> Result<(), StoreError> {
        Ok(())
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        let moving: Vec<_> = items
            .into_iter()
            .map(|PutItem { key, source }| {
                self.move_buffer(source, move |files, source| files.put(&key, source))
            })
            .collect();
        outcomes(moving)
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        let moving: Vec<_> = items
            .into_iter()
            .map(|GetItem { key, dest }| {
                self.move_buffer(dest, move |files, dest| files.get(&key, dest))
            })
            .collect();
        outcomes(moving)
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let count = keys.len();
        let all = self
            .call(move |files| Ok(keys.iter().map(|key| files.exists(key)).collect::<Vec<_>>()))
            .await;
        match all {
            Ok(answers) => answers.into_iter().map(|answer| answer.map_err(error)).collect(),
            Err(error) => vec![Err(error); count],
        }
    }

    fn size(&self, key: Key) -> impl Future<Output = Result<u64, StoreError>> + Send {
        self.call(move |files| files.size(&key))
    }

    fn remove(
        &self,
        key: Key,
        _force: bool,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.call(move |files| files.remove(&key))
    }

    async fn close(&self) -> Fence {
        self.threads.close();
        let Ok(idle) = self.threads.idle("springtide-disk") else { return Fence::Unknown };
        match idle.await {
            Ok(()) => Fence::Fenced,
            Err(_) => Fence::Unknown,
        }
    }
}

/// Outcomes in order, as far as they are known: what a panic lost is missing at the end of the list, which
/// callers take as lost.
async fn outcomes<T>(moving: Vec<Moving<T>>) -> Vec<Outcome<T>> {
    let mut outcomes = Vec::with_capacity(moving.len());
    for one in moving {
        match one.outcome().await {
            Some(outcome) => outcomes.push(outcome),
            None => break,
        }
    }
    outcomes
}

fn error(code: ErrorCode) -> StoreError {
    StoreError::new(code, Duration::ZERO)
}
