//! Finding writes to memory that nobody should write: poison in free memory, guards behind used bytes.
//!
//! With debug assertions on (development, tests, simulation) every unit that is freed is filled with
//! [`POISON`], and is looked at when it is handed out again: a byte that changed was written through a lease
//! that had ended. Units that were never handed out must still hold the system's zeros. The first
//! [`GUARD_BYTES`] behind the used bytes of a block hold [`GUARD`] while the allocation lives: a byte that
//! changed was written by somebody who went past the end.
//!
//! Quarantined memory is not poisoned: a read by late I/O would send the poison to another node, and a late
//! write is what quarantine is there to absorb. It is poisoned when it is freed, and from then on a late
//! write is found.
//!
//! Findings are counted, logged and kept, never panicked over: a card's stray write is a fact to report.

use super::{
    buddy::Block,
    extents::Blocks,
    handle::{Extent, Extents, Handle},
    region::Region,
};

/// What freed memory holds.
pub const POISON: u8 = 0xDB;
/// What the bytes behind the used ones hold.
pub const GUARD: u8 = 0xFD;
/// Guard bytes of a block, where it has that much slack.
pub const GUARD_BYTES: u64 = 64;

/// Whether memory is poisoned and guarded in this build.
pub(super) const ENABLED: bool = cfg!(debug_assertions);

/// A byte that was written while nobody held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Free memory was written.
    #[error("free memory was written at byte {offset}: expected {expected:#04x}, got {found:#04x}")]
    Poison {
        /// Where, from the start of the region.
        offset: u64,
        /// The byte's value.
        found: u8,
        /// The value it was left with.
        expected: u8,
    },
    /// The slack of a block was written.
    #[error(
        "{handle} was written past its end, at byte {offset}: expected {GUARD:#04x}, got {found:#04x}"
    )]
    Guard {
        /// The allocation.
        handle: Handle,
        /// Where, from the start of the region.
        offset: u64,
        /// The byte's value.
        found: u8,
    },
}

/// Which units were poisoned; the others still hold zeros.
#[derive(Debug)]
pub(super) struct Poison {
    freed: Box<[bool]>,
}

impl Poison {
    pub(super) fn new(units: u32) -> Self {
        Self { freed: vec![false; if ENABLED { units as usize } else { 0 }].into_boxed_slice() }
    }

    /// Fills blocks that are about to be freed.
    pub(super) fn fill(&mut self, region: &Region, blocks: &[Block]) {
        if !ENABLED {
            return;
        }
        let unit = region.unit();
        for block in blocks {
            region.fill(unit * u64::from(block.index), unit * u64::from(block.units()), POISON);
            for index in block.range() {
                self.freed[index as usize] = true;
            }
        }
    }

    /// The first written byte of free blocks.
    pub(super) fn check(&self, region: &Region, blocks: &[Block]) -> Option<Violation> {
        if !ENABLED {
            return None;
        }
        let units = blocks.iter().flat_map(|block| block.range());
        units.map(|unit| self.check_unit(region, unit)).find(Option::is_some).flatten()
    }

    /// The first written byte of a free unit.
    pub(super) fn check_unit(&self, region: &Region, unit: u32) -> Option<Violation> {
        let expected = if self.freed[unit as usize] { POISON } else { 0 };
        let offset = region.unit() * u64::from(unit);
        let offset = region.first_other(offset, region.unit(), expected)?;
        Some(Violation::Poison { offset, found: region.byte(offset), expected })
    }
}

/// Writes the guards of a new allocation.
pub(super) fn set_guards(region: &Region, blocks: &Blocks, extents: &Extents) {
    if ENABLED {
        for guard in guards(region, blocks, extents) {
            region.fill(guard.offset, guard.len, GUARD);
        }
    }
}

/// The first guard byte of an allocation that was written.
pub(super) fn check_guards(
    region: &Region,
    handle: Handle,
    blocks: &Blocks,
    extents: &Extents,
) -> Option<Violation> {
    if !ENABLED {
        return None;
    }
    guards(region, blocks, extents).find_map(|guard| {
        let offset = region.first_other(guard.offset, guard.len, GUARD)?;
        Some(Violation::Guard { handle, offset, found: region.byte(offset) })
    })
}

/// The guarded part of each block's slack.
fn guards(region: &Region, blocks: &Blocks, extents: &Extents) -> impl Iterator<Item = Extent> {
    blocks.iter().zip(extents).map(|(block, extent)| {
        let slack = region.unit() * u64::from(block.units()) - extent.len;
        Extent { offset: extent.offset + extent.len, len: slack.min(GUARD_BYTES) }
    })
}
