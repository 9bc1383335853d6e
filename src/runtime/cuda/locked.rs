//! A region whose pages are locked for the copies of every device.
//!
//! The memory is the pool's own, so it may lie in hugepages or on one NUMA node as its mapping says. It is locked
//! in chunks: drivers refuse single ranges of many GiB. No copy may cross from one chunk into the next, which
//! [`copies`](super::copies) keeps to.

#![expect(unsafe_code, reason = "locks memory by its address")]

use std::{mem, sync::Arc};

use super::{
    driver::{Driver, Result},
    lane::{Lane, told},
};
use crate::pool::Region;

const PAGE: u64 = 4096;

/// A locked region. No copy may use it when this is dropped.
#[derive(Debug)]
pub(super) struct Locked<D: Driver> {
    lane: Arc<Lane<D>>,
    region: Arc<Region>,
    /// Where the chunks begin, in the region.
    chunks: Vec<u64>,
}

impl<D: Driver> Locked<D> {
    /// Locks the whole region in chunks of `chunk` bytes, or nothing of it.
    ///
    /// # Panics
    /// If a chunk is not whole pages.
    pub(super) fn new(lane: Arc<Lane<D>>, region: Arc<Region>, chunk: u64) -> Result<Self> {
        assert!(chunk > 0 && chunk.is_multiple_of(PAGE), "expected whole pages, got {chunk} bytes");
        let end = region.len().next_multiple_of(PAGE);
        let mut locked = Self { lane, region, chunks: Vec::new() };
        let mut at = 0;
        while at < end {
            let (base, len) = (locked.region.base(), chunk.min(end - at));
            let base = base.wrapping_add(at as usize);
            let Lane { driver, context, .. } = &*locked.lane;
            // SAFETY: a region's memory is page aligned and followed by its control area in later pages, so
            // these are whole pages of one mapping. `locked` keeps the region until they are unlocked.
            unsafe { driver.lock_pages(*context, base, len as usize) }?;
            locked.chunks.push(at);
            at += len;
        }
        Ok(locked)
    }

    pub(super) fn is_of(&self, region: &Arc<Region>) -> bool {
        Arc::ptr_eq(&self.region, region)
    }
}

impl<D: Driver> Drop for Locked<D> {
    fn drop(&mut self) {
        let Lane { driver, context, .. } = &*self.lane;
        for at in self.chunks.drain(..).rev() {
            let base = self.region.base().wrapping_add(at as usize);
            // SAFETY: `new` has locked it, and who drops this has seen the last copy end.
            let unlocked = unsafe { driver.unlock_pages(*context, base) };
            if unlocked.is_err() {
                // Memory that a driver holds must stay mapped.
                mem::forget(self.region.clone());
            }
            told("cuMemHostUnregister", unlocked);
        }
    }
}
