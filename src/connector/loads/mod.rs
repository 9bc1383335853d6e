//! Which keys the consumer knows, asks for and fetches, decided without I/O.
//!
//! Requests [`want`](Loads::want) keys; events and the time go in, [`Action`]s come out of
//! [`Loads::next_action`]. A key that nobody has wanted for its deadline is not asked for again; what was
//! fetched late stays as a resident and serves the next request.
//!
//! ```text
//!   want ─▶ lookup ─exists─▶ fetch ─valid─▶ resident (in the pool, evictable)
//!             │ ▲              │ └─bad─────▶ missing (failed ttl), object removed
//!          not├─┘ size:        └─gone─────▶ missing (absent ttl)
//!        there│   not ready: pause
//!             └─▶ size: absent ──────────▶ missing (absent ttl)
//! ```
//!
//! *Not ready* and *absent* are different answers: the first is worth waiting for. A store error is never an
//! answer: it is tried again until the deadline and then a miss with its code.

mod batches;
mod outcome;
mod transitions;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    time::Duration,
};

use tracing::Span;

pub use self::outcome::{LoadCounters, LoadTimes, MissReason};
pub(super) use self::outcome::{bump, within};
use super::{config::LoadConfig, object::Rejection, residents::Residents};
use crate::{
    env::{ErrorCode, Key, StoreError, Time},
    log::{answer, step, way},
    pool::Handle,
};

/// What is known of a wanted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// In the pool, to be pinned.
    Resident(Handle),
    /// Under way.
    Pending,
    /// Not to be had for now.
    Miss(MissReason),
}

/// What the shell is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask whether these exist; answer with [`Loads::looked_up`].
    Lookup(Vec<Key>),
    /// Ask for the size, to tell *not ready* from *absent*; answer with [`Loads::sized`].
    Size(Key),
    /// Remove what is not the item, whatever leases it has: a put over it would not repair it. Answer with
    /// [`Loads::removed`].
    Remove(Key, Rejection),
    /// Fetch these, of these lengths; answer with [`Loads::fetched`] or [`Loads::no_room`].
    Fetch(Vec<(Key, u64)>),
}

/// How one item's fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchEnd {
    /// Validated and resident.
    Loaded(Handle),
    /// Delivered, but not what was asked for.
    Rejected(Rejection),
    /// The store reports failure.
    Failed(StoreError),
    /// The memory may still be written; it is quarantined.
    Uncertain(StoreError),
    /// The call outlived the I/O timeout; the store holds the memory.
    Lost,
    /// Larger than the pool.
    TooLarge,
}

impl fmt::Display for FetchEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded(_) => f.write_str("validated"),
            Self::Rejected(rejection) => write!(f, "rejected, {}", rejection.name()),
            Self::Failed(error) => write!(f, "failed, {error}"),
            Self::Uncertain(error) => write!(f, "uncertain, {error}"),
            Self::Lost => f.write_str("lost"),
            Self::TooLarge => f.write_str("too large"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Lookup,
    Fetch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a queue.
    Ready(Step),
    Asking,
    ToSize,
    Sizing,
    Fetching,
    Paused {
        until: Time,
        then: Step,
    },
    Missing {
        reason: MissReason,
        until: Time,
    },
}

struct Entry {
    len: u64,
    /// When it was first wanted.
    since: Time,
    state: State,
    /// The latest deadline of those who want it.
    wanted_until: Time,
    attempts: u32,
    pause: Duration,
    /// The store failed in a way that an object of another length also causes.
    suspect: bool,
    /// What it is a miss for, should the time run out.
    last: MissReason,
    span: Span,
}

/// All keys of one consumer.
pub(super) struct Loads {
    config: LoadConfig,
    fragments_per_batch: usize,
    /// Fragments of an item of this many bytes, at most.
    fragments_per_item: usize,
    pub(super) residents: Residents,
    pub(super) counters: LoadCounters,
    pub(super) times: LoadTimes,
    entries: BTreeMap<Key, Entry>,
    to_lookup: VecDeque<Key>,
    to_size: VecDeque<Key>,
    to_fetch: VecDeque<Key>,
    to_remove: VecDeque<(Key, Rejection)>,
    /// Ends of pauses and of misses' times to live.
    timers: BTreeSet<(Time, Key)>,
    in_flight_bytes: u64,
    /// Keys whose fate was decided since the last [`Loads::take_settled`].
    settled: Vec<(Key, Result<Handle, MissReason>)>,
    closed: bool,
}

