//! Space within one segment: Mooncake's offset allocator, as far as it can be seen from outside.
//!
//! Requests are rounded **up** to bins, eight to each power of two, and free regions are filed **down** by
//! the same bins, so the first region of the first bin that is large enough fits without a search. Freed
//! neighbours are merged at once. Segments larger than 3.75 GiB are counted in a coarser quantum, because
//! the original counts in 32 bits.
//!
//! ```text
//! bins:  … 1.0  1.125  1.25  1.375  1.5  1.625  1.75  1.875 │ 2.0  2.25  2.5 …   MiB
//! want 1 MiB + 1:        ↑ rounded up to 1.125 MiB; any region filed at 1.125 MiB or more will do
//! ```
//!
//! Offsets are real: two allocations that are live never overlap, and a late write to a freed one lands in
//! whatever was put there next.

use std::{cmp::Reverse, collections::BTreeMap};

/// More units than this cannot be counted by the original.
const UNITS_MAX: u64 = 15 << 28;

/// A live piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Live {
    /// Bytes taken from the segment.
    bytes: u64,
    /// Bytes asked for, which is what the watermark counts.
    requested: u64,
}

#[derive(Clone, Copy, Debug)]
struct Free {
    bytes: u64,
    /// When it was filed; the newest of a bin is used first.
    stamp: u64,
}

/// The allocator of one segment.
#[derive(Clone, Debug)]
pub(crate) struct OffsetAllocator {
    bytes: u64,
    quantum: u64,
    rounding: bool,
    live: BTreeMap<u64, Live>,
    free: BTreeMap<u64, Free>,
    /// (floor of the length in bins, newest first) to offset.
    bins: BTreeMap<(u64, Reverse<u64>), u64>,
    stamp: u64,
    requested: u64,
}

impl OffsetAllocator {
    /// An empty segment of `bytes`; without `rounding` it is an exact first fit by address.
    pub(crate) fn new(bytes: u64, rounding: bool) -> Self {
        let mut quantum = 1;
        while rounding && bytes / quantum > UNITS_MAX {
            quantum *= 2;
        }
        let mut this = Self {
            bytes,
            quantum,
            rounding,
            live: BTreeMap::new(),
            free: BTreeMap::new(),
            bins: BTreeMap::new(),
            stamp: 0,
            requested: 0,
        };
        this.file(0, bytes / quantum * quantum);
        this
    }

    /// Bytes asked for by what is live.
    pub(crate) fn requested(&self) -> u64 {
        self.requested
    }

    /// Length of the segment.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `requested` bytes; the offset, or nothing if no region is large enough.
    pub(crate) fn allocate(&mut self, requested: u64) -> Option<u64> {
        let want = self.rounded(requested)?;
        let offset = if self.rounding {
            *self.bins.range((want, Reverse(u64::MAX))..).next()?.1
        } else {
            *self.free.iter().find(|(_, free)| free.bytes >= want)?.0
        };
        let free = self.unfile(offset);
        debug_assert!(free.bytes >= want, "a bin holds a region smaller than its floor");
        self.file(offset + want, free.bytes - want);
        self.live.insert(offset, Live { bytes: want, requested });
        self.requested += requested;
        Some(offset)
    }

    /// Gives an allocation back and merges it with its free neighbours.
    ///
    /// # Panics
    /// If nothing is live at `offset`: the master would have freed something twice.
    pub(crate) fn free(&mut self, offset: u64) {
        let live = self.live.remove(&offset).expect("freed space was allocated");
        self.requested -= live.requested;
        let (mut start, mut bytes) = (offset, live.bytes);
        if let Some((&before, free)) = self.free.range(..offset).next_back()
            && before + free.bytes == offset
        {
            bytes += self.unfile(before).bytes;
            start = before;
        }
        if self.free.contains_key(&(start + bytes)) {
            bytes += self.unfile(start + bytes).bytes;
        }
        self.file(start, bytes);
    }

