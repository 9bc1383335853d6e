//! The buddy allocator: pure arithmetic over units, no memory, no lock, no allocation once it is built.
//!
//! A *unit* is the smallest thing handed out; a *block* of order `n` is `2ⁿ` units that start at a multiple
//! of `2ⁿ`. The allocator is a complete binary tree whose leaves are the units. It promises that blocks
//! handed out are disjoint, that freed blocks join their buddies again whatever the order of the frees, and
//! that a free of anything that was not handed out exactly so is refused and changes nothing.
//!
//! # The tree
//!
//! A byte per node holds `1 + the largest free order at or below it`, or 0 when nothing is free there. The
//! root byte is therefore the largest block that can be had. Eight units, of which `2..4` and `4` are taken:
//!
//! ```text
//! order 3                       2                          largest free: order 1
//!                     ┌─────────┴─────────┐
//! order 2             2                   2
//!                ┌────┴────┐         ┌────┴────┐
//! order 1        2        (0)        1         2           (0): allocated exactly here
//!              ┌─┴─┐     ┌─┴─┐     ┌─┴─┐     ┌─┴─┐
//! order 0      1   1     1   1    (0)  1     1   1
//! unit         0   1     2   3     4   5     6   7
//! ```
//!
//! A bit per node says *allocated exactly here* (the parentheses). Bytes below an allocated or a wholly free
//! node are kept as if everything below were free, so that splitting and joining write one byte a level.
//!
//! Both walks touch one node a level: `allocate` goes down to a node of the wanted order, always into the
//! child whose largest free block is the smaller sufficient one (best fit) and to the left on a tie (lower
//! address), then mends the bytes on the way up; `free` starts at the node and only goes up. A node knows
//! the largest free block below it, not whether one of just the wanted order is there, so the fit is the
//! best that a descent can see; over the item sizes of the common encoders it fills the pool as far as an
//! exact best fit does (within 0.003 of the pool with eight extents).
//!
//! A unit count that is not a power of two is a tree whose last leaves do not exist: they are never free.

mod verify;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::verify::TreeCorruption;

/// Orders that a tree may have; a block index and a block's units fit a `u32`.
pub const ORDERS_MAX: usize = 31;

/// `2^order` units, starting at unit `index`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Block {
    /// First unit, a multiple of `2^order`.
    pub index: u32,
    /// Binary logarithm of the number of units.
    pub order: u8,
}

impl Block {
    /// Number of units.
    pub fn units(self) -> u32 {
        1 << self.order
    }

    /// The units from the first to one past the last.
    pub fn range(self) -> std::ops::Range<u32> {
        self.index..self.index + self.units()
    }
}

/// A free that does not match an allocation. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// The block lies outside the tree, or is not aligned to its own size.
    #[error("no such block: unit {}, order {} in {units} units", block.index, block.order)]
    NoSuchBlock {
        /// What was to be freed.
        block: Block,
        /// Units of the tree.
        units: u32,
    },
    /// The first unit of the block is free: a double free.
    #[error("double free of unit {}, order {}", block.index, block.order)]
    Free {
        /// What was to be freed.
        block: Block,
    },
    /// The first unit belongs to another allocation: wrong order, or an address inside a block.
    #[error("free of unit {}, order {} inside unit {}, order {}",
        block.index, block.order, owner.index, owner.order)]
    Mismatch {
        /// What was to be freed.
        block: Block,
        /// The allocation that the unit belongs to.
        owner: Block,
    },
    /// The block is split: parts of it are allocated, or are free, on their own.
    #[error("free of unit {}, order {}, which is split", block.index, block.order)]
    Split {
        /// What was to be freed.
        block: Block,
    },
}

/// A buddy allocator over a fixed number of units. See the module's text.
#[derive(Clone, Debug)]
pub struct Buddy {
    units: u32,
    /// Order of the root.
    height: u8,
    /// One byte per node in heap order: the root at 1, the children of `n` at `2n` and `2n + 1`.
    largest: Box<[u8]>,
    /// One bit per node: allocated exactly here.
    allocated: Box<[u64]>,
    /// Wholly free blocks that are not part of a larger wholly free block, by order.
    free_blocks: [u32; ORDERS_MAX],
    free_units: u32,
}

impl Buddy {
    /// All of `units` units free.
    ///
    /// # Panics
    /// If `units` is 0 or more than `2^30`.
    pub fn new(units: u32) -> Self {
        assert!((1..=1 << 30).contains(&units), "expected 1 to 2^30 units, got {units}");
        let leaves = units.next_power_of_two() as usize;
        let mut buddy = Self {
            units,
            height: leaves.trailing_zeros() as u8,
            largest: vec![0; 2 * leaves].into_boxed_slice(),
            allocated: vec![0; (2 * leaves).div_ceil(64)].into_boxed_slice(),
            free_blocks: [0; ORDERS_MAX],
            free_units: units,
        };
        for leaf in leaves..leaves + units as usize {
            buddy.largest[leaf] = 1;
        }
        for node in (1..leaves).rev() {
            let order = buddy.height - node.ilog2() as u8;
            buddy.largest[node] = buddy.joined(node, order);
        }
        let mut rest = units;
        while rest > 0 {
            let order = rest.ilog2();
            buddy.free_blocks[order as usize] += 1;
            rest -= 1 << order;
        }
        buddy
    }

    /// Number of units, free or not.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Number of free units.
    pub fn free_units(&self) -> u32 {
        self.free_units
    }

