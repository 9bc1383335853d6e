//! The beginning and the end of an allocation.
//!
//! The order of an ending is always the same: the state word (nobody can pin any more), the generation that
//! mappers see, the poison, the buddy tree (others can allocate).

use super::{
    config::{AllocError, Contiguity},
    core::{Core, Locked, must},
    extents::{self, Blocks},
    handle::Handle,
    lease::Allocation,
    poison,
    state::{State, Word},
};
use crate::sync::Arc;

impl Core {
    pub(super) fn allocate(
        self: &Arc<Self>,
        len: u64,
        contiguity: Contiguity,
    ) -> Result<Allocation, AllocError> {
        if len == 0 {
            return Err(AllocError::Empty);
        }
        let mut locked = self.lock();
        let slots = self.slots(contiguity);
        let taken = self.units_for(len, slots).and_then(|units| {
            self.check_quarantine(&locked)?;
            extents::allocate(&mut locked.buddy, units, slots)
                .ok_or_else(|| self.why_not(&locked, len, units))
        });
        match taken {
            Ok(blocks) => Ok(self.open(&mut locked, &blocks, len)),
            Err(error) => {
                let counters = locked.ledger.counters();
                match error {
                    AllocError::Empty => {}
                    AllocError::TooLarge { .. } => counters.too_large += 1,
                    AllocError::NoBytes { .. } => counters.no_bytes += 1,
                    AllocError::NoShape { .. } => counters.no_shape += 1,
                    AllocError::QuarantineFull { .. } => counters.quarantine_full += 1,
                }
                Err(error)
            }
        }
    }

    pub(super) fn slots(&self, contiguity: Contiguity) -> usize {
        match contiguity {
            Contiguity::Required => 1,
            Contiguity::Extents => self.max_extents,
        }
    }

    /// Units that `len` bytes need, if `slots` blocks of an empty pool can hold them.
    pub(super) fn units_for(&self, len: u64, slots: usize) -> Result<u32, AllocError> {
        let units = len.div_ceil(self.region.unit());
        let mut most = 0u32;
        for _ in 0..slots {
            most += (self.region.units() - most).checked_ilog2().map_or(0, |order| 1 << order);
        }
        if units > u64::from(most) {
            return Err(AllocError::TooLarge { len, max: u64::from(most) * self.region.unit() });
        }
        Ok(units as u32)
    }

    pub(super) fn check_quarantine(&self, locked: &Locked) -> Result<(), AllocError> {
        let (quarantined, max) = (locked.ledger.usage().quarantined, self.quarantine_max);
        if quarantined > max {
            return Err(AllocError::QuarantineFull { quarantined, max });
        }
        Ok(())
    }

    fn why_not(&self, locked: &Locked, len: u64, units: u32) -> AllocError {
        let unit = self.region.unit();
        let free = unit * u64::from(locked.buddy.free_units());
        if locked.buddy.free_units() < units {
            return AllocError::NoBytes { len, free };
        }
        let largest = locked.buddy.largest_free().map_or(0, |order| unit << order);
        AllocError::NoShape { len, free, largest }
    }

    /// Begins an allocation in blocks that were just taken.
    fn open(self: &Arc<Self>, locked: &mut Locked, blocks: &Blocks, len: u64) -> Allocation {
        let index = blocks[0].index;
        if let Some(violation) = locked.poison.check(&self.region, blocks) {
            locked.report(violation);
        }
        self.table.record(blocks, len);
        let word = must(self.table.state(index).reserve());
        let allocation = self.allocation(index, word.generation);
        poison::set_guards(&self.region, blocks, &allocation.extents);
        let bytes = self.block_bytes(index);
        locked.ledger.open(bytes, bytes - len);
        allocation
    }

    /// Ends an allocation whose state word is free already, as `word` says.
    pub(super) fn close(&self, locked: &mut Locked, handle: Handle, word: Word, from: State) {
        for block in self.vacate(locked, handle, word, from) {
            let freed = locked.buddy.free(block);
            assert!(freed.is_ok(), "{handle} held what the buddy tree did not hand out: {freed:?}");
        }
    }

    /// All of an ending but the buddy tree.
    pub(super) fn vacate(
        &self,
        locked: &mut Locked,
        handle: Handle,
        word: Word,
        from: State,
    ) -> Blocks {
        self.region.set_generation(handle.index(), word.generation);
        self.check_guards(locked, handle);
        let blocks = self.table.blocks(handle.index());
        locked.poison.fill(&self.region, &blocks);
        let bytes = self.block_bytes(handle.index());
        locked.ledger.close(from, bytes, bytes - self.table.len(handle.index()));
        blocks
    }
}
