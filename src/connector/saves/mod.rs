//! What becomes of a save, decided without I/O.
//!
//! An *upload* carries one item to the store; one or more tickets wait for it. Events and the time go in,
//! [`Action`]s come out of [`Saves::next_action`]; nothing here reads a clock or awaits anything.
//!
//! ```text
//!            copied ─┐                     ┌──────── pause ◀───────┐
//!   open ──▶ preparing ─▶ ready to put ──▶ putting ─▶ probing ─────┤ not readable, or a code that
//!            checked ┘                                    │        │ may be retried
//!               └ exists: already there                   └ exists: stored
//! ```
//!
//! *Commit = the put succeeded **and** `exists` says so*: a put over a key that somebody else is writing
//! succeeds without storing. An upload whose deadline passes while the store still works on it goes on
//! until the store gives its memory back, without tickets; it is never waited for.

mod batches;
mod outcome;
mod tickets;
mod transitions;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    time::Duration,
};

use tracing::Span;

pub use self::outcome::{
    DropReason, SaveCounters, SaveEntry, SaveFailure, SaveOutcome, SaveReport, SaveTimes, Ticket,
};
pub(super) use self::tickets::WaitId;
use self::{batches::Queue, tickets::Tickets};
use super::config::SaveConfig;
use crate::{
    env::{ErrorCode, Key, Retry, StoreError, Time},
    log::{answer, step, way},
};

/// One item on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UploadId(u64);

/// What the shell is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask whether these exist before they are put; answer with [`Saves::checked`].
    Check(Vec<(UploadId, Key)>),
    /// Put these in one batch; answer with [`Saves::put_ended`].
    Put(Vec<(UploadId, Key)>),
    /// Ask whether these exist after they were put; answer with [`Saves::probed`].
    Probe(Vec<(UploadId, Key)>),
    /// Over: what memory it still has may become a resident.
    Release(UploadId, Key),
}

/// How one item's put ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutEnd {
    /// The store reports success; the memory is back.
    Done,
    /// The store reports failure; the memory is back.
    Failed(StoreError),
    /// The memory may still be read; it is quarantined.
    Uncertain(StoreError),
    /// The call outlived the I/O timeout; the store holds the memory.
    Lost,
}

impl fmt::Display for PutEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Failed(error) => write!(f, "failed, {error}"),
            Self::Uncertain(error) => write!(f, "uncertain, {error}"),
            Self::Lost => f.write_str("lost"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preparing { copied: bool, checked: bool },
    ReadyToPut,
    Putting,
    ReadyToProbe,
    Probing,
    Paused { until: Time, then_put: bool },
    Over,
}

struct Upload {
    key: Key,
    bytes: u64,
    fragments: usize,
    /// Who waits for it, each until its own deadline, in the order of their opening.
    tickets: Vec<(Time, Ticket)>,
    /// The last of the tickets' deadlines.
    deadline: Time,
    stage: Stage,
    attempts: u32,
    pause: Duration,
    last: Option<SaveFailure>,
    /// Found in the store before it was put.
    there: bool,
    expired: bool,
    span: Span,
}

/// All saves of one worker.
pub(super) struct Saves {
    config: SaveConfig,
    fragments_per_batch: usize,
    tickets: Tickets,
    next: u64,
    uploads: BTreeMap<UploadId, Upload>,
    /// The upload that a further save of the key joins.
    by_key: BTreeMap<Key, UploadId>,
    to_check: VecDeque<UploadId>,
    to_put: VecDeque<UploadId>,
    to_probe: VecDeque<UploadId>,
    to_release: VecDeque<UploadId>,
    /// When uploads want attention: ends of pauses, and deadlines.
    timers: BTreeSet<(Time, UploadId)>,
    in_flight_bytes: u64,
    closed: bool,
}

