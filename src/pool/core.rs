//! The shared heart of a pool: every transition of an allocation, and the lock they take.
//!
//! One mutex guards the buddy tree, the eviction order, the ledger and the poison map. Pinning and
//! unpinning do not take it; they race with the locked transitions on the state word alone.

use std::collections::BTreeSet;

use super::{
    buddy::{Block, Buddy},
    config::{PoolConfig, PoolError},
    eviction::{AccessLog, Evictor},
    handle::{Extents, Handle, StaleHandle, lay_out},
    lease::{Allocation, QuarantineCause},
    poison::{self, Poison, Violation},
    region::Region,
    region_file::FileOwner,
    state::{Discarded, State, Unpinned, Word},
    table::Table,
    usage::Ledger,
};
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError};

/// What all handles on one pool share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) region: Arc<Region>,
    pub(super) table: Table,
    pub(super) stale_handles: AtomicU64,
    pub(super) log: AccessLog,
    pub(super) max_extents: usize,
    pub(super) quarantine_max: u64,
    locked: Mutex<Locked>,
    owner: Option<FileOwner>,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) buddy: Buddy,
    pub(super) evictor: Evictor,
    pub(super) ledger: Ledger,
    pub(super) poison: Poison,
    /// First units of quarantined allocations.
    pub(super) quarantined: BTreeSet<u32>,
    /// The first write that nobody should have made.
    pub(super) violation: Option<Violation>,
}

impl Core {
    pub(super) fn new(
        config: &PoolConfig,
        region: Region,
        owner: Option<FileOwner>,
    ) -> Result<Self, PoolError> {
        let units = config.units()?;
        let locked = Locked {
            buddy: Buddy::new(units),
            evictor: Evictor::new(config.eviction, units),
            ledger: Ledger::new(region.len()),
            poison: Poison::new(units),
            quarantined: BTreeSet::new(),
            violation: None,
        };
        Ok(Self {
            region: Arc::new(region),
            table: Table::new(units),
            stale_handles: AtomicU64::new(0),
            log: AccessLog::new(config.eviction, units),
            max_extents: config.max_extents,
            quarantine_max: config.quarantine_max,
            locked: Mutex::new(locked),
            owner,
        })
    }

    /// The lock. A panic while it was held has been reported already; refusing the lock ever after would
    /// turn it into aborts in the destructors of leases.
    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn owner(&self) -> Option<&FileOwner> {
        self.owner.as_ref()
    }

    /// Takes one more pin, and says where the allocation lies.
    pub(super) fn pin(self: &Arc<Self>, handle: Handle) -> Result<Allocation, StaleHandle> {
        let state = self.table.get(handle.index()).ok_or_else(|| self.stale(handle, None))?;
        if let Err(refused) = state.pin(handle.generation()) {
            return Err(self.stale(handle, Some(refused.found)));
        }
        let allocation = self.allocation(handle.index(), handle.generation());
        if allocation.handle != handle {
            self.unpin(allocation.handle);
            return Err(self.stale(handle, None));
        }
        self.log.touch(handle.index());
        Ok(allocation)
    }

    pub(super) fn repin(&self, handle: Handle) {
        must(self.table.state(handle.index()).repin());
    }

    pub(super) fn unpin(&self, handle: Handle) {
        let state = self.table.state(handle.index());
        if must(state.unpin()) == Unpinned::Last {
            let mut locked = self.lock();
            let word = must(state.bury());
            self.close(&mut locked, handle, word, State::Condemned);
        }
    }

    pub(super) fn reclaim(self: &Arc<Self>, handle: Handle) -> Option<Allocation> {
        let mut locked = self.lock();
        let state = self.named(handle).ok()?;
        let word = match state.reclaim(handle.generation()) {
            Ok(word) => word,
            Err(refused) => {
                if !is_resident(refused.found, handle) {
                    self.stale(handle, Some(refused.found));
                }
                return None;
            }
        };
        let bytes = self.block_bytes(handle.index());
        locked.evictor.remove(handle.index());
        locked.ledger.counters().reclaimed += 1;
        locked.ledger.shift(State::Resident, State::Filling, bytes);
        self.region.set_generation(handle.index(), word.generation);
        Some(self.allocation(handle.index(), word.generation))
    }

    pub(super) fn discard(&self, handle: Handle) -> Result<(), StaleHandle> {
        let mut locked = self.lock();
        let state = self.named(handle)?;
        let end = state
            .discard(handle.generation())
            .map_err(|refused| self.stale(handle, Some(refused.found)))?;
        locked.evictor.remove(handle.index());
        locked.ledger.counters().discarded += 1;
        if end == Discarded::Freed {
            let word = state.load();
            self.close(&mut locked, handle, word, State::Resident);
        }
        Ok(())
    }

    /// Ends a lease.
    pub(super) fn release(&self, handle: Handle) {
        let mut locked = self.lock();
        let word = must(self.table.state(handle.index()).release());
        self.close(&mut locked, handle, word, State::Filling);
    }

    pub(super) fn lend(&self, handle: Handle) {
        let mut locked = self.lock();
        must(self.table.state(handle.index()).lend());
        self.shift(&mut locked, handle, State::Filling, State::InFlight);
    }

