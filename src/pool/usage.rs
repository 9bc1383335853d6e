//! Accounting: where the bytes of the region are, and what happened so far.
//!
//! A double-entry ledger under the pool's lock: bytes only ever move from one account to another, so the
//! accounts always add up to the region. [`Ledger::check`] asserts it after every move, in release builds
//! too; `Pool::verify` compares the accounts with the allocations themselves.

use serde::{Deserialize, Serialize};

use super::state::State;

/// Bytes by what they are used for, and counters since the pool began. Bytes are whole blocks; what an
/// allocation leaves unused of its last block is in [`Usage::waste`] as well.
///
/// `free + filling + in_flight + resident + quarantined == total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of the region.
    pub total: u64,
    /// Bytes of nobody.
    pub free: u64,
    /// Bytes of leases: reserved, being filled or validated.
    pub filling: u64,
    /// Bytes lent to stores and devices.
    pub in_flight: u64,
    /// Bytes of residents, pinned, discarded while pinned, or idle.
    pub resident: u64,
    /// Bytes of residents that are pinned; part of `resident`.
    pub pinned: u64,
    /// Bytes whose I/O may still run.
    pub quarantined: u64,
    /// Bytes of blocks beyond what was asked for.
    pub waste: u64,
    /// Bytes of the largest free block.
    pub largest_free: u64,
    /// Allocations that exist, in any state.
    pub allocations: u64,
    /// The most bytes that were not free.
    pub peak_used: u64,
    /// The most bytes that were lent.
    pub peak_in_flight: u64,
    /// The most bytes that were resident.
    pub peak_resident: u64,
    /// The most bytes that were quarantined.
    pub peak_quarantined: u64,
    /// What happened since the pool began.
    pub counters: Counters,
}

/// What happened since a pool began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Allocations that succeeded.
    pub allocated: u64,
    /// Allocations that ended.
    pub freed: u64,
    /// Allocations refused for [`AllocError::NoBytes`](super::AllocError::NoBytes).
    pub no_bytes: u64,
    /// Allocations refused for [`AllocError::NoShape`](super::AllocError::NoShape).
    pub no_shape: u64,
    /// Allocations refused for [`AllocError::TooLarge`](super::AllocError::TooLarge).
    pub too_large: u64,
    /// Allocations refused for [`AllocError::QuarantineFull`](super::AllocError::QuarantineFull).
    pub quarantine_full: u64,
    /// Residents published.
    pub published: u64,
    /// Residents evicted.
    pub evictions: u64,
    /// Residents taken back by `reclaim`.
    pub reclaimed: u64,
    /// Residents discarded.
    pub discarded: u64,
    /// Handles refused as stale.
    pub stale_handles: u64,
    /// Transfers dropped without an end.
    pub quarantined_abandoned: u64,
    /// Transfers whose store could not say whether they ended.
    pub quarantined_uncertain: u64,
    /// Transfers given up at a deadline.
    pub quarantined_timed_out: u64,
    /// Allocations found written while they were free.
    pub poison_violations: u64,
    /// Blocks found written beyond their used bytes.
    pub guard_violations: u64,
}

/// The accounts. See the module's text.
#[derive(Debug)]
pub(super) struct Ledger {
    usage: Usage,
}

impl Ledger {
    pub(super) fn new(total: u64) -> Self {
        Self { usage: Usage { total, free: total, ..Usage::default() } }
    }

    /// Everything but `pinned` and `largest_free`, which others know.
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(super) fn counters(&mut self) -> &mut Counters {
        &mut self.usage.counters
    }

    /// A new allocation: `bytes` of blocks, `waste` of them unused.
    pub(super) fn open(&mut self, bytes: u64, waste: u64) {
        self.usage.allocations += 1;
        self.usage.waste += waste;
        self.usage.counters.allocated += 1;
        self.shift(State::Free, State::Filling, bytes);
    }

    /// The end of an allocation that was in state `from`.
    pub(super) fn close(&mut self, from: State, bytes: u64, waste: u64) {
        self.usage.allocations -= 1;
        self.usage.waste -= waste;
        self.usage.counters.freed += 1;
        self.shift(from, State::Free, bytes);
    }

    /// An allocation went from one state to another.
    pub(super) fn shift(&mut self, from: State, to: State, bytes: u64) {
        let account = self.account(from);
        *account = account.checked_sub(bytes).expect("an account of the pool went below zero");
        *self.account(to) += bytes;
        let usage = &mut self.usage;
        usage.peak_used = usage.peak_used.max(usage.total - usage.free);
        usage.peak_in_flight = usage.peak_in_flight.max(usage.in_flight);
        usage.peak_resident = usage.peak_resident.max(usage.resident);
        usage.peak_quarantined = usage.peak_quarantined.max(usage.quarantined);
        self.check();
    }

    fn account(&mut self, state: State) -> &mut u64 {
        match state {
            State::Free => &mut self.usage.free,
            State::Filling => &mut self.usage.filling,
            State::InFlight => &mut self.usage.in_flight,
            State::Resident | State::Condemned => &mut self.usage.resident,
            State::Quarantined => &mut self.usage.quarantined,
        }
    }

    fn check(&self) {
        let Usage { total, free, filling, in_flight, resident, quarantined, .. } = self.usage;
        let sum = free + filling + in_flight + resident + quarantined;
        assert!(sum == total, "the pool's accounts add up to {sum}, expected {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_between_accounts_and_peaks_stay() {
        let mut ledger = Ledger::new(100);
        ledger.open(40, 3);
        ledger.shift(State::Filling, State::InFlight, 40);
        ledger.shift(State::InFlight, State::Resident, 40);
        ledger.open(10, 0);
        ledger.close(State::Resident, 40, 3);
        let usage = ledger.usage();
        assert_eq!((usage.free, usage.filling, usage.resident, usage.waste), (90, 10, 0, 0));
        assert_eq!((usage.peak_used, usage.peak_in_flight, usage.peak_resident), (50, 40, 40));
        assert_eq!((usage.allocations, usage.counters.freed), (1, 1));
    }

    #[test]
    #[should_panic(expected = "below zero")]
    fn an_account_cannot_be_overdrawn() {
        let mut ledger = Ledger::new(100);
        ledger.open(40, 0);
        ledger.shift(State::InFlight, State::Filling, 40);
    }
}
