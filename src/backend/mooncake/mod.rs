//! Mooncake Store through its C ABI.
//!
//! [`mooncake_sys::Client`] keeps the library from being misused, [`BlockingStore`] brings threads and the
//! ownership of buffers; here the two meet. The C ABI takes one buffer an object, so objects lie in one
//! piece. A close destroys the client: only when that has returned is it known that no I/O touches the pool
//! any more, also none that the library had given up.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | [`MooncakeConfig`], and every reason why there is no client |
//! | `preflight` | what rdma needs of the machine |
//! | `vouch` | the unsafe part: lending memory, loading the library |

mod config;
mod preflight;
mod vouch;

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use mooncake_sys::{CallError, Client, Item, Replication};
use tokio::sync::oneshot;

pub use self::config::{MooncakeConfig, MooncakeError, Protocol};
use super::blocking::{Blocking, BlockingConfig, BlockingStore};
use crate::{
    env::{Clock, ErrorCode, Fence, GetItem, Key, PutItem, StoreError, StoreLimits},
    pool::{Region, Transfer},
};

/// Fragments on their way at a time. Mooncake over tcp fails above about 2048 to one peer; half of it keeps
/// a margin.
pub const MOONCAKE_FRAGMENTS_MAX: usize = 1024;

/// How long a close waits for the client's destruction: 20 s were seen with a dead master.
const DESTROY_LIMIT: Duration = Duration::from_secs(120);

/// A Mooncake Store reached through the C ABI.
pub type MooncakeStore = BlockingStore<MooncakeCalls>;

/// The calls of a [`MooncakeStore`].
#[derive(Debug)]
pub struct MooncakeCalls {
    client: Client,
    replication: Replication,
}

impl MooncakeStore {
    /// What the C ABI can take in one call.
    pub const LIMITS: StoreLimits = StoreLimits {
        buffers_per_object: 1,
        fragments_per_batch: MOONCAKE_FRAGMENTS_MAX,
        object_bytes_max: None,
    };

    /// Loads the library and joins the store, on a thread of its own. `region_bytes` is what will be
    /// registered: checked against what may be pinned.
    ///
    /// # Errors
    /// [`MooncakeError`].
    pub async fn connect(
        config: &MooncakeConfig,
        region_bytes: u64,
        clock: impl Clock,
    ) -> Result<Self, MooncakeError> {
        let (sender, receiver) = oneshot::channel();
        let config = config.clone();
        let connect = move || {
            // Whoever has stopped waiting leaves the store, which then closes itself.
            drop(sender.send(connect(&config, region_bytes, clock)));
        };
        let thread = thread::Builder::new().name("springtide-mooncake-connect".into());
        thread.spawn(connect).map_err(MooncakeError::Thread)?;
        let lost = |_| MooncakeError::Thread(std::io::Error::other("the thread ended early"));
        receiver.await.map_err(lost)?
    }

    /// This client's `host:port`, which names its segment.
    ///
    /// # Errors
    /// `UNAVAILABLE_IN_CURRENT_STATUS` once it is closed.
    pub fn hostname(&self) -> Result<String, ErrorCode> {
        self.calls().client.hostname().map_err(code)
    }

    /// Whether the last ping reached the master. A client that lends no memory never pings: it is always
    /// healthy.
    ///
    /// # Errors
    /// `UNAVAILABLE_IN_CURRENT_STATUS` once it is closed.
    pub fn is_healthy(&self) -> Result<bool, ErrorCode> {
        self.calls().client.is_healthy().map_err(code)
    }
}

/// Whether the library of the C ABI can be loaded and has all of its functions; what the loader was asked for.
///
/// # Errors
/// [`MooncakeError::Library`].
pub fn mooncake_library(library: Option<&Path>) -> Result<PathBuf, MooncakeError> {
    Ok(vouch::library(library)?.path().to_owned())
}

fn connect(
    config: &MooncakeConfig,
    region_bytes: u64,
    clock: impl Clock,
) -> Result<MooncakeStore, MooncakeError> {
    let config = config.with_port()?;
    config.preflight(region_bytes)?;
    let library = vouch::library(config.library.as_deref())?;
    let client = Client::connect(&library, &config.setup())?;
    let calls = MooncakeCalls { client, replication: config.replication() };
    let threads = BlockingConfig {
        name: "springtide-mooncake",
        data_threads: config.data_threads,
        lookup_threads: config.lookup_threads,
        transfer_limit: StoreError::MOONCAKE_TRANSFER_LIMIT,
    };
    BlockingStore::new(calls, threads, clock).map_err(MooncakeError::Thread)
}

impl Blocking for MooncakeCalls {
    fn limits(&self) -> StoreLimits {
        MooncakeStore::LIMITS
    }

    fn register(&self, region: &Region) -> Result<(), ErrorCode> {
        let buffer = vouch::region(region).ok_or(ErrorCode::InvalidParams)?;
        self.client.register(buffer).map_err(code)
    }

    fn unregister(&self, region: &Region) -> Result<(), ErrorCode> {
        let buffer = vouch::region(region).ok_or(ErrorCode::InvalidParams)?;
        self.client.unregister(buffer).map_err(code)
    }

    fn put(&self, items: &[PutItem]) -> Vec<Result<(), ErrorCode>> {
        let items = items.iter().map(|item| (&item.key, &item.source));
        batch(items, |items| self.client.put(items, &self.replication))
    }

    fn get(&self, items: &[GetItem]) -> Vec<Result<u64, ErrorCode>> {
        batch(items.iter().map(|item| (&item.key, &item.dest)), |items| self.client.get(items))
    }

    fn exists(&self, keys: &[Key]) -> Vec<Result<bool, ErrorCode>> {
        let keys: Vec<&str> = keys.iter().map(Key::as_str).collect();
        self.client.exists(&keys).into_iter().map(|result| result.map_err(code)).collect()
    }

    fn size(&self, key: &Key) -> Result<u64, ErrorCode> {
        self.client.size(key.as_str()).map_err(code)
    }

    fn remove(&self, key: &Key, force: bool) -> Result<(), ErrorCode> {
        self.client.remove(key.as_str(), force).map_err(code)
    }

    fn close(&self) -> Fence {
        match self.client.close() {
            Ok(closing) if closing.wait(DESTROY_LIMIT) => Fence::Fenced,
            _ => Fence::Unknown,
        }
    }
}

/// Makes one call with the items that lie in one piece; the others are refused.
fn batch<'a, T>(
    items: impl Iterator<Item = (&'a Key, &'a Transfer)>,
    call: impl FnOnce(&[Item<'a>]) -> Vec<Result<T, CallError>>,
) -> Vec<Result<T, ErrorCode>> {
    let items: Vec<Option<Item<'a>>> = items
        .map(|(key, transfer)| Some(Item { key: key.as_str(), buffer: vouch::buffer(transfer)? }))
        .collect();
    let whole: Vec<Item<'a>> = items.iter().flatten().copied().collect();
    let mut results = call(&whole).into_iter();
    let result = |item: Option<Item<'a>>| match item {
        Some(_) => results.next().unwrap_or(Err(CallError::Code(INTERNAL))).map_err(code),
        None => Err(ErrorCode::InvalidParams),
    };
    items.into_iter().map(result).collect()
}

const INTERNAL: mooncake_sys::Code = mooncake_sys::Code::INTERNAL_ERROR;

fn code(error: CallError) -> ErrorCode {
    match error {
        CallError::Closed => ErrorCode::UnavailableInCurrentStatus,
        CallError::Nul { .. } => ErrorCode::InvalidKey,
        CallError::Code(code) => ErrorCode::from_number(code.number()),
    }
}
