//! Rare states that a campaign should have been in.
//!
//! A campaign that never evicted while a load waited has not tested that. Every mark names one such state; a
//! run counts how often it was there, and the report lists the marks that no run reached.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use springtide::connector::{LoadCounters, SaveCounters};

use crate::event::{Event, Place, RequestEnd, SaveEnd, TransferEnd};

/// Every mark.
pub const MARKS: &[&str] = &[
    SAVE_ALREADY_THERE,
    SAVE_DROPPED,
    SAVE_FAILED,
    SAVE_TIMED_OUT,
    SAVE_JOINED,
    SAVE_REUSED,
    SAVE_RETRIED,
    SAVE_INVISIBLE,
    SAVE_LATE,
    WAIT_AT_DEADLINE,
    TRANSFER_UNCERTAIN,
    TRANSFER_OUTLIVED_WAIT,
    POOL_EVICTED,
    POOL_QUARANTINED,
    LOAD_WAITED,
    LOAD_RESIDENT,
    LOAD_RETRIED,
    LOAD_REJECTED,
    LOAD_REMOVED_BAD,
    MISS_ABSENT,
    MISS_NOT_READY,
    MISS_VANISHED,
    MISS_POOL_FULL,
    MISS_DEADLINE,
    MISS_STORE,
    EVICTED_WHILE_LOAD_WAITED,
    STORE_EVICTED,
    STORE_RESTARTED,
    STORE_SEGMENT_LOST,
    ABORTED_WHILE_WAITING,
    DIED_IN_TRANSFER,
    PAUSED_IN_TRANSFER,
    CLOSED_WITH_OPEN_SAVES,
];

const SAVE_ALREADY_THERE: &str = "a save was already there";
const SAVE_DROPPED: &str = "a save was dropped";
const SAVE_FAILED: &str = "a save failed";
const SAVE_TIMED_OUT: &str = "a save timed out";
const SAVE_JOINED: &str = "a save joined another of its key";
const SAVE_REUSED: &str = "a save reused the pool's bytes";
const SAVE_RETRIED: &str = "a put was repeated";
const SAVE_INVISIBLE: &str = "a put succeeded and stored nothing";
const SAVE_LATE: &str = "an upload ended after its tickets";
const WAIT_AT_DEADLINE: &str = "a wait ran into its deadline";
const TRANSFER_UNCERTAIN: &str = "a transfer ended uncertainly";
const TRANSFER_OUTLIVED_WAIT: &str = "a put outlived the wait for it";
const POOL_EVICTED: &str = "a pool evicted a resident";
const POOL_QUARANTINED: &str = "a pool had memory in quarantine";
const LOAD_WAITED: &str = "a request waited for its items";
const LOAD_RESIDENT: &str = "a resident served a request";
const LOAD_RETRIED: &str = "a lookup or get was repeated";
const LOAD_REJECTED: &str = "a fetched object was rejected";
const LOAD_REMOVED_BAD: &str = "a bad object was removed";
const MISS_ABSENT: &str = "a miss: absent";
const MISS_NOT_READY: &str = "a miss: not ready";
const MISS_VANISHED: &str = "a miss: vanished between lookup and load";
const MISS_POOL_FULL: &str = "a miss: pool full";
const MISS_DEADLINE: &str = "a miss: deadline";
const MISS_STORE: &str = "a miss: store error";
const EVICTED_WHILE_LOAD_WAITED: &str = "the store lost an object while a request waited";
const STORE_EVICTED: &str = "the store evicted an object";
const STORE_RESTARTED: &str = "the store lost all metadata";
const STORE_SEGMENT_LOST: &str = "the store lost a segment";
const ABORTED_WHILE_WAITING: &str = "a request was aborted while it waited";
const DIED_IN_TRANSFER: &str = "a host died with transfers running";
const PAUSED_IN_TRANSFER: &str = "a host stood still with transfers running";
const CLOSED_WITH_OPEN_SAVES: &str = "a connector was closed with transfers running";

/// The marks that were reached, with how often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reach {
    counts: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    state: State,
}

/// What the marks depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    running: BTreeMap<String, u32>,
    waiting: BTreeSet<u32>,
}

impl Reach {
    /// How often a mark was reached.
    pub fn count(&self, mark: &str) -> u64 {
        self.counts.get(mark).copied().unwrap_or(0)
    }

