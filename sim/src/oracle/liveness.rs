//! I5: every wait and every shutdown returns by its deadline, and once faults have stopped every request
//! ends.
//!
//! Deadlines hold under faults too; only a host that stands still is excused, for as long as it does.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use springtide::env::Time;

use super::{Illegal, Oracle, OracleId};
use crate::event::{Event, Place};

/// The phase at whose beginning everything must have ended.
pub const SETTLED: &str = "verify";
/// The phase at whose end the run is over.
pub const OVER: &str = "over";

/// See the module's text.
#[derive(Debug)]
pub struct Liveness {
    slack: Duration,
    requests: BTreeSet<u32>,
    /// Waits and shutdowns that have not returned, by host and deadline.
    pending: BTreeMap<String, Vec<(&'static str, Time)>>,
    /// When each host last went on after a pause.
    resumed: BTreeMap<String, Time>,
}

impl Liveness {
    /// An oracle that accepts a return `slack` after its deadline.
    pub fn new(slack: Duration) -> Self {
        let (requests, pending, resumed) = Default::default();
        Self { slack, requests, pending, resumed }
    }

    fn began(&mut self, host: &str, what: &'static str, deadline: Time) {
        self.pending.entry(host.to_owned()).or_default().push((what, deadline));
    }

    fn ended(&mut self, place: Place<'_>, what: &str, deadline: Time) -> Result<(), Illegal> {
        if let Some(pending) = self.pending.get_mut(place.host) {
            let found = pending.iter().position(|entry| *entry == (what, deadline));
            found.map(|index| pending.remove(index));
        }
        // A host that stood still over its deadline returns as soon as it goes on.
        let resumed = self.resumed.get(place.host).copied().unwrap_or(Time::ZERO);
        let due = deadline.max(resumed) + self.slack;
        if place.time <= due {
            return Ok(());
        }
        let late = place.time - due;
        let message = format!("{what} on {} returned {late:?} after its deadline", place.host);
        Err(Illegal::new(OracleId::I5, message))
    }

    fn nothing_pending(&self, requests_too: bool) -> Result<(), Illegal> {
        if requests_too && let Some(request) = self.requests.first() {
            let message = format!("request {request} has not ended, faults are long over");
            return Err(Illegal::new(OracleId::I5, message));
        }
        let overdue = |(host, pending): (&String, &Vec<(&'static str, Time)>)| {
            pending
                .first()
                .map(|(what, due)| format!("{what} on {host}, due {due}, never returned"))
        };
        match self.pending.iter().find_map(overdue) {
            Some(message) => Err(Illegal::new(OracleId::I5, message)),
            None => Ok(()),
        }
    }
}

impl Oracle for Liveness {
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        match event {
            Event::RequestSent { request, .. } => {
                self.requests.insert(*request);
            }
            Event::RequestEnded { request, .. } => {
                self.requests.remove(request);
            }
            Event::WaitBegan { deadline } => self.began(place.host, "wait_for_save", *deadline),
            Event::WaitEnded { deadline } => return self.ended(place, "wait_for_save", *deadline),
            Event::CloseBegan { deadline } => self.began(place.host, "close", *deadline),
            Event::CloseEnded { deadline } => return self.ended(place, "close", *deadline),
            Event::Paused(false) => {
                self.resumed.insert(place.host.to_owned(), place.time);
            }
            Event::Killed => {
                self.pending.remove(place.host);
            }
            Event::Phase(name) if *name == SETTLED || *name == OVER => {
                return self.nothing_pending(true);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::RequestEnd,
        oracle::testing::{at, judge, time},
    };

    fn oracle() -> Liveness {
        Liveness::new(Duration::from_millis(2))
    }

    fn began(deadline: u64) -> Event {
        Event::WaitBegan { deadline: time(deadline) }
    }

    fn ended(deadline: u64) -> Event {
        Event::WaitEnded { deadline: time(deadline) }
    }

    fn sent() -> Event {
        Event::RequestSent { request: 4, visits: ["encoder0".into(), "prefill0".into()] }
    }

    #[test]
    fn a_wait_may_return_in_the_tick_of_its_deadline() {
        let history =
            [at(1, "e", began(10)), at(12, "e", ended(10)), at(20, "w", Event::Phase(OVER))];
        assert_eq!(judge(&mut oracle(), history), Ok(()));
    }

    #[test]
    fn a_late_wait_is_illegal() {
        let history = [at(1, "e", began(10)), at(13, "e", ended(10))];
        let (event, illegal) = judge(&mut oracle(), history).unwrap_err();
        assert_eq!((event, illegal.oracle), (2, OracleId::I5));
    }

    #[test]
    fn a_pause_excuses_its_own_host_only() {
        let paused = |host| [at(5, host, Event::Paused(true)), at(50, host, Event::Paused(false))];
        let mut excused = vec![at(1, "e", began(10))];
        excused.extend(paused("e"));
        excused.push(at(51, "e", ended(10)));
        assert_eq!(judge(&mut oracle(), excused), Ok(()));
        let mut other = vec![at(1, "e", began(10))];
        other.extend(paused("f"));
        other.push(at(51, "e", ended(10)));
        assert!(judge(&mut oracle(), other).is_err());
    }

    #[test]
    fn a_wait_that_never_returns_is_illegal_unless_its_host_died() {
        let lost = [at(1, "e", began(10)), at(90, "w", Event::Phase(SETTLED))];
        assert!(judge(&mut oracle(), lost).is_err());
        let died =
            [at(1, "e", began(10)), at(5, "e", Event::Killed), at(90, "w", Event::Phase(SETTLED))];
        assert_eq!(judge(&mut oracle(), died), Ok(()));
    }

    #[test]
    fn a_request_that_never_ends_is_illegal() {
        let lost = [at(1, "c", sent()), at(90, "w", Event::Phase(SETTLED))];
        assert_eq!(judge(&mut oracle(), lost).unwrap_err().0, 2);
        let end = Event::RequestEnded { request: 4, end: RequestEnd::Done };
        let ended = [at(1, "c", sent()), at(9, "c", end), at(90, "w", Event::Phase(SETTLED))];
        assert_eq!(judge(&mut oracle(), ended), Ok(()));
    }
}