impl Loads {
    pub(super) fn new(
        config: LoadConfig,
        fragments_per_batch: usize,
        fragments_per_item: usize,
    ) -> Self {
        Self {
            config,
            fragments_per_batch,
            fragments_per_item,
            residents: Residents::default(),
            counters: LoadCounters::default(),
            times: LoadTimes::default(),
            entries: BTreeMap::new(),
            to_lookup: VecDeque::new(),
            to_size: VecDeque::new(),
            to_fetch: VecDeque::new(),
            to_remove: VecDeque::new(),
            timers: BTreeSet::new(),
            in_flight_bytes: 0,
            settled: Vec::new(),
            closed: false,
        }
    }

    // -- queries ---------------------------------------------------------------------------------------

    /// Keys that are being asked for or fetched.
    pub(super) fn open(&self) -> usize {
        self.entries.values().filter(|e| !matches!(e.state, State::Missing { .. })).count()
    }

    /// Bytes in running gets.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// When [`Loads::next_action`] may have something to say without a further event.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        // A closed machine has nothing more to say: its timers must not wake the driver again and again.
        self.timers.first().filter(|_| !self.closed).map(|(at, _)| *at)
    }

    /// What has been decided since the last call, for those who wait.
    pub(super) fn take_settled(&mut self) -> Vec<(Key, Result<Handle, MissReason>)> {
        std::mem::take(&mut self.settled)
    }

    // -- calls -----------------------------------------------------------------------------------------

    /// Asks for an item of `len` bytes, for somebody who waits until `deadline`.
    pub(super) fn want(&mut self, key: &Key, len: u64, deadline: Time, now: Time) -> Want {
        if self.closed {
            return Want::Miss(MissReason::Closed);
        }
        if let Some(handle) = self.residents.get(key) {
            return Want::Resident(handle);
        }
        self.fire_timers(now);
        if let Some(entry) = self.entries.get_mut(key) {
            if let State::Missing { reason, .. } = entry.state {
                return Want::Miss(reason);
            }
            if entry.len != len {
                return Want::Miss(MissReason::WrongSpec);
            }
            entry.wanted_until = entry.wanted_until.max(deadline);
            return Want::Pending;
        }
        if self.entries.len() >= self.config.keys_max {
            return Want::Miss(MissReason::Overload);
        }
        self.entries.insert(
            key.clone(),
            Entry {
                len,
                since: now,
                state: State::Ready(Step::Lookup),
                wanted_until: deadline,
                attempts: 0,
                pause: self.config.retry_pause,
                suspect: false,
                last: MissReason::Deadline,
                span: way!("load", key, len),
            },
        );
        self.to_lookup.push_back(key.clone());
        Want::Pending
    }

    /// Reports a step of a key's way.
    fn step(&self, key: &Key, step: &'static str, end: impl FnOnce() -> String) {
        if let Some(entry) = self.entries.get(key) {
            step!(entry.span => key, end = %end(), "{step}");
        }
    }

    /// Refuses further wants and starts nothing more.
    pub(super) fn close(&mut self) {
        self.closed = true;
        let idle = |state: State| !matches!(state, State::Asking | State::Sizing | State::Fetching);
        self.entries.retain(|_, entry| !idle(entry.state));
    }

    // -- events ----------------------------------------------------------------------------------------

    /// The answer to [`Action::Lookup`] for one key.
    pub(super) fn looked_up(&mut self, key: &Key, exists: Result<bool, StoreError>, now: Time) {
        if !self.is_in(key, State::Asking) {
            return;
        }
        self.step(key, "looked up", || answer(&exists));
        match exists {
            Ok(true) => self.ready(key, Step::Fetch),
            Ok(false) => self.queue_size(key),
            Err(error) => self.failed(key, error, Step::Lookup, now),
        }
    }

    /// The answer to [`Action::Size`].
    pub(super) fn sized(&mut self, key: &Key, size: Result<u64, StoreError>, now: Time) {
        if !self.is_in(key, State::Sizing) {
            return;
        }
        let Some(&Entry { len, suspect, last, .. }) = self.entries.get(key) else { return };
        self.step(key, "asked for its size", || match size {
            Ok(size) => format!("{size} bytes"),
            Err(error) => error.to_string(),
        });
        match size {
            Ok(size) if size != len => self.reject(key, Rejection::Length, now),
            Ok(_) if suspect => self.pause(key, last, Step::Fetch, now),
            Ok(_) => self.ready(key, Step::Fetch),
            Err(error) if error.code == ErrorCode::ObjectNotFound => {
                self.missing(key, MissReason::Absent, now + self.config.absent_ttl);
            }
            Err(error) => self.failed(key, error, Step::Lookup, now),
        }
    }

    /// There was no room for the item.
    pub(super) fn no_room(&mut self, key: &Key, now: Time) {
        if !self.is_in(key, State::Fetching) {
            return;
        }
        self.leave_flight(key);
        self.counters.no_room += 1;
        self.step(key, "fetched", || "no room".to_owned());
        self.pause(key, MissReason::PoolFull, Step::Fetch, now);
    }

    /// The end of one item of [`Action::Fetch`].
    pub(super) fn fetched(&mut self, key: &Key, end: FetchEnd, now: Time) {
        if !self.is_in(key, State::Fetching) {
            return;
        }
        self.leave_flight(key);
        self.step(key, "fetched", || end.to_string());
        let failed_until = now + self.config.failed_ttl;
        match end {
            FetchEnd::Loaded(handle) => {
                self.counters.loaded += 1;
                if let Some(entry) = self.entries.remove(key) {
                    self.times.load.record(now - entry.since);
                }
                self.residents.insert(key.clone(), handle);
                self.settled.push((key.clone(), Ok(handle)));
            }
            FetchEnd::Rejected(rejection) => self.reject(key, rejection, now),
            FetchEnd::Failed(error) => match error.code {
                ErrorCode::ObjectNotFound => {
                    self.missing(key, MissReason::Vanished, now + self.config.absent_ttl);
                }
                ErrorCode::TransferFail | ErrorCode::InvalidParams => self.suspect(key, error),
                _ => self.failed(key, error, Step::Fetch, now),
            },
            FetchEnd::Uncertain(error) => {
                self.counters.uncertain += 1;
                bump(&mut self.counters.errors, error.code);
                self.missing(key, MissReason::Uncertain(error.code), failed_until);
            }
            FetchEnd::Lost => {
                self.counters.lost += 1;
                self.missing(key, MissReason::Lost, failed_until);
            }
            FetchEnd::TooLarge => {
                self.counters.no_room += 1;
                self.missing(key, MissReason::TooLarge, failed_until);
            }
        }
    }

    /// The answer to [`Action::Remove`].
    pub(super) fn removed(&mut self, done: bool) {
        self.counters.removed += u64::from(done);
    }

    /// The next thing to do at `now`, if there is one. Called until it says `None`.
    pub(super) fn next_action(&mut self, now: Time) -> Option<Action> {
        if self.closed {
            return None;
        }
        self.fire_timers(now);
        let lookups = self.take_lookups(now);
        if !lookups.is_empty() {
            self.counters.exists += lookups.len() as u64;
            return Some(Action::Lookup(lookups));
        }
        while let Some(key) = self.to_size.pop_front() {
            if self.begin(&key, State::ToSize, State::Sizing, now) {
                self.counters.sizes += 1;
                return Some(Action::Size(key));
            }
        }
        if let Some((key, rejection)) = self.to_remove.pop_front() {
            return Some(Action::Remove(key, rejection));
        }
        let fetches = self.take_fetches(now);
        (!fetches.is_empty()).then_some(Action::Fetch(fetches))
    }
}

#[cfg(test)]
mod tests;
