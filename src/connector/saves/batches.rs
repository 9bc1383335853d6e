//! How checks, probes and puts are put together: in order, within the limits of a batch and of what may be
//! in flight.

use super::{Key, Saves, Stage, UploadId};

#[derive(Clone, Copy)]
pub(super) enum Queue {
    Check,
    Probe,
}

impl Saves {
    pub(super) fn take_batch(&mut self, queue: Queue) -> Vec<(UploadId, Key)> {
        let (ids, from, to) = match queue {
            Queue::Check => (&mut self.to_check, None, None),
            Queue::Probe => (&mut self.to_probe, Some(Stage::ReadyToProbe), Some(Stage::Probing)),
        };
        let mut batch = Vec::new();
        while batch.len() < self.config.batch_items_max {
            let Some(id) = ids.pop_front() else { break };
            let Some(upload) = self.uploads.get_mut(&id) else { continue };
            if from.is_some_and(|stage| upload.stage != stage) {
                continue;
            }
            upload.stage = to.unwrap_or(upload.stage);
            batch.push((id, upload.key.clone()));
        }
        batch
    }

    /// The next batch of puts: in order, within the limits of a batch and of what may be in flight. A single
    /// item above a limit goes alone.
    pub(super) fn take_puts(&mut self) -> Vec<(UploadId, Key)> {
        let mut batch = Vec::new();
        let (mut bytes, mut fragments) = (0, 0);
        while let Some(id) = self.to_put.front().copied() {
            let Some(upload) = self.uploads.get_mut(&id).filter(|u| u.stage == Stage::ReadyToPut)
            else {
                self.to_put.pop_front();
                continue;
            };
            let fits_batch = batch.len() < self.config.batch_items_max
                && bytes + upload.bytes <= self.config.batch_bytes_max
                && fragments + upload.fragments <= self.fragments_per_batch;
            let fits_flight =
                self.in_flight_bytes + upload.bytes <= self.config.in_flight_bytes_max;
            if !(fits_batch || batch.is_empty()) || !(fits_flight || self.in_flight_bytes == 0) {
                break;
            }
            self.to_put.pop_front();
            bytes += upload.bytes;
            fragments += upload.fragments;
            self.in_flight_bytes += upload.bytes;
            self.tickets.counters.puts += 1;
            self.tickets.counters.put_bytes += upload.bytes;
            self.tickets.counters.retries += u64::from(upload.attempts > 0);
            upload.attempts += 1;
            upload.stage = Stage::Putting;
            batch.push((id, upload.key.clone()));
        }
        batch
    }
}
