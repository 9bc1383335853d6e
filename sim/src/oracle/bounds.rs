//! I6: memory, queues and bytes in flight stay within the configuration.

use super::{Illegal, Oracle, OracleId};
use crate::event::{Event, Place};

/// See the module's text.
#[derive(Debug)]
pub struct Bounds;

impl Oracle for Bounds {
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        match event {
            Event::Bound { what, limit, seen } if seen > limit => {
                let message = format!("{what} of {}: {seen}, limit {limit}", place.host);
                Err(Illegal::new(OracleId::I6, message))
            }
            Event::PoolSeen { usage, .. } => {
                let used = usage.filling + usage.in_flight + usage.resident + usage.quarantined;
                if used + usage.free == usage.total {
                    return Ok(());
                }
                let message = format!(
                    "the pool of {} uses {used} and has {} free of {} bytes",
                    place.host, usage.free, usage.total
                );
                Err(Illegal::new(OracleId::I6, message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use springtide::pool::Usage;

    use super::*;
    use crate::oracle::testing::{at, judge};

    fn bound(seen: u64) -> Event {
        Event::Bound { what: "queue", limit: 4, seen }
    }

    #[test]
    fn the_limit_itself_is_legal() {
        assert_eq!(judge(&mut Bounds, [at(1, "e", bound(4))]), Ok(()));
    }

    #[test]
    fn more_than_the_limit_is_illegal() {
        let (_, illegal) = judge(&mut Bounds, [at(1, "e", bound(5))]).unwrap_err();
        assert_eq!(illegal.oracle, OracleId::I6);
    }

    #[test]
    fn a_pool_that_does_not_add_up_is_illegal() {
        let usage = Box::new(Usage { total: 10, free: 4, resident: 7, ..Usage::default() });
        let event = Event::PoolSeen { usage, verified: Ok(()) };
        assert!(judge(&mut Bounds, [at(1, "e", event)]).is_err());
    }
}
