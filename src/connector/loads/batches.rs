//! How lookups and gets are put together: in order, within the limits of a batch and of what may be in
//! flight, and only for keys that somebody still waits for.

use super::{Key, Loads, State, Step, Time};

impl Loads {
    pub(super) fn take_lookups(&mut self, now: Time) -> Vec<Key> {
        let mut batch = Vec::new();
        while batch.len() < self.config.batch_items_max {
            let Some(key) = self.to_lookup.pop_front() else { break };
            if self.begin(&key, State::Ready(Step::Lookup), State::Asking, now) {
                batch.push(key);
            }
        }
        batch
    }

    /// The next batch of gets: in order, within the limits of a batch and of what may be in flight. A single
    /// item above a limit goes alone.
    pub(super) fn take_fetches(&mut self, now: Time) -> Vec<(Key, u64)> {
        let items_max = self
            .config
            .batch_items_max
            .min(self.fragments_per_batch / self.fragments_per_item.max(1))
            .max(1);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(key) = self.to_fetch.front().cloned() {
            let len = self.entries.get(&key).map_or(0, |entry| entry.len);
            let fits_batch = batch.is_empty()
                || batch.len() < items_max && bytes + len <= self.config.batch_bytes_max;
            let fits_flight = self.in_flight_bytes == 0
                || self.in_flight_bytes + len <= self.config.in_flight_bytes_max;
            if !fits_batch || !fits_flight {
                break;
            }
            self.to_fetch.pop_front();
            if self.begin(&key, State::Ready(Step::Fetch), State::Fetching, now) {
                bytes += len;
                self.in_flight_bytes += len;
                self.counters.gets += 1;
                self.counters.get_bytes += len;
                batch.push((key, len));
            }
        }
        batch
    }
}
