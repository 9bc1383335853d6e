//! What the pool knows of each allocation, readable without its lock.
//!
//! A row per unit; the rows of first units are in use. The chain of blocks and the length are written by
//! whoever allocates, before the state word leaves *free*, and are fixed until it is free again; a reader
//! who has a lease, a transfer or a pin therefore reads what was written, the state word's acquire and
//! release ordering see to that. Plain atomics, no memory allocated after construction.

use super::{buddy::Block, extents::Blocks, state::StateWord};
use crate::sync::{AtomicU64, Ordering};

/// End of a chain of blocks.
const LAST: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Row {
    state: StateWord,
    /// Bytes asked for; first units only.
    len: AtomicU64,
    /// First unit of the next block and this block's order.
    link: AtomicU64,
}

/// A row per unit. See the module's text.
#[derive(Debug)]
pub(super) struct Table(Box<[Row]>);

impl Table {
    pub(super) fn new(units: u32) -> Self {
        Self((0..units).map(|_| Row::default()).collect())
    }

    /// The state word of the allocation that begins at `index`.
    pub(super) fn state(&self, index: u32) -> &StateWord {
        &self.0[index as usize].state
    }

    /// The state word that `index` would have, if there is such a unit.
    pub(super) fn get(&self, index: u32) -> Option<&StateWord> {
        self.0.get(index as usize).map(|row| &row.state)
    }

    /// Writes down a new allocation; its state word is still free.
    pub(super) fn record(&self, blocks: &Blocks, len: u64) {
        self.0[blocks[0].index as usize].len.store(len, Ordering::Relaxed);
        for (at, block) in blocks.iter().enumerate() {
            let next = blocks.get(at + 1).map_or(LAST, |next| next.index);
            let link = u64::from(next) << 8 | u64::from(block.order);
            self.0[block.index as usize].link.store(link, Ordering::Relaxed);
        }
    }

    /// Bytes asked for by the allocation that begins at `index`.
    pub(super) fn len(&self, index: u32) -> u64 {
        self.0[index as usize].len.load(Ordering::Relaxed)
    }

    /// The blocks of the allocation that begins at `index`.
    pub(super) fn blocks(&self, index: u32) -> Blocks {
        let mut blocks = Blocks::new();
        let mut at = index;
        while at != LAST {
            let link = self.0[at as usize].link.load(Ordering::Relaxed);
            blocks.push(Block { index: at, order: link as u8 });
            at = (link >> 8) as u32;
        }
        blocks
    }

    /// Order of the first block of the allocation that begins at `index`.
    pub(super) fn order(&self, index: u32) -> u8 {
        self.0[index as usize].link.load(Ordering::Relaxed) as u8
    }
}
