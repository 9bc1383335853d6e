//! What readers write when they use a resident: one word per unit, no lock.

use super::EvictionPolicy;
use crate::sync::{AtomicU64, Ordering};

/// Where S3-FIFO stops counting accesses.
const HITS_MAX: u64 = 3;

/// Accesses to residents, recorded without a lock.
#[derive(Debug)]
pub struct AccessLog {
    policy: EvictionPolicy,
    /// Per first unit: time of the last access (LRU) or number of accesses (S3-FIFO).
    marks: Box<[AtomicU64]>,
    /// Accesses so far: the time of LRU.
    now: AtomicU64,
}

impl AccessLog {
    /// A log for residents in `units` units.
    pub fn new(policy: EvictionPolicy, units: u32) -> Self {
        let marks = (0..units).map(|_| AtomicU64::new(0)).collect();
        Self { policy, marks, now: AtomicU64::new(0) }
    }

    /// The resident at `index` was used.
    pub fn touch(&self, index: u32) {
        let mark = &self.marks[index as usize];
        match self.policy {
            EvictionPolicy::Fifo => {}
            EvictionPolicy::Lru => self.stamp(mark),
            EvictionPolicy::S3Fifo => {
                // Two accesses at once may count as one: a lost count only makes a resident look colder.
                let hits = mark.load(Ordering::Relaxed);
                mark.store((hits + 1).min(HITS_MAX), Ordering::Relaxed);
            }
        }
    }

    /// The resident at `index` is new.
    pub(super) fn begin(&self, index: u32) {
        let mark = &self.marks[index as usize];
        match self.policy {
            EvictionPolicy::Fifo | EvictionPolicy::S3Fifo => mark.store(0, Ordering::Relaxed),
            EvictionPolicy::Lru => self.stamp(mark),
        }
    }

    fn stamp(&self, mark: &AtomicU64) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        mark.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn get(&self, index: u32) -> u64 {
        self.marks[index as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, index: u32, mark: u64) {
        self.marks[index as usize].store(mark, Ordering::Relaxed);
    }
}