    /// Order of the largest free block: the root's byte. `None` when nothing is free.
    pub fn largest_free(&self) -> Option<u8> {
        self.largest[1].checked_sub(1)
    }

    /// Free blocks of each order, joined as far as they go.
    pub fn free_blocks(&self) -> &[u32; ORDERS_MAX] {
        &self.free_blocks
    }

    /// Hands out a block of `order`, or `None` if no free block is that large.
    pub fn allocate(&mut self, order: u8) -> Option<Block> {
        let wanted = order.checked_add(1)?;
        if self.largest[1] < wanted {
            return None;
        }
        let mut node = 1;
        for _ in order..self.height {
            let (left, right) = (self.largest[2 * node], self.largest[2 * node + 1]);
            let go_left = left >= wanted && (right < wanted || left <= right);
            node = 2 * node + usize::from(!go_left);
        }
        self.take(node, order);
        Some(self.block(node, order))
    }

    /// Hands out exactly this block, or says `false` and changes nothing if it is not wholly free.
    pub fn allocate_at(&mut self, block: Block) -> bool {
        let Some(node) = self.node(block) else { return false };
        let free = self.owner(block.index).is_none() && self.largest[node] == block.order + 1;
        if free {
            self.take(node, block.order);
        }
        free
    }

    /// Takes back a block that was handed out exactly so.
    ///
    /// # Errors
    /// [`FreeError`] says how the block differs from what was handed out; nothing is changed then.
    pub fn free(&mut self, block: Block) -> Result<(), FreeError> {
        let node = self.node(block).ok_or(FreeError::NoSuchBlock { block, units: self.units })?;
        if !self.is_allocated(node) {
            return Err(self.why_not(block));
        }
        self.flip_allocated(node);
        self.largest[node] = block.order + 1;
        self.free_units += block.units();
        let (mut at, mut order) = (node, block.order);
        while at > 1 && self.largest[at ^ 1] == order + 1 {
            self.free_blocks[usize::from(order)] -= 1;
            at /= 2;
            order += 1;
            self.largest[at] = order + 1;
        }
        self.free_blocks[usize::from(order)] += 1;
        self.mend_above(at, order);
        Ok(())
    }

    /// Calls `visit` for each block handed out, in the order of their addresses.
    pub fn for_each_allocated(&self, mut visit: impl FnMut(Block)) {
        let mut at = 0;
        while at < self.units {
            let order = match self.owner(at) {
                Some(block) => {
                    visit(block);
                    block.order
                }
                None => self.free_around(at),
            };
            at += 1 << order;
        }
    }

    /// Marks a node of a wholly free block as allocated and mends everything above it.
    fn take(&mut self, node: usize, order: u8) {
        let (mut at, mut at_order) = (node, order);
        while at > 1 && self.largest[at / 2] == at_order + 2 {
            self.free_blocks[usize::from(at_order)] += 1;
            at /= 2;
            at_order += 1;
        }
        self.free_blocks[usize::from(at_order)] -= 1;
        self.free_units -= 1 << order;
        self.flip_allocated(node);
        self.largest[node] = 0;
        self.mend_above(node, order);
    }

    /// Recomputes the bytes above a node of `order`, as far up as they change.
    fn mend_above(&mut self, mut node: usize, mut order: u8) {
        while node > 1 {
            node /= 2;
            order += 1;
            let byte = self.joined(node, order);
            if std::mem::replace(&mut self.largest[node], byte) == byte {
                break;
            }
        }
    }

    /// The byte of an inner node of `order`, from its children's.
    fn joined(&self, node: usize, order: u8) -> u8 {
        let (left, right) = (self.largest[2 * node], self.largest[2 * node + 1]);
        if left == order && right == order { order + 1 } else { left.max(right) }
    }

    fn block(&self, node: usize, order: u8) -> Block {
        let first = 1usize << (self.height - order);
        Block { index: ((node - first) << order) as u32, order }
    }

    fn node(&self, block: Block) -> Option<usize> {
        let aligned = block.order <= self.height && block.index.is_multiple_of(1 << block.order);
        (aligned && u64::from(block.index) + (1u64 << block.order) <= u64::from(self.units))
            .then(|| (1 << (self.height - block.order)) + (block.index >> block.order) as usize)
    }

    fn is_allocated(&self, node: usize) -> bool {
        self.allocated[node / 64] >> (node % 64) & 1 == 1
    }

    fn flip_allocated(&mut self, node: usize) {
        self.allocated[node / 64] ^= 1 << (node % 64);
    }

    /// The allocation that `unit` belongs to.
    fn owner(&self, unit: u32) -> Option<Block> {
        (0..=self.height).find_map(|order| {
            let index = unit >> order << order;
            let node = (1 << (self.height - order)) + (unit >> order) as usize;
            self.is_allocated(node).then_some(Block { index, order })
        })
    }

    /// Order of the largest free block that starts at the free unit `unit`.
    fn free_around(&self, unit: u32) -> u8 {
        let mut node = (1usize << self.height) + unit as usize;
        let mut order = 0;
        while node > 1 && node.is_multiple_of(2) && self.largest[node / 2] == order + 2 {
            node /= 2;
            order += 1;
        }
        order
    }

    fn why_not(&self, block: Block) -> FreeError {
        match self.owner(block.index) {
            Some(owner) if owner.order < block.order => FreeError::Split { block },
            Some(owner) => FreeError::Mismatch { block, owner },
            None if self.free_around(block.index) < block.order => FreeError::Split { block },
            None => FreeError::Free { block },
        }
    }
}
