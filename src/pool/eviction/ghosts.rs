//! What S3-FIFO remembers of residents that went too early.

use std::collections::{BTreeMap, VecDeque};

/// Tags evicted from the small queue, as many as would fill the main queue.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// Number of the tag's latest eviction.
    latest: BTreeMap<u64, u64>,
    /// Evictions, oldest first: number, tag, units. Those whose tag was taken or evicted again are void.
    queue: VecDeque<(u64, u64, u32)>,
    units: u64,
    units_max: u64,
    evictions: u64,
}

impl Ghosts {
    pub(super) fn new(units_max: u64) -> Self {
        let (latest, queue) = (BTreeMap::new(), VecDeque::new());
        Self { latest, queue, units: 0, units_max, evictions: 0 }
    }

    pub(super) fn add(&mut self, tag: u64, units: u32) {
        self.evictions += 1;
        self.latest.insert(tag, self.evictions);
        self.queue.push_back((self.evictions, tag, units));
        self.units += u64::from(units);
        while self.units > self.units_max {
            let Some((number, tag, units)) = self.queue.pop_front() else { break };
            self.units -= u64::from(units);
            if self.latest.get(&tag) == Some(&number) {
                self.latest.remove(&tag);
            }
        }
    }

    pub(super) fn take(&mut self, tag: u64) -> bool {
        self.latest.remove(&tag).is_some()
    }
}
