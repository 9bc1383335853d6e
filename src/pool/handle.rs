//! Names of allocations: plain data that may be copied, ordered, stored and sent to another process.

use std::fmt;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};

use super::{
    buddy::Block,
    extents::{Blocks, MAX_EXTENTS},
};

/// The name of one allocation: its first block and the generation of that block's first unit.
///
/// An allocation that ends takes its name with it: the next one at the same place has another generation,
/// so an old handle is recognised as stale instead of naming a stranger's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle {
    index: u32,
    order: u8,
    generation: u32,
}

impl Handle {
    pub(super) fn new(first: Block, generation: u32) -> Self {
        Self { index: first.index, order: first.order, generation }
    }

    /// First unit of the first block.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Order of the first block.
    pub fn order(self) -> u8 {
        self.order
    }

    /// Generation of the first unit.
    pub fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Display for Handle {
    /// `unit/order@generation`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.index, self.order, self.generation)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A run of bytes of an allocation, within one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// First byte, from the start of the region.
    pub offset: u64,
    /// Used bytes of the block.
    pub len: u64,
}

impl Extent {
    /// One past the last used byte, from the start of the region; `None` if no `u64` holds it.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

/// The extents of one allocation, in the order of its bytes.
pub type Extents = ArrayVec<Extent, MAX_EXTENTS>;

/// Lays `len` bytes over `blocks`: each full but the last.
pub(super) fn lay_out(blocks: &Blocks, len: u64, unit: u64) -> Extents {
    let mut rest = len;
    let extents = blocks
        .iter()
        .map(|block| {
            let used = rest.min(unit * u64::from(block.units()));
            rest -= used;
            Extent { offset: unit * u64::from(block.index), len: used }
        })
        .collect();
    assert!(rest == 0, "expected blocks for {len} bytes, got {rest} bytes too few");
    extents
}

/// What another process needs to read an allocation: its name, its length and where its bytes lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its name.
    pub handle: Handle,
    /// Its length in bytes: the sum of the extents' lengths.
    pub len: u64,
    /// Where its bytes lie, in order.
    pub extents: Extents,
}

/// A handle that names nothing any more, or never did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stale handle {handle}: {}", match .found {
    Some(generation) => format!("that place is at generation {generation}"),
    None => "no such place in this pool".to_owned(),
})]
pub struct StaleHandle {
    /// The handle that was refused.
    pub handle: Handle,
    /// The generation now, equal to the handle's where the allocation still exists but not as a resident;
    /// `None` when the handle or its extents lie outside the region or its owner has gone.
    pub found: Option<u32>,
}
