//! How an upload's stage changes: each step by a method that leaves queues, timers and tickets in agreement.

use super::{SaveFailure, SaveOutcome, Saves, Stage, Time, UploadId};

impl Saves {
    pub(super) fn prepared(&mut self, id: UploadId) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        if upload.stage != (Stage::Preparing { copied: true, checked: true }) {
            return;
        }
        if upload.expired || upload.there {
            return self.over(id);
        }
        upload.stage = Stage::ReadyToPut;
        self.to_put.push_back(id);
    }

    pub(super) fn queue_probe(&mut self, id: UploadId) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        upload.stage = Stage::ReadyToProbe;
        self.to_probe.push_back(id);
    }

    /// Tries again later, or gives up when the attempts are used up or the deadline has passed.
    pub(super) fn pause(&mut self, id: UploadId, then_put: bool, now: Time) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        if upload.expired {
            return self.over(id);
        }
        if upload.attempts >= self.config.attempts_max {
            let failure = upload.last.unwrap_or(SaveFailure::NotVisible);
            return self.end(id, SaveOutcome::Failed(failure));
        }
        let until = now + upload.pause;
        upload.pause = (upload.pause * 2).min(self.config.retry_pause_max);
        upload.stage = Stage::Paused { until, then_put };
        self.timers.insert((until, id));
    }

    pub(super) fn fire_timers(&mut self, now: Time) {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            let Some(upload) = self.uploads.get(&id) else { continue };
            if upload.deadline <= now && !upload.expired {
                self.expire(id);
                continue;
            }
            self.expire_tickets(id, now);
            let Some(upload) = self.uploads.get_mut(&id) else { continue };
            if let Stage::Paused { until, then_put } = upload.stage
                && until <= now
            {
                if then_put {
                    upload.stage = Stage::ReadyToPut;
                    self.to_put.push_back(id);
                } else {
                    self.queue_probe(id);
                }
            }
        }
    }

    /// Tickets whose deadline has come while others still wait for the upload.
    fn expire_tickets(&mut self, id: UploadId, now: Time) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        let outcome = upload.last.map_or(SaveOutcome::TimedOut, SaveOutcome::Failed);
        let due = upload.tickets.partition_point(|(deadline, _)| *deadline <= now);
        let _within = upload.span.clone().entered();
        for (_, ticket) in upload.tickets.drain(..due) {
            self.tickets.resolve(ticket, outcome);
        }
    }

    /// The last ticket's deadline: all end; the memory comes home when the store is done with it.
    pub(super) fn expire(&mut self, id: UploadId) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        upload.expired = true;
        let outcome = upload.last.map_or(SaveOutcome::TimedOut, SaveOutcome::Failed);
        let idle =
            matches!(upload.stage, Stage::ReadyToPut | Stage::ReadyToProbe | Stage::Paused { .. });
        if idle {
            self.end(id, outcome);
        } else {
            self.leave(id);
            self.resolve(id, outcome);
        }
    }

    /// Ends the upload and its tickets.
    pub(super) fn end(&mut self, id: UploadId, outcome: SaveOutcome) {
        let had_open_tickets = self.resolve(id, outcome);
        if outcome == SaveOutcome::Stored && !had_open_tickets {
            self.tickets.counters.late += 1;
        }
        self.over(id);
    }

    pub(super) fn resolve(&mut self, id: UploadId, outcome: SaveOutcome) -> bool {
        let Some(upload) = self.uploads.get_mut(&id) else { return false };
        let tickets = std::mem::take(&mut upload.tickets);
        let _within = upload.span.clone().entered();
        let any_open = tickets.iter().any(|(_, ticket)| self.tickets.is_open(*ticket));
        for (deadline, ticket) in tickets {
            self.timers.remove(&(deadline, id));
            self.tickets.resolve(ticket, outcome);
        }
        any_open
    }

    pub(super) fn over(&mut self, id: UploadId) {
        self.leave(id);
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        if upload.stage != Stage::Over {
            if let Stage::Paused { until, .. } = upload.stage {
                self.timers.remove(&(until, id));
            }
            upload.stage = Stage::Over;
            self.to_release.push_back(id);
        }
    }

    /// Later saves of the key no longer join this upload.
    pub(super) fn leave(&mut self, id: UploadId) {
        let Some(upload) = self.uploads.get(&id) else { return };
        if self.by_key.get(&upload.key) == Some(&id) {
            self.by_key.remove(&upload.key);
        }
    }
}