impl Saves {
    pub(super) fn new(config: SaveConfig, fragments_per_batch: usize) -> Self {
        Self {
            config,
            fragments_per_batch,
            tickets: Tickets::default(),
            next: 0,
            uploads: BTreeMap::new(),
            by_key: BTreeMap::new(),
            to_check: VecDeque::new(),
            to_put: VecDeque::new(),
            to_probe: VecDeque::new(),
            to_release: VecDeque::new(),
            timers: BTreeSet::new(),
            in_flight_bytes: 0,
            closed: false,
        }
    }

    // -- queries ---------------------------------------------------------------------------------------

    pub(super) fn counters(&self) -> SaveCounters {
        self.tickets.counters.clone()
    }

    /// Uploads that are not over.
    pub(super) fn open_uploads(&self) -> usize {
        self.uploads.len()
    }

    /// Bytes in running puts.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Why a save of `key` cannot begin now, whatever its tensor.
    pub(super) fn refusal(&self) -> Option<DropReason> {
        if self.closed {
            Some(DropReason::Closed)
        } else if self.uploads.len() >= self.config.queue_items_max {
            Some(DropReason::QueueFull)
        } else {
            None
        }
    }

    /// When [`Saves::next_action`] may have something to say without a further event.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    // -- calls -----------------------------------------------------------------------------------------

    /// Joins a save of `key` that is under way, if there is one. The ticket has the time that every save has,
    /// however old the upload is; one of another length is another item under the same name, and dropped.
    pub(super) fn join(&mut self, key: &Key, bytes: u64, now: Time) -> Option<Ticket> {
        if self.closed {
            return None;
        }
        let id = *self.by_key.get(key)?;
        let upload = self.uploads.get_mut(&id)?;
        if upload.bytes != bytes {
            return Some(self.refuse(key.clone(), DropReason::WrongSpec));
        }
        let ticket = self.tickets.open(key.clone());
        step!(upload.span => key, %ticket, "joined");
        upload.deadline = now + self.config.deadline;
        upload.tickets.push((upload.deadline, ticket));
        self.timers.insert((upload.deadline, id));
        self.tickets.counters.joined += 1;
        Some(ticket)
    }

    /// Opens a ticket that ends at once.
    pub(super) fn refuse(&mut self, key: Key, reason: DropReason) -> Ticket {
        let ticket = self.tickets.open(key);
        self.tickets.resolve(ticket, SaveOutcome::Dropped(reason));
        ticket
    }

    /// Begins the upload of an item whose memory is allocated. `copied` if its bytes are there already.
    pub(super) fn open(
        &mut self,
        key: Key,
        bytes: u64,
        fragments: usize,
        copied: bool,
        now: Time,
    ) -> (Ticket, UploadId) {
        let id = UploadId(self.next);
        self.next += 1;
        let ticket = self.tickets.open(key.clone());
        let span = way!("save", &key, bytes);
        step!(span => &key, %ticket, bytes, from_pool = copied, "queued");
        let deadline = now + self.config.deadline;
        self.by_key.insert(key.clone(), id);
        self.uploads.insert(
            id,
            Upload {
                key,
                bytes,
                fragments,
                tickets: vec![(deadline, ticket)],
                deadline,
                stage: Stage::Preparing { copied, checked: false },
                attempts: 0,
                pause: self.config.retry_pause,
                last: None,
                there: false,
                expired: false,
                span,
            },
        );
        self.timers.insert((deadline, id));
        self.to_check.push_back(id);
        self.tickets.counters.reused += u64::from(copied);
        (ticket, id)
    }

    pub(super) fn begin_wait(&mut self, deadline: Time) -> WaitId {
        self.tickets.begin_wait(deadline)
    }

    pub(super) fn poll_wait(&mut self, id: WaitId, now: Time) -> Option<SaveReport> {
        self.tickets.poll_wait(id, now)
    }

    pub(super) fn abandon_wait(&mut self, id: WaitId) {
        self.tickets.abandon_wait(id);
    }

    /// Refuses further saves.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Nobody will carry out another action: ends all tickets, and the uploads that nothing works on.
    pub(super) fn stop(&mut self) {
        self.close();
        for id in self.uploads.keys().copied().collect::<Vec<_>>() {
            self.expire(id);
        }
    }

