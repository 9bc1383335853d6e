//! Proof on demand that a pool's parts agree: tree, allocations, accounts, generations, memory.
//!
//! Everything is recomputed from the allocated bits of the buddy tree and compared with what the other parts
//! say. Takes time in proportion to the units; the simulator calls it at events, production on demand.

use std::collections::BTreeMap;

use super::{
    buddy::{Block, TreeCorruption},
    core::{Core, Locked},
    handle::Handle,
    poison::{self, Violation},
    state::State,
    usage::Usage,
};

/// What is wrong with a pool. Any of these is a bug, here or in whatever wrote memory that it did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// The buddy tree contradicts its allocated bits.
    #[error(transparent)]
    Tree(#[from] TreeCorruption),
    /// A block is allocated and belongs to no allocation, or the other way round, or to two.
    #[error("unit {}, order {}: {owners} allocations own it, allocated in the tree: {allocated}",
        block.index, block.order)]
    Ownership {
        /// The block.
        block: Block,
        /// Allocations that name it.
        owners: u32,
        /// Whether the tree has it as allocated.
        allocated: bool,
    },
    /// An account of the ledger differs from the allocations.
    #[error("account {account} holds {found}, expected {expected}")]
    Account {
        /// The account, a field of [`Usage`].
        account: &'static str,
        /// Its value.
        found: u64,
        /// The sum over the allocations.
        expected: u64,
    },
    /// An allocation is listed where its state does not belong, or missing where it does.
    #[error("{handle} is {state:?}, in the {list}: {listed}")]
    Listing {
        /// The allocation.
        handle: Handle,
        /// Its state.
        state: State,
        /// The list: eviction order or quarantine.
        list: &'static str,
        /// Whether it is in the list.
        listed: bool,
    },
    /// Mappers see another generation than the owner.
    #[error("{handle} has generation {published} in the shared control area")]
    Generation {
        /// The allocation, with the owner's generation.
        handle: Handle,
        /// What mappers see.
        published: u32,
    },
    /// Memory was written by somebody who did not hold it.
    #[error(transparent)]
    Memory(#[from] Violation),
}

/// Compares everything with everything. See `Pool::verify`.
pub(super) fn verify(core: &Core) -> Result<(), Corruption> {
    let locked = core.lock();
    locked.buddy.verify()?;
    let heads = ownership(core, &locked)?;
    accounts(core, &locked, &heads)?;
    for (index, state) in &heads {
        allocation(core, &locked, *index, *state)?;
    }
    locked.violation.map_or(Ok(()), |violation| Err(violation.into()))
}

/// Looks at every byte of free memory. See `Pool::scrub`.
pub(super) fn scrub(core: &Core) -> Result<(), Corruption> {
    let mut locked = core.lock();
    if poison::ENABLED {
        core.region.touch();
    }
    let mut at = 0;
    let mut violation = None;
    let Locked { buddy, poison, .. } = &*locked;
    let mut look = |free: std::ops::Range<u32>| {
        if poison::ENABLED && violation.is_none() {
            violation = free.filter_map(|unit| poison.check_unit(&core.region, unit)).next();
        }
    };
    buddy.for_each_allocated(|block| {
        look(at..block.index);
        at = block.range().end;
    });
    look(at..buddy.units());
    if let Some(violation) = violation {
        locked.report(violation);
    }
    locked.violation.map_or(Ok(()), |violation| Err(violation.into()))
}

/// Bytes of pinned residents now.
pub(super) fn pinned_bytes(core: &Core, locked: &Locked) -> u64 {
    let mut pinned = 0;
    locked.buddy.for_each_allocated(|block| {
        if core.table.state(block.index).load().pins > 0 {
            pinned += core.block_bytes(block.index);
        }
    });
    pinned
}

/// Each allocated block belongs to exactly one allocation; the allocations with their states.
fn ownership(core: &Core, locked: &Locked) -> Result<Vec<(u32, State)>, Corruption> {
    let mut blocks: BTreeMap<Block, (u32, bool)> = BTreeMap::new();
    let mut heads = Vec::new();
    locked.buddy.for_each_allocated(|block| {
        blocks.entry(block).or_default().1 = true;
        let state = core.table.state(block.index).load().state;
        if state != State::Free {
            heads.push((block.index, state));
        }
    });
    for block in heads.iter().flat_map(|(index, _)| core.table.blocks(*index)) {
        blocks.entry(block).or_default().0 += 1;
    }
    match blocks.into_iter().find(|(_, found)| *found != (1, true)) {
        Some((block, (owners, allocated))) => {
            Err(Corruption::Ownership { block, owners, allocated })
        }
        None => Ok(heads),
    }
}

/// The ledger says what the allocations say.
fn accounts(core: &Core, locked: &Locked, heads: &[(u32, State)]) -> Result<(), Corruption> {
    let ledger = locked.ledger.usage();
    let bytes = |states: &[State]| {
        let ours = heads.iter().filter(|(_, state)| states.contains(state));
        ours.map(|(index, _)| core.block_bytes(*index)).sum::<u64>()
    };
    let waste = heads.iter().map(|(index, _)| core.block_bytes(*index) - core.table.len(*index));
    let Usage { free, filling, in_flight, resident, quarantined, .. } = *ledger;
    let free_bytes = u64::from(locked.buddy.free_units()) * core.region.unit();
    for (account, found, expected) in [
        ("free", free, free_bytes),
        ("filling", filling, bytes(&[State::Filling])),
        ("in_flight", in_flight, bytes(&[State::InFlight])),
        ("resident", resident, bytes(&[State::Resident, State::Condemned])),
        ("quarantined", quarantined, bytes(&[State::Quarantined])),
        ("waste", ledger.waste, waste.sum()),
        ("allocations", ledger.allocations, heads.len() as u64),
    ] {
        if found != expected {
            return Err(Corruption::Account { account, found, expected });
        }
    }
    Ok(())
}

/// One allocation is listed where it belongs, has one generation, and kept to its bounds.
fn allocation(core: &Core, locked: &Locked, index: u32, state: State) -> Result<(), Corruption> {
    let handle = core.name(index, core.table.state(index).load().generation);
    for (list, listed, belongs) in [
        ("eviction order", locked.evictor.contains(index), state == State::Resident),
        ("quarantine", locked.quarantined.contains(&index), state == State::Quarantined),
    ] {
        if listed != belongs {
            return Err(Corruption::Listing { handle, state, list, listed });
        }
    }
    let published = core.region.generation(index);
    if published != handle.generation() {
        return Err(Corruption::Generation { handle, published });
    }
    let (blocks, extents) = (core.table.blocks(index), core.extents(index));
    let violation = poison::check_guards(&core.region, handle, &blocks, &extents);
    violation.map_or(Ok(()), |violation| Err(violation.into()))
}
