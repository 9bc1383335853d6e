//! Reading another owner's pool: a mapping of its region, and views of what its owner pinned.
//!
//! The owner sends a [`Descriptor`] and keeps its pin until the reader says that it is done. The pin is what
//! keeps the bytes in place; the generation in the region's control area is what tells a reader whose owner
//! did not keep to that. A reader copies, then asks [`View::check`]: if the generation is still the
//! descriptor's, what it copied belongs to the handle.

use std::path::Path;

use super::{
    config::{PoolConfig, PoolError},
    extents::MAX_EXTENTS,
    handle::{Descriptor, Extent, Handle, StaleHandle},
    lease::read_at,
    region::Region,
    region_file::Prepared,
};
use crate::sync::Arc;

/// A mapping of a pool's region, for reading what the owner pinned.
#[derive(Clone, Debug)]
pub struct Mapper {
    region: Arc<Region>,
    /// Says to others that the file is in use.
    _file: Option<Arc<Prepared>>,
}

impl Mapper {
    /// Maps the shared region that a pool of another process made at `path`.
    ///
    /// # Errors
    /// [`PoolError::Region`] if the file cannot be mapped, or is no region.
    pub fn open(path: &Path) -> Result<Self, PoolError> {
        Ok(Self { region: Arc::new(Region::open(path)?), _file: None })
    }

    /// Maps the region at `path` before its owner is there, and makes it if no other mapper has: all agree on
    /// its sizes by `config`. The pool with this path as its backing adopts it, once. Its memory is reserved
    /// here, so that too little of it is found here.
    ///
    /// # Errors
    /// [`PoolError::Config`] for sizes out of range, [`PoolError::Region`] if the file cannot be made or
    /// mapped, has other sizes, or has its owner already.
    pub fn prepare(path: &Path, config: &PoolConfig) -> Result<Self, PoolError> {
        let (region, file) = Region::prepare(path, config.unit(), config.units()?)?;
        Ok(Self { region: Arc::new(region), _file: Some(Arc::new(file)) })
    }

    /// Whether the region has an owner, dead or alive; before that nothing can be read.
    pub fn is_owned(&self) -> bool {
        !self.region.is_prepared()
    }

    pub(super) fn new(region: Arc<Region>) -> Self {
        Self { region, _file: None }
    }

    /// The memory, as this process maps it.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Read access to what `descriptor` names.
    ///
    /// # Errors
    /// [`StaleHandle`] if the allocation has ended or the owner has gone, or if the descriptor does not fit
    /// this region.
    pub fn view(&self, descriptor: &Descriptor) -> Result<View, StaleHandle> {
        let view = View { region: self.region.clone(), descriptor: descriptor.clone() };
        let sum = descriptor.extents.iter().try_fold(0u64, |sum, e| sum.checked_add(e.len));
        let inside = |extent: &Extent| extent.end().is_some_and(|end| end <= self.region.len());
        let fits = sum == Some(descriptor.len)
            && descriptor.extents.len() <= MAX_EXTENTS
            && descriptor.extents.iter().all(inside);
        if !fits {
            return Err(StaleHandle { handle: descriptor.handle, found: None });
        }
        view.check()?;
        Ok(view)
    }
}

/// Read access to an allocation of another owner's pool. It keeps the mapping, not the allocation, alive.
#[derive(Clone, Debug)]
pub struct View {
    region: Arc<Region>,
    descriptor: Descriptor,
}

impl View {
    /// Name of the allocation.
    pub fn handle(&self) -> Handle {
        self.descriptor.handle
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.descriptor.len
    }

    /// Never: no allocation is empty.
    pub fn is_empty(&self) -> bool {
        self.descriptor.len == 0
    }

    /// Where the bytes lie in the region, in order.
    pub fn extents(&self) -> &[Extent] {
        &self.descriptor.extents
    }

    /// The memory, as this process maps it; its base is where a copy engine reads.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Copies bytes out, from byte `offset` of the allocation on. They are the handle's only if
    /// [`View::check`] says so afterwards.
    ///
    /// # Panics
    /// If the range leaves the allocation.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) {
        read_at(&self.region, &self.descriptor.extents, offset, to);
    }

    /// Whether everything read so far was read from the allocation that the handle names.
    ///
    /// # Errors
    /// [`StaleHandle`] if the allocation has ended or the owner has gone.
    pub fn check(&self) -> Result<(), StaleHandle> {
        let handle = self.descriptor.handle;
        let stale = |found| Err(StaleHandle { handle, found });
        let dead = self.region.is_retired() || self.region.is_prepared();
        if dead || handle.index() >= self.region.units() {
            return stale(None);
        }
        match self.region.generation_after_reading(handle.index()) {
            generation if generation == handle.generation() => Ok(()),
            generation => stale(Some(generation)),
        }
    }
}
