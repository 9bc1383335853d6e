//! Tickets and those who wait for them.
//!
//! A ticket is open until it is resolved, once. A wait covers the tickets that were opened before it began
//! and that no finished wait has reported; it ends when all of them are resolved, or at its deadline, which
//! resolves the rest as timed out. What nobody waits for is kept up to a bound and then forgotten, oldest
//! first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::outcome::{SaveCounters, SaveEntry, SaveOutcome, SaveReport, Ticket};
use crate::{
    env::{Key, Time},
    log::step,
};

/// Resolved entries kept for a wait that may never come.
const UNREPORTED_MAX: usize = 65_536;

/// A wait in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::connector) struct WaitId(u64);

#[derive(Default)]
pub(super) struct Tickets {
    next: u64,
    open: BTreeMap<Ticket, Key>,
    /// Resolved, and covered by no wait.
    unreported: VecDeque<SaveEntry>,
    waits: BTreeMap<WaitId, Wait>,
    pub(super) counters: SaveCounters,
}

struct Wait {
    deadline: Time,
    pending: BTreeSet<Ticket>,
    entries: Vec<SaveEntry>,
    /// What waits that finished during this one have reported.
    reported: BTreeSet<Ticket>,
}

impl Tickets {
    pub(super) fn open(&mut self, key: Key) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.open.insert(ticket, key);
        self.counters.opened += 1;
        self.counters.open += 1;
        ticket
    }

    /// Ends a ticket. A ticket that has ended (its wait's deadline came first) keeps its first outcome.
    pub(super) fn resolve(&mut self, ticket: Ticket, outcome: SaveOutcome) {
        let Some(key) = self.open.remove(&ticket) else { return };
        self.counters.open -= 1;
        self.counters.count(outcome);
        match outcome.is_readable() {
            true => step!(&key, %ticket, %outcome, "committed"),
            false => step!(&key, %ticket, reason = %outcome, "not saved"),
        }
        let entry = SaveEntry { ticket, key, outcome };
        let mut covered = false;
        for wait in self.waits.values_mut().filter(|wait| wait.pending.contains(&ticket)) {
            wait.pending.remove(&ticket);
            wait.entries.push(entry.clone());
            covered = true;
        }
        if !covered {
            self.keep(entry);
        }
    }

    /// Keeps an entry for the next wait.
    fn keep(&mut self, entry: SaveEntry) {
        self.unreported.push_back(entry);
        if self.unreported.len() > UNREPORTED_MAX {
            self.unreported.pop_front();
            self.counters.unreported += 1;
        }
    }

    pub(super) fn is_open(&self, ticket: Ticket) -> bool {
        self.open.contains_key(&ticket)
    }

    pub(super) fn begin_wait(&mut self, deadline: Time) -> WaitId {
        let id = WaitId(self.next);
        self.next += 1;
        let wait = Wait {
            deadline,
            pending: self.open.keys().copied().collect(),
            entries: self.unreported.drain(..).collect(),
            reported: BTreeSet::new(),
        };
        self.waits.insert(id, wait);
        id
    }

    /// The report, once every ticket of the wait has ended or its deadline has come.
    pub(super) fn poll_wait(&mut self, id: WaitId, now: Time) -> Option<SaveReport> {
        let wait = self.waits.get(&id)?;
        if !wait.pending.is_empty() && now < wait.deadline {
            return None;
        }
        for ticket in wait.pending.clone() {
            self.resolve(ticket, SaveOutcome::TimedOut);
        }
        let mut entries = self.waits.remove(&id)?.entries;
        entries.sort_by_key(|entry| entry.ticket);
        for other in self.waits.values_mut() {
            other.reported.extend(entries.iter().map(|entry| entry.ticket));
        }
        Some(SaveReport { entries })
    }

    /// The waiter has gone. What no other wait has reported or will report goes to whoever waits next.
    pub(super) fn abandon_wait(&mut self, id: WaitId) {
        let Some(wait) = self.waits.remove(&id) else { return };
        let mut others = wait.reported;
        others.extend(self.waits.values().flat_map(|w| &w.entries).map(|entry| entry.ticket));
        for entry in wait.entries.into_iter().filter(|entry| !others.contains(&entry.ticket)) {
            self.keep(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_origin(Duration::from_millis(millis))
    }

    fn outcomes(report: &SaveReport) -> Vec<SaveOutcome> {
        report.entries.iter().map(|entry| entry.outcome).collect()
    }

    #[test]
    fn a_wait_covers_what_was_opened_before_it() {
        let mut tickets = Tickets::default();
        let first = tickets.open(Key::new("a"));
        tickets.resolve(first, SaveOutcome::Stored);
        let second = tickets.open(Key::new("b"));
        let wait = tickets.begin_wait(at(10));
        let later = tickets.open(Key::new("c"));
        assert_eq!(tickets.poll_wait(wait, at(1)), None);
        tickets.resolve(later, SaveOutcome::Stored);
        tickets.resolve(second, SaveOutcome::AlreadyThere);
        let report = tickets.poll_wait(wait, at(2)).unwrap();
        assert_eq!(outcomes(&report), [SaveOutcome::Stored, SaveOutcome::AlreadyThere]);
        assert_eq!(report.to_string(), "1 stored, 1 already there");
        let next = tickets.begin_wait(at(10));
        assert_eq!(outcomes(&tickets.poll_wait(next, at(3)).unwrap()), [SaveOutcome::Stored]);
    }

    #[test]
    fn the_deadline_resolves_the_rest_once() {
        let mut tickets = Tickets::default();
        let ticket = tickets.open(Key::new("a"));
        let (short, long) = (tickets.begin_wait(at(5)), tickets.begin_wait(at(50)));
        let report = tickets.poll_wait(short, at(5)).unwrap();
        assert_eq!(outcomes(&report), [SaveOutcome::TimedOut]);
        tickets.resolve(ticket, SaveOutcome::Stored);
        assert_eq!(outcomes(&tickets.poll_wait(long, at(6)).unwrap()), [SaveOutcome::TimedOut]);
        assert_eq!(tickets.counters.timed_out, 1);
        assert_eq!(tickets.counters.stored, 0);
        assert_eq!(tickets.counters.check(), Ok(()));
    }

    #[test]
    fn an_abandoned_wait_loses_nothing() {
        let mut tickets = Tickets::default();
        let ticket = tickets.open(Key::new("a"));
        let wait = tickets.begin_wait(at(5));
        tickets.resolve(ticket, SaveOutcome::Stored);
        tickets.abandon_wait(wait);
        let next = tickets.begin_wait(at(5));
        assert_eq!(outcomes(&tickets.poll_wait(next, at(0)).unwrap()), [SaveOutcome::Stored]);
    }

    #[test]
    fn an_abandoned_wait_repeats_nothing_that_another_reports() {
        for abandoned_first in [true, false] {
            let mut tickets = Tickets::default();
            let ticket = tickets.open(Key::new("a"));
            let (kept, given_up) = (tickets.begin_wait(at(5)), tickets.begin_wait(at(5)));
            tickets.resolve(ticket, SaveOutcome::Stored);
            if abandoned_first {
                tickets.abandon_wait(given_up);
            }
            assert_eq!(tickets.poll_wait(kept, at(0)).unwrap().entries.len(), 1);
            tickets.abandon_wait(given_up);
            let next = tickets.begin_wait(at(5));
            assert_eq!(tickets.poll_wait(next, at(0)).unwrap(), SaveReport::default());
        }
    }

    #[test]
    fn what_abandoned_waits_leave_is_bounded() {
        let mut tickets = Tickets::default();
        for round in 1..=3 {
            let wait = tickets.begin_wait(at(5));
            for _ in 0..UNREPORTED_MAX {
                let ticket = tickets.open(Key::new("a"));
                tickets.resolve(ticket, SaveOutcome::Stored);
            }
            tickets.abandon_wait(wait);
            assert_eq!(tickets.unreported.len(), UNREPORTED_MAX, "round {round}");
        }
        assert_eq!(tickets.counters.unreported, 2 * UNREPORTED_MAX as u64);
    }

    #[test]
    fn what_nobody_waits_for_is_bounded() {
        let mut tickets = Tickets::default();
        for _ in 0..UNREPORTED_MAX + 3 {
            let ticket = tickets.open(Key::new("a"));
            tickets.resolve(ticket, SaveOutcome::Stored);
        }
        assert_eq!(tickets.unreported.len(), UNREPORTED_MAX);
        assert_eq!(tickets.counters.unreported, 3);
        assert_eq!(tickets.counters.check(), Ok(()));
    }
}
