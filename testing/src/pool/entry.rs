//! One allocation as the model sees it.

use std::ops::Range;

use springtide::pool::{Extent, Lease, Pin, Transfer};

use super::UNIT;

/// Who holds an allocation.
pub(super) enum Holder {
    Lease(Lease),
    Transfer(Transfer),
    /// A resident, with the pins on it; discarded or not.
    Pins(Vec<Pin>, bool),
    Quarantine,
}

pub(super) struct Entry {
    pub(super) holder: Holder,
    pub(super) extents: Vec<Extent>,
    pub(super) len: u64,
    /// What every byte of it holds.
    pub(super) fill: u8,
}

impl Entry {
    /// The bytes of its blocks: each extent rounded up to a power of two of units.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<u64>> {
        self.extents.iter().map(|extent| {
            let bytes = extent.len.div_ceil(UNIT).next_power_of_two() * UNIT;
            assert!(extent.offset.is_multiple_of(bytes), "{extent:?} is not aligned to its block");
            extent.offset..extent.offset + bytes
        })
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.blocks().map(|block| block.end - block.start).sum()
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(&self.holder, Holder::Pins(pins, false) if pins.is_empty())
    }
}

pub(super) fn is_lease(holder: &Holder) -> bool {
    matches!(holder, Holder::Lease(_))
}

pub(super) fn is_transfer(holder: &Holder) -> bool {
    matches!(holder, Holder::Transfer(_))
}

pub(super) fn is_pinned(holder: &Holder) -> bool {
    matches!(holder, Holder::Pins(pins, _) if !pins.is_empty())
}

/// Every byte that its holder can read is the one that was written.
pub(super) fn check_bytes(entry: &Entry) {
    let mut bytes = vec![0; entry.len as usize];
    match &entry.holder {
        Holder::Lease(lease) => lease.read_at(0, &mut bytes),
        Holder::Transfer(transfer) => transfer.read_at(0, &mut bytes),
        Holder::Pins(pins, _) => match pins.first() {
            Some(pin) => bytes = pin.segments().collect::<Vec<_>>().concat(),
            None => return,
        },
        Holder::Quarantine => return,
    }
    // Compared as a whole: byte by byte, in code that reports each comparison, this would take most of the time.
    if bytes != vec![entry.fill; bytes.len()] {
        let wrong = bytes.iter().enumerate().find(|(_, byte)| **byte != entry.fill);
        panic!(
            "{:#04x} was written, {wrong:?} is there: only its holder may change it",
            entry.fill
        );
    }
}
