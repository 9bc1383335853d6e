//! I7: the connector's counters add up, and agree with what the simulator counted from outside.

use super::{Illegal, Oracle, OracleId};
use crate::event::{Event, Place};

/// See the module's text.
#[derive(Debug)]
pub struct Accounting;

impl Oracle for Accounting {
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        let Event::Counted { own, pairs } = event else {
            return Ok(());
        };
        if let Err(what) = own {
            let message = format!("the counters of {} do not add up: {what}", place.host);
            return Err(Illegal::new(OracleId::I7, message));
        }
        match pairs.iter().find(|(_, connector, simulator)| connector != simulator) {
            None => Ok(()),
            Some((what, connector, simulator)) => Err(Illegal::new(
                OracleId::I7,
                format!("{} counted {connector} {what}, there were {simulator}", place.host),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{at, judge};

    fn counted(own: Result<(), String>, connector: u64) -> Event {
        Event::Counted { own, pairs: vec![("saves", connector, 3)] }
    }

    #[test]
    fn agreement_is_legal() {
        assert_eq!(judge(&mut Accounting, [at(1, "e", counted(Ok(()), 3))]), Ok(()));
    }

    #[test]
    fn disagreement_is_illegal() {
        for event in [counted(Ok(()), 2), counted(Err("1 + 1 = 3".into()), 3)] {
            let (_, illegal) = judge(&mut Accounting, [at(1, "e", event)]).unwrap_err();
            assert_eq!(illegal.oracle, OracleId::I7);
        }
    }
}
