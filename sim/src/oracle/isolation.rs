//! I8: one item's failure fails at most its request; no engine dies and nothing panics.
//!
//! The failure of a request is itself illegal unless a host that it visits, or the client, was down, stood
//! still or was cut off at some time while the request was under way: whatever goes wrong with the store, the
//! request is answered after a local encode.

use std::collections::{BTreeMap, BTreeSet};

use super::{Illegal, Oracle, OracleId};
use crate::event::{Event, Place, RequestEnd};

/// See the module's text.
#[derive(Debug, Default)]
pub struct Isolation {
    /// The hosts of each request under way.
    visits: BTreeMap<u32, [String; 2]>,
    /// Requests that may fail.
    excused: BTreeSet<u32>,
    /// Hosts that are down, stand still or are cut off, by how many faults.
    troubled: BTreeMap<String, u32>,
}

impl Isolation {
    fn trouble(&mut self, host: &str, begins: bool) {
        let faults = self.troubled.entry(host.to_owned()).or_default();
        if !begins {
            *faults = faults.saturating_sub(1);
            return;
        }
        *faults += 1;
        let touched = |visits: &[String; 2]| host == "client" || visits.iter().any(|v| v == host);
        let excused = self.visits.iter().filter(|(_, visits)| touched(visits)).map(|(id, _)| *id);
        self.excused.extend(excused);
    }

    fn sent(&mut self, request: u32, visits: &[String; 2]) {
        self.visits.insert(request, visits.clone());
        let hosts = visits.iter().map(String::as_str).chain(["client"]);
        let troubled = |host: &str| self.troubled.get(host).is_some_and(|faults| *faults > 0);
        if hosts.into_iter().any(troubled) {
            self.excused.insert(request);
        }
    }
}

impl Oracle for Isolation {
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        let message = match event {
            Event::EngineDied { reason } => format!("the engine of {} died: {reason}", place.host),
            Event::Panicked(what) => format!("{} panicked: {what}", place.host),
            Event::RequestEnded { request, end: RequestEnd::Failed(reason) }
                if !self.excused.contains(request) =>
            {
                format!("request {request} failed ({reason}) although its hosts were well")
            }
            Event::RequestEnded { request, .. } => {
                self.visits.remove(request);
                return Ok(());
            }
            Event::RequestSent { request, visits } => {
                self.sent(*request, visits);
                return Ok(());
            }
            Event::Paused(begins) | Event::Disturbed(begins) => {
                self.trouble(place.host, *begins);
                return Ok(());
            }
            Event::Killed => {
                self.trouble(place.host, true);
                return Ok(());
            }
            Event::Started => {
                self.trouble(place.host, false);
                return Ok(());
            }
            _ => return Ok(()),
        };
        Err(Illegal::new(OracleId::I8, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{at, judge};

    fn sent() -> Event {
        Event::RequestSent { request: 1, visits: ["encoder0".into(), "prefill0".into()] }
    }

    fn failed() -> Event {
        let end = RequestEnd::Failed("no answer".into());
        Event::RequestEnded { request: 1, end }
    }

    #[test]
    fn the_death_of_an_engine_and_a_panic_are_illegal() {
        let died = Event::EngineDied { reason: "k promised, not there".into() };
        for event in [died, Event::Panicked("index out of range".into())] {
            let history = [at(1, "prefill0", event)];
            let (_, illegal) = judge(&mut Isolation::default(), history).unwrap_err();
            assert_eq!(illegal.oracle, OracleId::I8);
        }
    }

    #[test]
    fn a_failed_request_is_illegal_while_its_hosts_are_well() {
        let history =
            [at(1, "client", sent()), at(2, "encoder1", Event::Killed), at(3, "client", failed())];
        assert_eq!(judge(&mut Isolation::default(), history).unwrap_err().0, 3);
    }

    #[test]
    fn a_request_may_fail_with_its_host() {
        let during = [
            at(1, "client", sent()),
            at(2, "encoder0", Event::Killed),
            at(3, "encoder0", Event::Started),
            at(4, "client", failed()),
        ];
        assert_eq!(judge(&mut Isolation::default(), during), Ok(()));
        let already = [
            at(1, "prefill0", Event::Disturbed(true)),
            at(2, "client", sent()),
            at(3, "prefill0", Event::Disturbed(false)),
            at(4, "client", failed()),
        ];
        assert_eq!(judge(&mut Isolation::default(), already), Ok(()));
        let over = [
            at(1, "prefill0", Event::Paused(true)),
            at(2, "prefill0", Event::Paused(false)),
            at(3, "client", sent()),
            at(4, "client", failed()),
        ];
        assert!(judge(&mut Isolation::default(), over).is_err());
    }
}