    // -- events ----------------------------------------------------------------------------------------

    /// The copy from the device ended.
    pub(super) fn copied(&mut self, id: UploadId, ok: bool) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        step!(upload.span => &upload.key, ok, "copied");
        if !ok {
            return self.end(id, SaveOutcome::Failed(SaveFailure::Copy));
        }
        if let Stage::Preparing { copied, .. } = &mut upload.stage {
            *copied = true;
        }
        self.prepared(id);
    }

    /// The answer to [`Action::Check`]. A store that cannot say is asked again after the put.
    pub(super) fn checked(&mut self, id: UploadId, exists: Result<bool, StoreError>) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        if let Stage::Preparing { checked, .. } = &mut upload.stage {
            *checked = true;
        }
        step!(upload.span => &upload.key, found = %answer(&exists), "looked up");
        if exists == Ok(true) {
            upload.there = true;
            self.leave(id);
            self.resolve(id, SaveOutcome::AlreadyThere);
        }
        self.prepared(id);
    }

    /// The end of one item of [`Action::Put`].
    pub(super) fn put_ended(&mut self, id: UploadId, end: PutEnd, now: Time) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        if upload.stage != Stage::Putting {
            return;
        }
        self.in_flight_bytes -= upload.bytes;
        step!(upload.span => &upload.key, attempt = upload.attempts, %end, "put");
        let counters = &mut self.tickets.counters;
        match end {
            PutEnd::Done => self.queue_probe(id),
            PutEnd::Failed(error) if error.code == ErrorCode::ObjectAlreadyExists => {
                self.queue_probe(id);
            }
            PutEnd::Failed(error) => {
                upload.last = Some(SaveFailure::Store(error.code));
                match error.retry() {
                    Retry::Never => {
                        self.end(id, SaveOutcome::Failed(SaveFailure::Store(error.code)))
                    }
                    Retry::AfterPause => self.pause(id, true, now),
                    Retry::AfterProbe => self.queue_probe(id),
                }
            }
            PutEnd::Uncertain(error) => {
                counters.uncertain += 1;
                self.end(id, SaveOutcome::Failed(SaveFailure::Uncertain(error.code)));
            }
            PutEnd::Lost => {
                counters.lost += 1;
                self.end(id, SaveOutcome::TimedOut);
            }
        }
    }

    /// The answer to [`Action::Probe`].
    pub(super) fn probed(&mut self, id: UploadId, exists: Result<bool, StoreError>, now: Time) {
        let Some(upload) = self.uploads.get_mut(&id) else { return };
        if upload.stage != Stage::Probing {
            return;
        }
        step!(upload.span => &upload.key, found = %answer(&exists), "probed");
        match exists {
            Ok(true) => self.end(id, SaveOutcome::Stored),
            Ok(false) => {
                self.tickets.counters.invisible += 1;
                upload.last.get_or_insert(SaveFailure::NotVisible);
                // Put again: over a live writer it does nothing, after a dead one's discard it stores.
                self.pause(id, true, now);
            }
            Err(error) => {
                upload.last = Some(SaveFailure::Store(error.code));
                self.pause(id, false, now);
            }
        }
    }

    /// The next thing to do at `now`, if there is one. Called until it says `None`.
    pub(super) fn next_action(&mut self, now: Time) -> Option<Action> {
        self.fire_timers(now);
        if let Some(id) = self.to_release.pop_front() {
            let upload = self.uploads.remove(&id)?;
            return Some(Action::Release(id, upload.key));
        }
        let checks = self.take_batch(Queue::Check);
        if !checks.is_empty() {
            return Some(Action::Check(checks));
        }
        let probes = self.take_batch(Queue::Probe);
        if !probes.is_empty() {
            self.tickets.counters.probes += probes.len() as u64;
            return Some(Action::Probe(probes));
        }
        let puts = self.take_puts();
        (!puts.is_empty()).then_some(Action::Put(puts))
    }
}

#[cfg(test)]
mod props;
#[cfg(test)]
mod tests;
