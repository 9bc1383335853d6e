//! The buddy pool: registered memory, divided into leases that nothing can take away too early.
//!
//! One [`Region`] is allocated, pinned and registered once. A [`Pool`] hands it out; what an operation may
//! do with its part is said by the guard that it holds:
//!
//! ```text
//!  allocate ─▶ Lease ──into_transfer──▶ Transfer ──quarantine, drop──▶ (quarantined) ──release──▶ free
//!    ▲          │ ▲ └──drop──▶ free        │
//!    │  publish │ └────────finish──────────┘
//!    │          ▼
//!    │         Pin ──drop──▶ (resident) ──pin──▶ Pin
//!    │                          │
//!    └──evict_until_fits────────┴──reclaim──▶ Lease
//! ```
//!
//! # Layout
//!
//! | module | what it is | pure |
//! |---|---|---|
//! | [`buddy`] | power-of-two blocks of units | yes |
//! | [`extents`] | which blocks serve a length | yes |
//! | [`state`] | generation, state and pins in one atomic word | yes |
//! | [`eviction`] | FIFO, LRU, S3-FIFO | yes |
//! | `usage` | the ledger | yes |
//! | `table` | what is known of each allocation | yes |
//! | [`generation`] | what tells a mapper that memory has changed hands | yes |
//! | `region`, `region_file` | the memory (all unsafe code) and the file behind it | no |
//! | `poison` | finding writes that nobody should make | no |
//! | `core` | the transitions and their lock | no |
//! | `allocate`, `evict` | beginnings and ends, making room | no |
//! | `lease`, `mapper` | the guards, here and in other processes | no |
//! | `verify` | recomputing and comparing everything | no |

mod allocate;
pub mod buddy;
mod config;
mod core;
mod evict;
pub mod eviction;
pub mod extents;
pub mod generation;
mod handle;
mod lease;
mod mapper;
mod poison;
mod region;
mod region_file;
pub mod state;
mod table;
mod usage;
mod verify;

use self::core::Core;
pub use self::{
    config::{AllocError, Backing, Contiguity, EvictionPolicy, PoolConfig, PoolError, UNIT_HEADER},
    extents::MAX_EXTENTS,
    handle::{Descriptor, Extent, Extents, Handle, StaleHandle},
    lease::{Allocation, Lease, Pin, QuarantineCause, Transfer},
    mapper::{Mapper, View},
    poison::{GUARD, GUARD_BYTES, POISON, Violation},
    region::Region,
    region_file::{PREPARED_PREFIX, RegionError},
    usage::{Counters, Usage},
    verify::Corruption,
};
use crate::sync::{Arc, Ordering};

/// A pool. Clones share it; it lives as long as the last clone or guard.
///
/// ```
/// use springtide::pool::{Contiguity, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig::with_bytes(4 << 20))?;
/// let mut lease = pool.allocate(3 << 20, Contiguity::Extents)?;
/// lease.write_at(0, b"an item");
/// // A resident may be read while it is pinned, and evicted when it is not.
/// let pin = lease.publish(7);
/// let handle = pin.handle();
/// assert!(pool.evict_until_fits(3 << 20, Contiguity::Extents).is_empty(), "it is pinned");
/// drop(pin);
/// assert_eq!(pool.evict_until_fits(3 << 20, Contiguity::Extents), [handle]);
/// // Whoever still has its handle is told so.
/// assert!(pool.pin(handle).is_err());
/// let usage = pool.usage();
/// assert_eq!((usage.free, usage.counters.evictions), (usage.total, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool(Arc<Core>);

