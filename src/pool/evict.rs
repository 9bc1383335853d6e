//! Making room: which residents go for an allocation to succeed, and only if it will.
//!
//! Victims are first taken out of the buddy tree and the eviction order, nothing else: that shows whether an
//! allocation would fit. Only then do their state words end; one that was pinned in the meantime is put back
//! and the search goes on. If everything evictable would not do, all of it is put back. All of this happens
//! under the pool's lock, so nobody else sees the tree in between.

use super::{
    Contiguity, Handle,
    core::{Core, Locked},
    eviction::{Search, Victim},
    extents,
    state::State,
};

impl Core {
    /// Evicts until an allocation would succeed. See `Pool::evict_until_fits`.
    pub(super) fn evict_until_fits(&self, len: u64, contiguity: Contiguity) -> Vec<Handle> {
        let mut victims = Vec::new();
        let slots = self.slots(contiguity);
        let Ok(units) = self.units_for(len, slots) else { return victims };
        let mut locked = self.lock();
        let mut search = Search::default();
        while units > 0 && self.check_quarantine(&locked).is_ok() {
            let selected = self.select(&mut locked, &mut search, units, slots);
            if selected.is_empty() {
                break;
            }
            for (victim, handle) in selected {
                victims.extend(self.evict(&mut locked, victim, handle).then_some(handle));
            }
        }
        victims
    }

    /// Takes victims out of the eviction order and the buddy tree until an allocation would succeed. None, and
    /// everything as it was, if it would already, or if all of them would not do.
    fn select(
        &self,
        locked: &mut Locked,
        search: &mut Search,
        units: u32,
        slots: usize,
    ) -> Vec<(Victim, Handle)> {
        let mut selected = Vec::new();
        while !extents::fits(locked.buddy.free_blocks(), units, slots) {
            let idle = |index: u32| {
                let word = self.table.state(index).load();
                word.state == State::Resident && word.pins == 0
            };
            let Some(victim) = locked.evictor.select(&self.log, search, idle) else {
                for (victim, _) in selected.into_iter().rev() {
                    self.restore(locked, victim);
                }
                return Vec::new();
            };
            for block in self.table.blocks(victim.index) {
                let freed = locked.buddy.free(block);
                assert!(freed.is_ok(), "a resident is not in the buddy tree: {freed:?}");
            }
            let generation = self.table.state(victim.index).load().generation;
            selected.push((victim, self.name(victim.index, generation)));
        }
        selected
    }

    /// Makes a selected victim's end final, or puts it back if it was pinned in the meantime.
    fn evict(&self, locked: &mut Locked, victim: Victim, handle: Handle) -> bool {
        match self.table.state(victim.index).evict(handle.generation()) {
            Ok(word) => {
                self.vacate(locked, handle, word, State::Resident);
                locked.evictor.evicted(victim);
                locked.ledger.counters().evictions += 1;
                true
            }
            Err(_) => {
                self.restore(locked, victim);
                false
            }
        }
    }

    fn restore(&self, locked: &mut Locked, victim: Victim) {
        for block in self.table.blocks(victim.index) {
            let taken = locked.buddy.allocate_at(block);
            assert!(taken, "the blocks of a selected victim are free: {block:?}");
        }
        locked.evictor.restore(&self.log, victim);
    }
}
