//! A shared object store, and who owns a buffer while it moves.
//!
//! The argument for memory safety under real I/O is **ownership**: a buffer enters [`Store::put`] or
//! [`Store::get`] as a [`Transfer`] by value and comes back as a [`Lease`] only when no I/O can touch it any
//! more. A caller that drops the returned future (a deadline, a cancelled request) frees nothing; the
//! implementation goes on holding the transfer until the operation is over. An operation whose end cannot
//! be known comes back as [`Outcome::Uncertain`], still a transfer, and a transfer that is dropped is
//! quarantined by the pool, never reused.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use super::code::{ErrorCode, InFlight, Retry};
use crate::pool::{Lease, Region, Transfer};

/// The name of an object. Opaque to the store; made by [`crate::connector::Namespace::key`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a store call failed: Mooncake's code, and how long the call ran.
///
/// The time matters: Mooncake reports the same -800 for a transfer that ended and, after its 60 s limit,
/// for one that still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} after {:.3} s", elapsed.as_secs_f64())]
pub struct StoreError {
    /// Mooncake's code.
    pub code: ErrorCode,
    /// From the call to its return.
    pub elapsed: Duration,
    /// The limit after which the store gives up on a transfer without stopping it (60 s in Mooncake).
    pub transfer_limit: Duration,
}

impl StoreError {
    /// Mooncake's store-level limit for one object's transfer, hard coded there.
    pub const MOONCAKE_TRANSFER_LIMIT: Duration = Duration::from_secs(60);

    /// An error with Mooncake's own transfer limit.
    pub fn new(code: ErrorCode, elapsed: Duration) -> Self {
        Self { code, elapsed, transfer_limit: Self::MOONCAKE_TRANSFER_LIMIT }
    }

    /// Whether I/O may still touch the caller's buffer although the call has returned.
    pub fn may_be_in_flight(&self) -> bool {
        match self.code.in_flight() {
            InFlight::Never => false,
            InFlight::AfterTransferLimit => self.elapsed >= self.transfer_limit,
            InFlight::Unknown => true,
        }
    }

    /// Whether the same call may be made again, and when.
    pub fn retry(&self) -> Retry {
        self.code.retry()
    }
}

/// One object to store: the whole of `source`, in the order of its segments.
#[derive(Debug)]
pub struct PutItem {
    /// Name of the object.
    pub key: Key,
    /// Its bytes.
    pub source: Transfer,
}

/// One object to fetch into the whole of `dest`, whose length must equal the object's.
#[derive(Debug)]
pub struct GetItem {
    /// Name of the object.
    pub key: Key,
    /// Where its bytes go.
    pub dest: Transfer,
}

/// The end of one item's I/O, as far as the store knows it.
#[derive(Debug)]
pub enum Outcome<T, E = StoreError> {
    /// Nothing touches the buffer any more.
    Ended {
        /// The buffer, given back.
        buffer: Lease,
        /// What the store said.
        result: Result<T, E>,
    },
    /// The call returned, the I/O may go on. Dropping the buffer quarantines it.
    Uncertain {
        /// The buffer, still lent.
        buffer: Transfer,
        /// What the store said.
        error: E,
    },
}

/// What is true after [`Store::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// No operation of this client touches registered memory any more.
    Fenced,
    /// Some operation may still run: its memory must stay mapped and unused.
    Unknown,
}

/// What an implementation can take in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Buffers that one object may consist of: 1 for the C ABI, more with scatter/gather.
    pub buffers_per_object: usize,
    /// Buffers in one batch over all objects. Mooncake over tcp fails batches of more than about 2048
    /// fragments to one peer; 1024 keeps a margin.
    pub fragments_per_batch: usize,
    /// The largest object it accepts, if it is known.
    pub object_bytes_max: Option<u64>,
}

/// A shared object store: immutable objects by key, with batches and one result per item.
///
/// Results come in the order of the items. No call has a deadline of its own; callers put one around it
/// and may drop the future, see the module's text for what that means for buffers.
///
/// ```
/// use springtide::{
///     backend::{DiskConfig, DiskStore},
///     env::{GetItem, Key, Outcome, PutItem, Store},
///     pool::{Contiguity, Pool, PoolConfig},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let disk = DiskConfig { directory: directory.path().into(), capacity_bytes: 1 << 20, threads: 1 };
/// let store = DiskStore::open(&disk)?;
/// let pool = Pool::new(&PoolConfig::with_bytes(1 << 20))?;
/// store.register(pool.region().clone()).await?;
///
/// let mut lease = pool.allocate(5, Contiguity::Extents)?;
/// lease.write_at(0, b"bytes");
/// let (key, source) = (Key::new("a key"), lease.into_transfer());
/// let outcomes = store.put(vec![PutItem { key: key.clone(), source }]).await;
/// assert!(matches!(outcomes[..], [Outcome::Ended { result: Ok(()), .. }]));
/// // Only this tells whether it is there.
/// assert_eq!(store.exists(vec![key.clone()]).await, [Ok(true)]);
///
/// let dest = pool.allocate(5, Contiguity::Extents)?.into_transfer();
/// match store.get(vec![GetItem { key, dest }]).await.pop() {
///     Some(Outcome::Ended { buffer, result: Ok(5) }) => {
///         let mut bytes = [0; 5];
///         buffer.read_at(0, &mut bytes);
///         assert_eq!(&bytes, b"bytes");
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub trait Store: Clone + Send + Sync + 'static {
    /// What one call can take.
    fn limits(&self) -> StoreLimits;

    /// Makes the whole region known to the transport. Called once, before any transfer in it.
    ///
    /// # Errors
    /// The store's code; nothing is registered then.
    fn register(&self, region: Arc<Region>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Undoes [`Store::register`] with the very same region. After a fenced [`Store::close`], which ends the
    /// registrations too, there is nothing to undo and this succeeds.
    ///
    /// # Errors
    /// The store's code; the region must be kept then.
    fn unregister(
        &self,
        region: Arc<Region>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stores objects. **Success does not mean stored:** a put over a key that exists, or that somebody
    /// else is still writing, succeeds and writes nothing. Only [`Store::exists`] tells.
    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send;

    /// Fetches objects; each result is the object's length in bytes.
    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send;

    /// Whether each key is readable now. Also takes a read lease on those that are.
    fn exists(&self, keys: Vec<Key>) -> impl Future<Output = Vec<Result<bool, StoreError>>> + Send;

    /// The length of an object in bytes. Tells an absent key (`OBJECT_NOT_FOUND`) from one that is still
    /// being written (`REPLICA_IS_NOT_READY`).
    ///
    /// # Errors
    /// The store's code.
    fn size(&self, key: Key) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Removes an object; `force` ignores read leases.
    ///
    /// # Errors
    /// The store's code.
    fn remove(&self, key: Key, force: bool) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends this client and its registrations. Later calls fail, except [`Store::unregister`].
    fn close(&self) -> impl Future<Output = Fence> + Send;
}
