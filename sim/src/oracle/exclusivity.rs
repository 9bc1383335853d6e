//! I3: no byte of the pool is written or reused by anyone but the holder of its lease.
//!
//! Three witnesses. The pool's own check and its poison and guard bytes tell of writes to memory that nobody
//! held or past the end of what somebody held. The bytes of a put are hashed when they are lent and when they
//! come back: whoever changed them in between wrote into a block under I/O.

use super::{Illegal, Oracle, OracleId};
use crate::event::{Event, Place, TransferEnd};

/// See the module's text.
#[derive(Debug)]
pub struct Exclusivity;

impl Oracle for Exclusivity {
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        let message = match event {
            Event::PoolSeen { verified: Err(what), .. } => {
                format!("the pool of {} contradicts itself: {what}", place.host)
            }
            Event::PoolSeen { usage, .. } => {
                let counters = &usage.counters;
                let (poison, guard) = (counters.poison_violations, counters.guard_violations);
                if poison + guard == 0 {
                    return Ok(());
                }
                format!("{}: {poison} writes to free memory, {guard} past an end", place.host)
            }
            Event::TransferEnded { key, end: TransferEnd::SourceChanged, .. } => {
                format!("the bytes of {key} changed on {} while they were sent", place.host)
            }
            _ => return Ok(()),
        };
        Err(Illegal::new(OracleId::I3, message))
    }
}

#[cfg(test)]
mod tests {
    use springtide::pool::Usage;

    use super::*;
    use crate::oracle::testing::{at, judge};

    fn seen(poison: u64, guard: u64, verified: Result<(), String>) -> Event {
        let mut usage = Box::new(Usage::default());
        usage.counters.poison_violations = poison;
        usage.counters.guard_violations = guard;
        Event::PoolSeen { usage, verified }
    }

    #[test]
    fn a_clean_pool_is_legal() {
        assert_eq!(judge(&mut Exclusivity, [at(1, "e", seen(0, 0, Ok(())))]), Ok(()));
    }

    #[test]
    fn every_witness_fires() {
        let changed = Event::TransferEnded {
            key: "k".into(),
            bytes: 64,
            put: true,
            end: TransferEnd::SourceChanged,
        };
        for event in [seen(1, 0, Ok(())), seen(0, 1, Ok(())), seen(0, 0, Err("x".into())), changed]
        {
            let (_, illegal) = judge(&mut Exclusivity, [at(1, "e", event)]).unwrap_err();
            assert_eq!(illegal.oracle, OracleId::I3);
        }
    }
}