    /// Checks that live and free regions tile the segment and that the accounts add up.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let mut regions: Vec<(u64, u64)> =
            self.live.iter().map(|(offset, live)| (*offset, live.bytes)).collect();
        regions.extend(self.free.iter().map(|(offset, free)| (*offset, free.bytes)));
        regions.sort_unstable();
        let mut end = 0;
        for (offset, bytes) in regions {
            if offset != end {
                return Err(format!("expected a region at {end}, got one at {offset}"));
            }
            end += bytes;
        }
        if end != self.bytes / self.quantum * self.quantum {
            return Err(format!("regions end at {end}, the segment at {}", self.bytes));
        }
        let requested: u64 = self.live.values().map(|live| live.requested).sum();
        if requested != self.requested {
            return Err(format!("{requested} bytes are live, {} are counted", self.requested));
        }
        Ok(())
    }

    fn rounded(&self, requested: u64) -> Option<u64> {
        let units = requested.div_ceil(self.quantum);
        let units = if self.rounding { bin_ceil(units)? } else { units };
        units.checked_mul(self.quantum)
    }

    fn file(&mut self, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.stamp += 1;
        self.free.insert(offset, Free { bytes, stamp: self.stamp });
        self.bins.insert((self.bin(bytes), Reverse(self.stamp)), offset);
    }

    fn unfile(&mut self, offset: u64) -> Free {
        let free = self.free.remove(&offset).expect("a filed region");
        self.bins.remove(&(self.bin(free.bytes), Reverse(free.stamp)));
        free
    }

    fn bin(&self, bytes: u64) -> u64 {
        bin_floor(bytes / self.quantum) * self.quantum
    }
}

/// The distance between bins at `units`: an eighth of the power of two below.
fn bin_step(units: u64) -> u64 {
    1 << units.checked_ilog2().unwrap_or(0).saturating_sub(3)
}

fn bin_ceil(units: u64) -> Option<u64> {
    units.checked_next_multiple_of(bin_step(units))
}

fn bin_floor(units: u64) -> u64 {
    units - units % bin_step(units)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn fit(bytes: u64) -> usize {
        let mut allocator = OffsetAllocator::new(64 * MIB, true);
        std::iter::from_fn(|| allocator.allocate(bytes)).count()
    }

    /// Measured on a 64 MiB segment of the real store.
    #[test]
    fn as_many_fit_as_in_the_real_store() {
        let measured = [
            (MIB, 64),
            (MIB + 1, 56),
            (MIB / 8 * 9, 56),
            (MIB / 8 * 9 + 1, 51),
            (3 * MIB + 5, 19),
            (1_000_000, 64),
            (64 << 10, 1024),
            ((64 << 10) + 1, 910),
        ];
        for (bytes, count) in measured {
            assert_eq!(fit(bytes), count, "{bytes} bytes");
        }
    }

    #[test]
    fn without_rounding_every_byte_is_used() {
        let mut allocator = OffsetAllocator::new(64 * MIB, false);
        let count = std::iter::from_fn(|| allocator.allocate(MIB + 1)).count();
        assert_eq!(count, 63);
        assert_eq!(allocator.allocate(MIB - 63), Some(63 * (MIB + 1)));
        assert_eq!(allocator.allocate(1), None);
    }

    #[test]
    fn small_sizes_have_bins_of_their_own() {
        for units in 1..16 {
            assert_eq!(bin_ceil(units), Some(units));
        }
        assert_eq!(bin_ceil(17), Some(18));
        assert_eq!(bin_floor(17), 16);
        assert_eq!(bin_ceil(u64::MAX), None);
    }

    #[test]
    fn large_segments_are_counted_in_a_coarser_quantum() {
        let mut allocator = OffsetAllocator::new(16 << 30, true);
        assert_eq!(allocator.quantum, 8);
        assert_eq!(allocator.allocate(1), Some(0));
        assert_eq!(allocator.allocate(1), Some(8));
        assert_eq!(allocator.requested(), 2);
        assert_eq!(OffsetAllocator::new(15 << 28, true).quantum, 1);
    }

    #[test]
    fn larger_than_the_segment_never_fits() {
        assert_eq!(OffsetAllocator::new(MIB, true).allocate(MIB + 1), None);
        assert_eq!(OffsetAllocator::new(MIB, true).allocate(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn regions_tile_the_segment_and_merge_to_one(
            steps in proptest::collection::vec((any::<bool>(), 1u64..200_000, any::<prop::sample::Index>()), 1..200),
            rounding: bool,
        ) {
            let mut allocator = OffsetAllocator::new(4 * MIB, rounding);
            let mut live: Vec<u64> = Vec::new();
            for (put, bytes, pick) in steps {
                if put {
                    live.extend(allocator.allocate(bytes));
                } else if !live.is_empty() {
                    allocator.free(live.swap_remove(pick.index(live.len())));
                }
                prop_assert_eq!(allocator.verify(), Ok(()));
            }
            for offset in live {
                allocator.free(offset);
            }
            prop_assert_eq!(allocator.verify(), Ok(()));
            prop_assert_eq!(allocator.free.len(), 1);
            prop_assert_eq!(allocator.requested(), 0);
        }
    }
}