    pub(super) fn take_back(&self, handle: Handle) {
        let mut locked = self.lock();
        must(self.table.state(handle.index()).take_back());
        self.check_guards(&mut locked, handle);
        self.shift(&mut locked, handle, State::InFlight, State::Filling);
    }

    pub(super) fn quarantine(&self, handle: Handle, cause: QuarantineCause) {
        let mut locked = self.lock();
        must(self.table.state(handle.index()).quarantine());
        self.shift(&mut locked, handle, State::InFlight, State::Quarantined);
        locked.quarantined.insert(handle.index());
        let counters = locked.ledger.counters();
        match cause {
            QuarantineCause::Abandoned => counters.quarantined_abandoned += 1,
            QuarantineCause::Uncertain => counters.quarantined_uncertain += 1,
            QuarantineCause::TimedOut => counters.quarantined_timed_out += 1,
        }
    }

    pub(super) fn publish(&self, handle: Handle, tag: u64) {
        let mut locked = self.lock();
        self.check_guards(&mut locked, handle);
        let units = (self.block_bytes(handle.index()) / self.region.unit()) as u32;
        locked.evictor.insert(&self.log, handle.index(), units, tag);
        must(self.table.state(handle.index()).publish());
        self.shift(&mut locked, handle, State::Filling, State::Resident);
        locked.ledger.counters().published += 1;
    }

    /// Frees the quarantined allocations that `which` accepts; the bytes freed.
    pub(super) fn release_quarantined(&self, which: impl Fn(Handle) -> bool) -> u64 {
        let mut locked = self.lock();
        let mut freed = 0;
        for index in locked.quarantined.clone() {
            let state = self.table.state(index);
            let handle = self.name(index, state.load().generation);
            if which(handle) {
                freed += self.block_bytes(index);
                locked.quarantined.remove(&index);
                let word = must(state.absolve());
                self.close(&mut locked, handle, word, State::Quarantined);
            }
        }
        freed
    }

    /// Counts a stale handle.
    pub(super) fn stale(&self, handle: Handle, found: Option<Word>) -> StaleHandle {
        self.stale_handles.fetch_add(1, Ordering::Relaxed);
        StaleHandle { handle, found: found.map(|word| word.generation) }
    }

    /// Bytes of the blocks of the allocation that begins at `index`.
    pub(super) fn block_bytes(&self, index: u32) -> u64 {
        let units: u64 =
            self.table.blocks(index).iter().map(|block| u64::from(block.units())).sum();
        units * self.region.unit()
    }

    /// Name of the allocation that begins at `index`.
    pub(super) fn name(&self, index: u32, generation: u32) -> Handle {
        Handle::new(Block { index, order: self.table.order(index) }, generation)
    }

    /// Where the allocation that begins at `index` lies.
    pub(super) fn extents(&self, index: u32) -> Extents {
        lay_out(&self.table.blocks(index), self.table.len(index), self.region.unit())
    }

    pub(super) fn allocation(self: &Arc<Self>, index: u32, generation: u32) -> Allocation {
        Allocation {
            core: self.clone(),
            handle: self.name(index, generation),
            len: self.table.len(index),
            extents: self.extents(index),
        }
    }

    /// The state word that `handle` names, whatever its generation.
    fn named(&self, handle: Handle) -> Result<&super::state::StateWord, StaleHandle> {
        let state = self.table.get(handle.index()).ok_or_else(|| self.stale(handle, None))?;
        let word = state.load();
        if word.generation == handle.generation()
            && self.table.order(handle.index()) != handle.order()
        {
            return Err(self.stale(handle, None));
        }
        Ok(state)
    }

    fn shift(&self, locked: &mut Locked, handle: Handle, from: State, to: State) {
        locked.ledger.shift(from, to, self.block_bytes(handle.index()));
    }

    /// Reports a write past the end, once: the guards are set again.
    pub(super) fn check_guards(&self, locked: &mut Locked, handle: Handle) {
        let (blocks, extents) = (self.table.blocks(handle.index()), self.extents(handle.index()));
        if let Some(violation) = poison::check_guards(&self.region, handle, &blocks, &extents) {
            locked.report(violation);
            poison::set_guards(&self.region, &blocks, &extents);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.region.set_retired();
    }
}

impl Locked {
    /// Keeps, counts and logs a write that nobody should have made.
    pub(super) fn report(&mut self, violation: Violation) {
        tracing::error!(%violation, "pool memory was written by somebody who does not hold it");
        match violation {
            Violation::Poison { .. } => self.ledger.counters().poison_violations += 1,
            Violation::Guard { .. } => self.ledger.counters().guard_violations += 1,
        }
        self.violation.get_or_insert(violation);
    }
}

fn is_resident(word: Word, handle: Handle) -> bool {
    word.state == State::Resident && word.generation == handle.generation()
}

/// A transition that the guard types make legal. A refusal means that the pool's own state is broken, and
/// going on would hand out memory twice.
pub(super) fn must<T>(result: Result<T, super::state::Refused>) -> T {
    result.unwrap_or_else(|refused| panic!("the pool's state is broken: {refused}"))
}
