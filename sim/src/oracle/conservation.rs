//! I4: at rest nothing is pinned, leaked, or quarantined without a cause.
//!
//! Rest is when traffic and faults are over and everything has had time to end. What may remain in a pool
//! then is residents without a pin, what operations own that a shutdown gave up, and memory in quarantine, as much as transfers ended uncertainly or were
//! let go of on this host since it started.

use std::collections::BTreeMap;

use super::{Illegal, Oracle, OracleId};
use crate::event::{Event, Place, TransferEnd};

/// See the module's text.
#[derive(Debug, Default)]
pub struct Conservation {
    /// Transfers of each host's present life that gave a cause for quarantine.
    uncertain: BTreeMap<String, u64>,
}

impl Oracle for Conservation {
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        match event {
            Event::Started => {
                self.uncertain.remove(place.host);
            }
            Event::TransferEnded { end: TransferEnd::Uncertain(_), .. } => {
                *self.uncertain.entry(place.host.to_owned()).or_default() += 1;
            }
            Event::AtRest { usage, abandoned } => {
                let operating = if *abandoned == 0 { usage.in_flight + usage.filling } else { 0 };
                for (what, bytes) in
                    [("pinned", usage.pinned), ("reserved, being filled or in flight", operating)]
                {
                    if bytes > 0 {
                        let message = format!("{bytes} bytes of {} are {what} at rest", place.host);
                        return Err(Illegal::new(OracleId::I4, message));
                    }
                }
                let causes = self.uncertain.get(place.host).copied().unwrap_or(0);
                if usage.quarantined > 0 && causes == 0 {
                    let message = format!(
                        "{} bytes of {} are quarantined, but every transfer has ended",
                        usage.quarantined, place.host
                    );
                    return Err(Illegal::new(OracleId::I4, message));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use springtide::pool::Usage;

    use super::*;
    use crate::oracle::testing::{at, judge};

    fn rest(change: impl FnOnce(&mut Usage)) -> Event {
        let mut usage =
            Box::new(Usage { total: 1000, free: 800, resident: 200, ..Usage::default() });
        change(&mut usage);
        Event::AtRest { usage, abandoned: 0 }
    }

    fn uncertain() -> Event {
        let end = TransferEnd::Uncertain("TRANSFER_FAIL".into());
        Event::TransferEnded { key: "k".into(), bytes: 64, put: true, end }
    }

    #[test]
    fn idle_residents_are_legal() {
        assert_eq!(judge(&mut Conservation::default(), [at(9, "e", rest(|_| {}))]), Ok(()));
    }

    #[test]
    fn every_leak_is_illegal() {
        let leaks: [fn(&mut Usage); 4] = [
            |usage| usage.pinned = 64,
            |usage| usage.in_flight = 64,
            |usage| usage.filling = 64,
            |usage| usage.quarantined = 64,
        ];
        for leak in leaks {
            let history = [at(9, "e", rest(leak))];
            let (_, illegal) = judge(&mut Conservation::default(), history).unwrap_err();
            assert_eq!(illegal.oracle, OracleId::I4);
        }
    }

    #[test]
    fn quarantine_needs_a_cause_in_the_same_life() {
        let quarantined = || rest(|usage| usage.quarantined = 64);
        let legal = [at(1, "e", uncertain()), at(9, "e", quarantined())];
        assert_eq!(judge(&mut Conservation::default(), legal), Ok(()));
        let elsewhere = [at(1, "f", uncertain()), at(9, "e", quarantined())];
        assert!(judge(&mut Conservation::default(), elsewhere).is_err());
        let before =
            [at(1, "e", uncertain()), at(5, "e", Event::Started), at(9, "e", quarantined())];
        assert!(judge(&mut Conservation::default(), before).is_err());
    }
}