    /// The marks that were never reached.
    pub fn missing(&self) -> Vec<&'static str> {
        MARKS.iter().copied().filter(|mark| !self.counts.contains_key(mark)).collect()
    }

    /// Adds another run's marks.
    pub fn add(&mut self, other: &Self) {
        for (mark, count) in &other.counts {
            *self.counts.entry(mark).or_default() += count;
        }
    }

    /// Takes an event.
    pub fn observe(&mut self, place: Place<'_>, event: &Event) {
        match event {
            Event::SaveEnded { end, .. } => self.saved(end),
            Event::WaitEnded { deadline } if place.time >= *deadline => {
                self.mark(WAIT_AT_DEADLINE);
                self.mark_if(self.transfers(place.host) > 0, TRANSFER_OUTLIVED_WAIT);
            }
            Event::TransferBegan { .. } => {
                *self.state.running.entry(place.host.to_owned()).or_default() += 1;
            }
            Event::TransferEnded { end, .. } => {
                let running = self.state.running.entry(place.host.to_owned()).or_default();
                *running = running.saturating_sub(1);
                self.mark_if(matches!(end, TransferEnd::Uncertain(_)), TRANSFER_UNCERTAIN);
            }
            Event::Waiting { request } => {
                self.state.waiting.insert(*request);
                self.mark(LOAD_WAITED);
            }
            Event::Hit { request, .. } => {
                self.state.waiting.remove(request);
            }
            Event::Miss { request, reason, .. } => {
                self.state.waiting.remove(request);
                self.missed(reason);
            }
            Event::RequestEnded { request, end } => {
                let waited = self.state.waiting.remove(request);
                self.mark_if(waited && *end == RequestEnd::Aborted, ABORTED_WHILE_WAITING);
            }
            Event::Lost { cause, .. } => self.lost(cause),
            Event::PoolSeen { usage, .. } | Event::AtRest { usage, .. } => {
                self.mark_if(usage.counters.evictions > 0, POOL_EVICTED);
                self.mark_if(usage.quarantined > 0, POOL_QUARANTINED);
            }
            Event::Killed => {
                self.mark_if(self.transfers(place.host) > 0, DIED_IN_TRANSFER);
                self.state.running.remove(place.host);
            }
            Event::Paused(true) => {
                self.mark_if(self.transfers(place.host) > 0, PAUSED_IN_TRANSFER);
            }
            Event::CloseBegan { .. } => {
                self.mark_if(self.transfers(place.host) > 0, CLOSED_WITH_OPEN_SAVES);
            }
            _ => {}
        }
    }

    /// Looks at an instance's final counters.
    pub fn counters(&mut self, saves: &SaveCounters, loads: &LoadCounters) {
        self.mark_if(saves.joined > 0, SAVE_JOINED);
        self.mark_if(saves.reused > 0, SAVE_REUSED);
        self.mark_if(saves.retries > 0, SAVE_RETRIED);
        self.mark_if(saves.invisible > 0, SAVE_INVISIBLE);
        self.mark_if(saves.late > 0, SAVE_LATE);
        self.mark_if(loads.resident_hits > 0, LOAD_RESIDENT);
        self.mark_if(loads.retries > 0, LOAD_RETRIED);
        self.mark_if(!loads.rejected.is_empty(), LOAD_REJECTED);
        self.mark_if(loads.removed > 0, LOAD_REMOVED_BAD);
    }

    fn saved(&mut self, end: &SaveEnd) {
        match end {
            SaveEnd::Stored => {}
            SaveEnd::AlreadyThere => self.mark(SAVE_ALREADY_THERE),
            SaveEnd::Dropped(_) => self.mark(SAVE_DROPPED),
            SaveEnd::Failed(_) => self.mark(SAVE_FAILED),
            SaveEnd::TimedOut => self.mark(SAVE_TIMED_OUT),
        }
    }

    fn missed(&mut self, reason: &str) {
        match reason {
            "absent" => self.mark(MISS_ABSENT),
            "not ready" => self.mark(MISS_NOT_READY),
            "vanished" => self.mark(MISS_VANISHED),
            "pool full" => self.mark(MISS_POOL_FULL),
            "deadline" => self.mark(MISS_DEADLINE),
            // Mooncake's names are in capitals.
            other => self.mark_if(other.starts_with(char::is_uppercase), MISS_STORE),
        }
    }

    fn lost(&mut self, cause: &str) {
        self.mark_if(!self.state.waiting.is_empty(), EVICTED_WHILE_LOAD_WAITED);
        match cause.split(' ').next().unwrap_or_default() {
            "evicted" => self.mark(STORE_EVICTED),
            "restarted" => self.mark(STORE_RESTARTED),
            "segment" => self.mark(STORE_SEGMENT_LOST),
            _ => {}
        }
    }

    fn transfers(&self, host: &str) -> u32 {
        self.state.running.get(host).copied().unwrap_or(0)
    }

    fn mark_if(&mut self, reached: bool, mark: &'static str) {
        if reached {
            self.mark(mark);
        }
    }

    fn mark(&mut self, mark: &'static str) {
        debug_assert!(MARKS.contains(&mark), "{mark} is not listed");
        *self.counts.entry(mark).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use springtide::env::Time;

    use super::*;

    #[test]
    fn states_are_recognised_and_missing_ones_listed() {
        let mut reach = Reach::default();
        let mut observe =
            |host, event| reach.observe(Place { number: 1, time: Time::ZERO, host }, &event);
        let transfer = |bytes| Event::TransferBegan { key: "k".into(), bytes, put: true };
        observe("encoder0", transfer(64));
        observe("encoder1", Event::Killed);
        observe("encoder0", Event::Killed);
        observe("prefill0", Event::Waiting { request: 3 });
        observe("master", Event::Lost { key: "k".into(), cause: "evicted after 3 ms".into() });
        observe("client", Event::RequestEnded { request: 3, end: RequestEnd::Aborted });
        for mark in
            [DIED_IN_TRANSFER, EVICTED_WHILE_LOAD_WAITED, STORE_EVICTED, ABORTED_WHILE_WAITING]
        {
            assert_eq!(reach.count(mark), 1, "{mark}");
        }
        assert_eq!(reach.missing().len(), MARKS.len() - 5);
    }
}
