//! How a key's state changes: each step by a method that leaves queues, timers and flight in agreement.

use std::time::Duration;

use super::{Loads, MissReason, State, Step, bump};
use crate::{
    connector::object::Rejection,
    env::{ErrorCode, Key, Retry, StoreError, Time},
};

impl Loads {
    pub(super) fn is_in(&self, key: &Key, state: State) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.state == state)
    }

    pub(super) fn ready(&mut self, key: &Key, step: Step) {
        if self.closed {
            self.entries.remove(key);
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.state = State::Ready(step);
        match step {
            Step::Lookup => self.to_lookup.push_back(key.clone()),
            Step::Fetch => self.to_fetch.push_back(key.clone()),
        }
    }

    pub(super) fn queue_size(&mut self, key: &Key) {
        if self.closed {
            self.entries.remove(key);
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.state = State::ToSize;
        self.to_size.push_back(key.clone());
    }

    /// These codes also mean that the object has another length than the destination: ask for it.
    pub(super) fn suspect(&mut self, key: &Key, error: StoreError) {
        bump(&mut self.counters.errors, error.code);
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.suspect = true;
        entry.last = MissReason::Store(error.code);
        self.queue_size(key);
    }

    /// What lies in the store is not the item.
    pub(super) fn reject(&mut self, key: &Key, rejection: Rejection, now: Time) {
        bump(&mut self.counters.rejected, rejection.name());
        self.missing(key, MissReason::Rejected(rejection), now + self.config.failed_ttl);
        self.to_remove.push_back((key.clone(), rejection));
    }

    pub(super) fn failed(&mut self, key: &Key, error: StoreError, again: Step, now: Time) {
        let reason = match error.code {
            ErrorCode::ReplicaIsNotReady => MissReason::NotReady,
            code => {
                bump(&mut self.counters.errors, code);
                MissReason::Store(code)
            }
        };
        match error.retry() {
            Retry::Never => self.missing(key, reason, now + self.config.failed_ttl),
            Retry::AfterPause if reason != MissReason::NotReady => {
                self.pause(key, reason, again, now);
            }
            Retry::AfterPause | Retry::AfterProbe => self.pause(key, reason, Step::Lookup, now),
        }
    }

    /// Tries again later, if somebody still waits then.
    pub(super) fn pause(&mut self, key: &Key, reason: MissReason, then: Step, now: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.attempts += 1;
        entry.last = reason;
        let until = now + entry.pause;
        entry.pause *= 2;
        if self.closed || entry.attempts >= self.config.attempts_max || until > entry.wanted_until {
            // Nobody would see the next answer. What may be ready any moment is not remembered.
            let ttl = match reason {
                MissReason::NotReady | MissReason::PoolFull => Duration::ZERO,
                _ => self.config.failed_ttl,
            };
            return self.missing(key, reason, now + ttl);
        }
        self.counters.retries += 1;
        entry.state = State::Paused { until, then };
        self.timers.insert((until, key.clone()));
    }

    pub(super) fn missing(&mut self, key: &Key, reason: MissReason, until: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.state = State::Missing { reason, until };
        self.settled.push((key.clone(), Err(reason)));
        self.timers.insert((until, key.clone()));
    }

    pub(super) fn fire_timers(&mut self, now: Time) {
        while let Some((at, key)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key.clone()));
            match self.entries.get(&key).map(|entry| entry.state) {
                Some(State::Paused { until, then }) if until <= now => self.ready(&key, then),
                Some(State::Missing { until, .. }) if until <= now => {
                    self.entries.remove(&key);
                }
                _ => {}
            }
        }
    }

    /// Moves an entry from its queue into a call, unless nobody waits for it any more.
    pub(super) fn begin(&mut self, key: &Key, from: State, to: State, now: Time) -> bool {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.state == from) else {
            return false;
        };
        if entry.wanted_until <= now {
            self.entries.remove(key);
            return false;
        }
        entry.state = to;
        true
    }

    pub(super) fn leave_flight(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get(key).filter(|entry| entry.state == State::Fetching) {
            self.in_flight_bytes -= entry.len;
        }
    }
}
