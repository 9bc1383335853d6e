//! What can become of a save.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{
    connector::loads::within,
    durations::Durations,
    env::{ErrorCode, Key},
};

/// One call of `save`. Tickets are counted per attempt, not per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Ticket(pub(super) u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// How a ticket ended. Every ticket ends once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SaveOutcome {
    /// Put by us, and readable.
    Stored,
    /// Readable without our doing.
    AlreadyThere,
    /// Not tried.
    Dropped(DropReason),
    /// Tried and given up.
    Failed(SaveFailure),
    /// The deadline of the wait or of the save came first. It may still become readable.
    TimedOut,
}

impl SaveOutcome {
    /// Whether the item was readable when the ticket ended.
    pub fn is_readable(self) -> bool {
        matches!(self, Self::Stored | Self::AlreadyThere)
    }
}

impl fmt::Display for SaveOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored => f.write_str("stored"),
            Self::AlreadyThere => f.write_str("already there"),
            Self::Dropped(reason) => write!(f, "dropped({})", reason.name()),
            Self::Failed(failure) => write!(f, "failed({failure})"),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

/// Why a save was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// No room in the pool, and nothing in it may be evicted.
    PoolFull,
    /// Larger than the pool or than the store takes.
    TooLarge,
    /// A tensor without elements: there is nothing to share.
    Empty,
    /// Too many saves are open.
    QueueFull,
    /// The connector is shutting down.
    Closed,
    /// A type or shape other than the namespace's.
    WrongSpec,
}

impl DropReason {
    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::PoolFull => "pool_full",
            Self::TooLarge => "too_large",
            Self::Empty => "empty",
            Self::QueueFull => "queue_full",
            Self::Closed => "closed",
            Self::WrongSpec => "wrong_spec",
        }
    }
}

/// Why a save was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SaveFailure {
    /// The copy from the device failed.
    Copy,
    /// The store refused, or kept refusing until the deadline.
    Store(ErrorCode),
    /// The store ended the call without knowing whether the transfer has ended; the memory is quarantined.
    Uncertain(ErrorCode),
    /// Puts succeeded, but the item did not become readable: somebody else is writing it, or has died while
    /// writing it.
    NotVisible,
}

impl fmt::Display for SaveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy => f.write_str("copy"),
            Self::Store(code) => write!(f, "{code}"),
            Self::Uncertain(code) => write!(f, "uncertain {code}"),
            Self::NotVisible => f.write_str("not visible"),
        }
    }
}

/// One line of a [`SaveReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveEntry {
    /// The ticket.
    pub ticket: Ticket,
    /// What was saved.
    pub key: Key,
    /// How it ended.
    pub outcome: SaveOutcome,
}

/// What `wait_for_save` returns: every ticket opened before the call that no earlier report has listed, in
/// the order of the tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveReport {
    /// One entry a ticket.
    pub entries: Vec<SaveEntry>,
}

impl SaveReport {
    /// Whether every item is readable.
    pub fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| entry.outcome.is_readable())
    }

    /// Number of entries that are not readable.
    pub fn missing(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.outcome.is_readable()).count()
    }
}

impl fmt::Display for SaveReport {
    /// `3 stored, 1 timed out`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = BTreeMap::new();
        for entry in &self.entries {
            *counts.entry(entry.outcome).or_insert(0) += 1;
        }
        let parts: Vec<String> =
            counts.iter().map(|(o, n): (_, &u32)| format!("{n} {o}")).collect();
        f.write_str(if parts.is_empty() { "nothing to wait for" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// Counts of everything that saving did. They add up: see [`SaveCounters::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SaveCounters {
    /// Tickets opened.
    pub opened: u64,
    /// Tickets not ended yet.
    pub open: u64,
    /// Tickets that ended stored.
    pub stored: u64,
    /// Tickets that ended already there.
    pub already_there: u64,
    /// Tickets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Tickets failed, by cause.
    pub failed: BTreeMap<String, u64>,
    /// Tickets timed out.
    pub timed_out: u64,
    /// Tickets that joined an upload already under way.
    pub joined: u64,
    /// Uploads that reused a resident without a copy from the device.
    pub reused: u64,
    /// Items handed to the store.
    pub puts: u64,
    /// Bytes handed to the store.
    pub put_bytes: u64,
    /// Puts after the first of an upload.
    pub retries: u64,
    /// Items asked for after a put.
    pub probes: u64,
    /// Probes that found a successful put not readable.
    pub invisible: u64,
    /// Uploads that became readable after their tickets had timed out.
    pub late: u64,
    /// Uploads whose memory went into quarantine.
    pub uncertain: u64,
    /// Store calls that outlived the I/O timeout; the store still holds their memory.
    pub lost: u64,
    /// Entries forgotten because nobody waited for them.
    pub unreported: u64,
}

/// How long the stages of saves took. They agree with the counters: see [`SaveTimes::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SaveTimes {
    /// Copies from the device, with what they waited for.
    pub copy: Durations,
    /// Items that waited for a put: for their lookup, for their turn, for the end of a pause.
    pub queue: Durations,
    /// Puts, an item each.
    pub put: Durations,
    /// Questions after a put, an item each.
    pub probe: Durations,
    /// Uploads, from their save to their end.
    pub save: Durations,
}

impl SaveTimes {
    /// Whether the numbers of stages agree with the counters, once no store call and no upload is under way.
    ///
    /// # Errors
    /// The stage that does not, in words.
    pub fn check(&self, counters: &SaveCounters) -> Result<(), String> {
        let dropped: u64 = counters.dropped.values().sum();
        let uploads = counters.opened - dropped - counters.joined;
        for (stage, durations, expected) in [
            ("copy", &self.copy, uploads - counters.reused),
            ("queue", &self.queue, counters.puts),
            ("put", &self.put, counters.puts),
            ("probe", &self.probe, counters.probes),
            ("save", &self.save, uploads),
        ] {
            if durations.count() != expected {
                let count = durations.count();
                return Err(format!("stage {stage} was timed {count} times, expected {expected}"));
            }
        }
        Ok(())
    }
}

impl SaveCounters {
    /// Whether the counts add up, and none is larger than what it is a part of.
    ///
    /// # Errors
    /// The sum that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let dropped: u64 = self.dropped.values().sum();
        let failed: u64 = self.failed.values().sum();
        let ended = self.stored + self.already_there + dropped + failed + self.timed_out;
        if self.opened != ended + self.open {
            return Err(format!(
                "saves opened {} != stored {} + already there {} + dropped {dropped} + failed \
                 {failed} + timed out {} + open {}",
                self.opened, self.stored, self.already_there, self.timed_out, self.open
            ));
        }
        within(&[
            (
                "joined + reused",
                self.joined + self.reused,
                "opened - dropped",
                self.opened - dropped,
            ),
            ("retries", self.retries, "puts", self.puts),
            ("puts without an end", self.uncertain + self.lost, "puts", self.puts),
            ("invisible", self.invisible, "probes", self.probes),
            ("late", self.late, "probes", self.probes),
            ("unreported", self.unreported, "ended", ended),
        ])
    }

    pub(super) fn count(&mut self, outcome: SaveOutcome) {
        match outcome {
            SaveOutcome::Stored => self.stored += 1,
            SaveOutcome::AlreadyThere => self.already_there += 1,
            SaveOutcome::Dropped(reason) => {
                *self.dropped.entry(reason.name().to_owned()).or_default() += 1;
            }
            SaveOutcome::Failed(failure) => {
                *self.failed.entry(failure.to_string()).or_default() += 1;
            }
            SaveOutcome::TimedOut => self.timed_out += 1,
        }
    }
}
