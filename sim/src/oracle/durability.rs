//! I1: what a report calls stored is readable until the store's own history explains its loss.
//!
//! Two events can break it. A report of *stored* or *already there* needs a moment between the opening of
//! its ticket and the report at which the store could serve the object; if the object is gone by then, the
//! store's history must say why, and it does so by having made it unreadable at all. And a consumer that is
//! told *absent* while the object was readable during the whole time in which that answer can have been
//! obtained has found a promise that does not hold.

use std::{collections::BTreeMap, time::Duration};

use springtide::env::Time;

use super::{Illegal, Oracle, OracleId};
use crate::event::{Event, Place};

/// The reason of a miss that claims that the store does not have the object.
pub const ABSENT: &str = "absent";

/// See the module's text.
#[derive(Debug)]
pub struct Durability {
    /// How old the answer can be that a miss rests on.
    believed: Duration,
    objects: BTreeMap<String, Readable>,
    tickets: BTreeMap<(String, String), Time>,
}

/// When an object was readable.
#[derive(Debug, Default)]
struct Readable {
    since: Option<Time>,
    /// The end of the last time, and its cause.
    lost: Option<(Time, String)>,
}

impl Durability {
    /// An oracle for consumers that believe an answer for `believed` at most.
    pub fn new(believed: Duration) -> Self {
        Self { believed, objects: BTreeMap::new(), tickets: BTreeMap::new() }
    }

    fn saved(&self, place: Place<'_>, key: &str, ticket: &str) -> Result<(), Illegal> {
        let opened = self.tickets.get(&(place.host.to_owned(), ticket.to_owned())).copied();
        let opened = opened.unwrap_or(Time::ZERO);
        let object = self.objects.get(key);
        let readable_now = object.is_some_and(|object| object.since.is_some());
        let lost = object.and_then(|object| object.lost.as_ref());
        if readable_now || lost.is_some_and(|(at, _)| *at >= opened) {
            return Ok(());
        }
        let history = match lost {
            Some((at, cause)) => format!("the store lost it before, at {at} ({cause})"),
            None => "the store never had it".to_owned(),
        };
        Err(Illegal::new(
            OracleId::I1,
            format!("{key} is reported as stored for a ticket opened at {opened}, but {history}"),
        ))
    }

    fn missed(&self, asked: Time, key: &str) -> Result<(), Illegal> {
        let Some(since) = self.objects.get(key).and_then(|object| object.since) else {
            return Ok(());
        };
        if asked.saturating_since(since) <= self.believed {
            return Ok(());
        }
        Err(Illegal::new(
            OracleId::I1,
            format!(
                "{key} is called absent; it has been readable since {since}, first asked for at \
                 {asked}, and an older answer than {:?} is not believed",
                self.believed
            ),
        ))
    }
}

impl Oracle for Durability {
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        match event {
            Event::SaveOpened { ticket, .. } => {
                self.tickets.insert((place.host.to_owned(), ticket.clone()), place.time);
            }
            Event::SaveEnded { key, ticket, end } if end.is_saved() => {
                return self.saved(place, key, ticket);
            }
            Event::Stored { key, .. } => {
                let object = self.objects.entry(key.clone()).or_default();
                object.since.get_or_insert(place.time);
            }
            Event::Lost { key, cause } => {
                let object = self.objects.entry(key.clone()).or_default();
                if object.since.take().is_some() {
                    object.lost = Some((place.time, cause.clone()));
                }
            }
            Event::Miss { key, reason, asked, .. } if reason == ABSENT => {
                return self.missed(*asked, key);
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
        event::SaveEnd,
        oracle::testing::{at, judge, time},
    };

    fn opened() -> Event {
        Event::SaveOpened { key: "k".into(), ticket: "#1".into() }
    }

    fn ended(end: SaveEnd) -> Event {
        Event::SaveEnded { key: "k".into(), ticket: "#1".into(), end }
    }

    fn stored() -> Event {
        Event::Stored { key: "k".into(), bytes: 64 }
    }

    fn lost() -> Event {
        Event::Lost { key: "k".into(), cause: "evicted".into() }
    }

    fn absent(asked: u64) -> Event {
        Event::Miss { request: 1, key: "k".into(), reason: ABSENT.into(), asked: time(asked) }
    }

    fn oracle() -> Durability {
        Durability::new(Duration::from_millis(100))
    }

    #[test]
    fn stored_without_an_object_is_illegal() {
        let history = [at(1, "e", opened()), at(5, "e", ended(SaveEnd::Stored))];
        let (event, illegal) = judge(&mut oracle(), history).unwrap_err();
        assert_eq!((event, illegal.oracle), (2, OracleId::I1));
    }

    #[test]
    fn already_there_that_was_lost_before_is_illegal() {
        let history = [
            at(1, "m", stored()),
            at(2, "m", lost()),
            at(3, "e", opened()),
            at(5, "e", ended(SaveEnd::AlreadyThere)),
        ];
        let (event, illegal) = judge(&mut oracle(), history).unwrap_err();
        assert_eq!(event, 4);
        assert!(illegal.message.contains("evicted"), "{}", illegal.message);
    }

    #[test]
    fn a_loss_that_the_store_explains_is_legal() {
        let history = [
            at(1, "e", opened()),
            at(2, "m", stored()),
            at(4, "m", lost()),
            at(5, "e", ended(SaveEnd::Stored)),
            at(500, "p", absent(400)),
        ];
        assert_eq!(judge(&mut oracle(), history), Ok(()));
    }

    #[test]
    fn absent_while_readable_is_illegal_once_older_answers_are_forgotten() {
        let history = [at(1, "m", stored()), at(60, "p", absent(50)), at(700, "p", absent(600))];
        assert_eq!(judge(&mut oracle(), history).unwrap_err().0, 3);
    }

    #[test]
    fn saves_that_did_not_succeed_promise_nothing() {
        let history = [at(1, "e", opened()), at(5, "e", ended(SaveEnd::TimedOut))];
        assert_eq!(judge(&mut oracle(), history), Ok(()));
    }
}