impl Pool {
    /// A pool with everything free.
    ///
    /// # Errors
    /// [`PoolError::Config`] for a value out of range, [`PoolError::Region`] if the memory cannot be had.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let (unit, units) = (config.unit(), config.units()?);
        let (region, owner) = match &config.backing {
            Backing::Anonymous => (Region::anonymous(unit, units)?, None),
            Backing::Shared(path) => {
                let (region, owner) = match Region::adopt(path, unit, units)? {
                    Some(adopted) => adopted,
                    None => Region::shared(path, unit, units)?,
                };
                (region, Some(owner))
            }
        };
        Ok(Self(Arc::new(Core::new(config, region, owner)?)))
    }

    /// The memory: what to pin and register, whole.
    pub fn region(&self) -> &Arc<Region> {
        &self.0.region
    }

    /// A mapper over the same memory, for readers in this process.
    pub fn mapper(&self) -> Mapper {
        Mapper::new(self.0.region.clone())
    }

    /// Removes the name of a shared region's file, once everybody has mapped it: the memory then goes with
    /// its last process, however that ends. Does nothing for anonymous memory.
    ///
    /// # Errors
    /// The system's error.
    pub fn unlink(&self) -> std::io::Result<()> {
        self.0.owner().map_or(Ok(()), |owner| owner.unlink())
    }

    /// Exclusive use of `len` bytes: an object with its header. Never evicts.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is allocated then.
    pub fn allocate(&self, len: u64, contiguity: Contiguity) -> Result<Lease, AllocError> {
        self.0.allocate(len, contiguity).map(Lease::new)
    }

    /// Evicts unpinned residents, in the order of the policy, until an allocation of `len` bytes would
    /// succeed. Evicts none if evicting all of them would not help: because of what is pinned or in use, of
    /// `len` itself, or of a full quarantine. Returns the victims, whose handles are stale now.
    ///
    /// Another thread may be faster than the allocation that follows; then evict and try again.
    #[must_use = "the victims are gone: whatever refers to them must be dropped"]
    pub fn evict_until_fits(&self, len: u64, contiguity: Contiguity) -> Vec<Handle> {
        self.0.evict_until_fits(len, contiguity)
    }

    /// Shared reading of a resident. Counts as an access for the eviction policy. Takes no lock.
    ///
    /// # Errors
    /// [`StaleHandle`], counted, unless a resident has this handle.
    pub fn pin(&self, handle: Handle) -> Result<Pin, StaleHandle> {
        self.0.pin(handle).map(Pin::new)
    }

    /// Exclusive use of a resident again, with its bytes, **under a new handle**: views of the old one can
    /// tell that the bytes may change. `None` if it is pinned or the handle is stale (then counted).
    pub fn reclaim(&self, handle: Handle) -> Option<Lease> {
        self.0.reclaim(handle).map(Lease::new)
    }

    /// Drops a resident: at once, or with its last pin.
    ///
    /// # Errors
    /// [`StaleHandle`], counted, unless a resident has this handle.
    pub fn discard(&self, handle: Handle) -> Result<(), StaleHandle> {
        self.0.discard(handle)
    }

    /// Frees everything quarantined; the bytes freed. To be called once it is known that none of that I/O
    /// runs any more: the store's client was fenced.
    pub fn release_quarantine(&self) -> u64 {
        self.0.release_quarantined(|_| true)
    }

    /// Frees one quarantined allocation, whose I/O is known to be over; the bytes freed.
    ///
    /// # Errors
    /// [`StaleHandle`], counted, unless a quarantined allocation has this handle.
    pub fn release_quarantined(&self, handle: Handle) -> Result<u64, StaleHandle> {
        match self.0.release_quarantined(|quarantined| quarantined == handle) {
            0 => Err(self.0.stale(handle, None)),
            bytes => Ok(bytes),
        }
    }

    /// Where the bytes are, and what happened so far. Takes time in proportion to the allocations.
    pub fn usage(&self) -> Usage {
        let locked = self.0.lock();
        let mut usage = locked.ledger.usage().clone();
        usage.pinned = verify::pinned_bytes(&self.0, &locked);
        usage.largest_free =
            locked.buddy.largest_free().map_or(0, |order| self.0.region.unit() << order);
        usage.counters.stale_handles = self.0.stale_handles.load(Ordering::Relaxed);
        assert!(usage.pinned <= usage.resident, "pinned bytes are resident: {usage:?}");
        usage
    }

    /// Recomputes the buddy tree from its allocated bits and compares it with the tree, the allocations, the
    /// accounts, the eviction order and the generations; looks at the guards of every allocation; reports
    /// any write to memory that nobody held, found now or before.
    ///
    /// # Errors
    /// The first [`Corruption`].
    pub fn verify(&self) -> Result<(), Corruption> {
        verify::verify(&self.0)
    }

    /// Looks at every byte of free memory for writes. Without debug assertions memory is not poisoned, and
    /// this finds nothing.
    ///
    /// # Errors
    /// [`Corruption::Memory`].
    pub fn scrub(&self) -> Result<(), Corruption> {
        verify::scrub(&self.0)
    }
}
