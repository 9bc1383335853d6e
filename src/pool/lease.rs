//! The guards on an allocation: who may do what with its bytes, by type.
//!
//! | guard | state | may | ends as |
//! |---|---|---|---|
//! | [`Lease`] | filling | read and write, alone | free (dropped), a transfer, a resident |
//! | [`Transfer`] | in flight | be moved by a store or a device | a lease, quarantine (also when dropped) |
//! | [`Pin`] | resident | read, with other pins | a resident with one pin less |
//!
//! Each derefs to its [`Allocation`]. Guards belong to the operation that works on the bytes, never to
//! whoever waits for it: a wait that is given up ends no lease. Each keeps the pool alive. Writing needs a
//! guard mutably or by value, so slices from `segments` cannot be held across it.

use std::{fmt, ops::Deref};

use super::{
    core::Core,
    handle::{Descriptor, Extent, Extents, Handle},
    region::Region,
};
use crate::sync::Arc;

/// Why a transfer ended up in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineCause {
    /// It was dropped: nobody said how the I/O ended.
    Abandoned,
    /// The store said that the I/O may go on.
    Uncertain,
    /// Its deadline passed while the I/O went on.
    TimedOut,
}

/// Name, length and place of what a guard holds.
pub struct Allocation {
    pub(super) core: Arc<Core>,
    pub(super) handle: Handle,
    pub(super) len: u64,
    pub(super) extents: Extents,
}

impl Allocation {
    /// Its name.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Its length in bytes: what was asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: no allocation is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where its bytes lie in the region, in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The memory that its extents lie in.
    pub fn region(&self) -> &Arc<Region> {
        &self.core.region
    }

    /// Copies bytes out, from byte `offset` on.
    ///
    /// # Panics
    /// If the range leaves the allocation.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) {
        read_at(&self.core.region, &self.extents, offset, to);
    }

    fn write_at(&self, offset: u64, from: &[u8]) {
        let mut rest = from;
        for piece in pieces(&self.extents, offset, from.len() as u64) {
            let (bytes, after) = rest.split_at(piece.len as usize);
            self.core.region.dma_write(piece.offset, bytes);
            rest = after;
        }
    }

    fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.extents.iter().map(|extent| self.core.region.slice(extent.offset, extent.len))
    }

    fn debug(&self, guard: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(guard).field("handle", &self.handle).field("len", &self.len).finish()
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("Allocation", f)
    }
}

/// Exclusive use of an allocation. Dropping it frees the memory.
pub struct Lease(Option<Allocation>);

impl Lease {
    pub(super) fn new(allocation: Allocation) -> Self {
        Self(Some(allocation))
    }

    /// Copies bytes in, from byte `offset` on.
    ///
    /// # Panics
    /// If the range leaves the allocation.
    pub fn write_at(&mut self, offset: u64, from: &[u8]) {
        Allocation::write_at(self, offset, from);
    }

    /// The bytes, one slice an extent.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        Allocation::segments(self)
    }

    /// Lends the memory to a store or a device.
    pub fn into_transfer(mut self) -> Transfer {
        self.core.lend(self.handle);
        Transfer(self.0.take())
    }

    /// Makes the bytes readable for everybody who has the handle, and pins them once. `tag` stands for their
    /// content (a hash of the key): the eviction policy recognises what comes back soon after it went.
    pub fn publish(mut self, tag: u64) -> Pin {
        self.core.publish(self.handle, tag);
        Pin(taken(self.0.take()))
    }
}

impl Deref for Lease {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        held(self.0.as_ref())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(allocation) = self.0.take() {
            allocation.core.release(allocation.handle);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("Lease", f)
    }
}

/// An allocation lent to a store or a device, whose I/O may touch it at any time.
///
/// Dropping it **quarantines** the memory: only whoever runs the I/O can say that it is over, with
/// [`Transfer::finish`].
pub struct Transfer(Option<Allocation>);

impl Transfer {
    /// Copies bytes in, from byte `offset` on: the I/O of a store or a device that moves bytes by CPU.
    ///
    /// # Panics
    /// If the range leaves the allocation.
    pub fn write_at(&mut self, offset: u64, from: &[u8]) {
        Allocation::write_at(self, offset, from);
    }

    /// The I/O is over: nothing but the new lease touches the memory.
    pub fn finish(mut self) -> Lease {
        self.core.take_back(self.handle);
        Lease(self.0.take())
    }

    /// Gives the memory up until it is known that the I/O is over.
    pub fn quarantine(mut self, cause: QuarantineCause) {
        self.end(cause);
    }

    fn end(&mut self, cause: QuarantineCause) {
        if let Some(allocation) = self.0.take() {
            allocation.core.quarantine(allocation.handle, cause);
        }
    }
}

impl Deref for Transfer {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        held(self.0.as_ref())
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.end(QuarantineCause::Abandoned);
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("Transfer", f)
    }
}

/// Shared reading of a resident. A clone pins once more; each drop unpins.
pub struct Pin(Allocation);

impl Pin {
    pub(super) fn new(allocation: Allocation) -> Self {
        Self(allocation)
    }

    /// The bytes, one slice an extent.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.0.segments()
    }

    /// What another process needs to read the bytes, for as long as this pin or another one lives.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor { handle: self.handle, len: self.len, extents: self.extents.clone() }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.core.repin(self.handle);
        let Allocation { core, handle, len, extents } = &self.0;
        Self(Allocation {
            core: core.clone(),
            handle: *handle,
            len: *len,
            extents: extents.clone(),
        })
    }
}

impl Deref for Pin {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        &self.0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.unpin(self.handle);
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("Pin", f)
    }
}

/// Copies bytes out of extents, from byte `offset` of them on.
pub(super) fn read_at(region: &Region, extents: &Extents, offset: u64, to: &mut [u8]) {
    let mut rest = to;
    for piece in pieces(extents, offset, rest.len() as u64) {
        let (bytes, after) = rest.split_at_mut(piece.len as usize);
        region.dma_read(piece.offset, bytes);
        rest = after;
    }
}

/// The parts of `extents` that hold `len` bytes from byte `offset` of them on.
fn pieces(extents: &Extents, offset: u64, len: u64) -> impl Iterator<Item = Extent> {
    let total: u64 = extents.iter().map(|extent| extent.len).sum();
    assert!(
        offset.checked_add(len).is_some_and(|end| end <= total),
        "expected a range in the allocation's {total} bytes, got {len} bytes at {offset}"
    );
    let (mut skip, mut rest) = (offset, len);
    extents.iter().filter_map(move |extent| {
        let before = skip.min(extent.len);
        let taken = rest.min(extent.len - before);
        skip -= before;
        rest -= taken;
        (taken > 0).then_some(Extent { offset: extent.offset + before, len: taken })
    })
}

fn held(allocation: Option<&Allocation>) -> &Allocation {
    allocation.expect("a guard holds its allocation until it is consumed")
}

fn taken(allocation: Option<Allocation>) -> Allocation {
    allocation.expect("a guard holds its allocation until it is consumed")
}
