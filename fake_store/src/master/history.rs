//! Why objects came and went.
//!
//! A durability oracle must tell a lost object from one that the store was allowed to lose. The master
//! writes down each end of an object with its cause; whoever judges a run drains the list. Bounded: past the
//! limit the oldest events are dropped and counted.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use springtide::env::{ErrorCode, Time};

use crate::protocol::{ClientId, Code, SegmentId};

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the master's clock.
    pub at: Time,
    /// To which object.
    pub key: String,
    /// What.
    pub kind: EventKind,
}

/// What can happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A put or upsert ended: readable from now on.
    Stored {
        /// By whom.
        client: ClientId,
        /// Its length.
        bytes: u64,
        /// Its copies.
        replicas: usize,
    },
    /// An upsert began to overwrite it: unreadable until it ends.
    Overwriting {
        /// By whom.
        client: ClientId,
    },
    /// Evicted to make room. Never under a lease.
    Evicted {
        /// How long ago its lease (or, unread, its put) had ended, in nanoseconds.
        idle_nanos: u64,
        /// Whether it was soft-pinned and went in the second pass.
        soft_pinned: bool,
    },
    /// Removed by a client.
    Removed {
        /// By whom.
        client: ClientId,
        /// With which call.
        how: RemovedBy,
        /// Whether a lease protected it: then the call was forced.
        leased: bool,
    },
    /// One of its copies went with a segment, others are left.
    ReplicaLost {
        /// The segment.
        segment: SegmentId,
        /// How the segment ended.
        end: SegmentEnd,
    },
    /// Its last copy went with a segment.
    SegmentLost {
        /// The segment.
        segment: SegmentId,
        /// How the segment ended.
        end: SegmentEnd,
    },
    /// An unfinished put was set aside: another put or upsert of the key began, its space is held back.
    SetAside {
        /// Who began it.
        by: ClientId,
    },
    /// An unfinished put grew older than the release time and was dropped.
    Expired,
    /// Its writer gave the put or upsert up.
    Revoked {
        /// The writer.
        client: ClientId,
    },
    /// An upsert to another size found no room: the old object is gone, there is no new one.
    UpsertLost {
        /// By whom.
        client: ClientId,
        /// What the upsert was told.
        code: Code,
    },
    /// The master lost all metadata.
    Restarted,
}

impl EventKind {
    /// Whether the object cannot be read after this event.
    pub fn is_loss(&self) -> bool {
        !matches!(self, Self::Stored { .. } | Self::ReplicaLost { .. })
    }

    /// The loss by a failed upsert.
    pub(super) fn upsert_lost(client: ClientId, code: ErrorCode) -> Self {
        Self::UpsertLost { client, code: Code(code) }
    }
}

/// The call that removed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovedBy {
    /// By its key.
    Key,
    /// By a pattern.
    Regex,
    /// With everything.
    All,
}

/// How a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentEnd {
    /// Its owner took it back.
    Unmounted,
    /// Its owner did not ping for the client's time to live.
    ClientExpired,
}

/// The events since the last drain.
#[derive(Clone, Debug)]
pub(super) struct History {
    events: VecDeque<Event>,
    events_max: usize,
    dropped: u64,
}

impl History {
    pub(super) fn new(events_max: usize) -> Self {
        Self { events: VecDeque::new(), events_max, dropped: 0 }
    }

    pub(super) fn push(&mut self, at: Time, key: &str, kind: EventKind) {
        if self.events_max == 0 {
            self.dropped += 1;
            return;
        }
        if self.events.len() == self.events_max {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(Event { at, key: key.to_owned(), kind });
    }

    pub(super) fn drain(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_counted() {
        let mut history = History::new(2);
        for key in ["a", "b", "c"] {
            history.push(Time::ZERO, key, EventKind::Expired);
        }
        assert_eq!(history.dropped(), 1);
        let keys: Vec<String> = history.drain().into_iter().map(|event| event.key).collect();
        assert_eq!(keys, ["b", "c"]);
        assert_eq!(history.drain(), []);
    }
}
