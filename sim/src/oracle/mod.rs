//! What must never happen, checked at every event.
//!
//! An oracle sees the run's events in order and refuses the first that is illegal. It knows nothing but
//! events, so each has a test that feeds it an illegal history and one with a legal one.
//!
//! | oracle | promise |
//! |---|---|
//! | [`durability`] I1 | what a report calls stored is readable until the store's own history explains its loss |
//! | [`integrity`] I2, I9 | what is delivered is byte for byte what was saved, of the same model |
//! | [`exclusivity`] I3 | nobody but the holder of its lease writes a byte of the pool |
//! | [`conservation`] I4 | at rest nothing is pinned, leaked, or quarantined without a cause |
//! | [`liveness`] I5 | every request and every wait ends in time |
//! | [`bounds`] I6 | memory, queues and bytes in flight stay within the configuration |
//! | [`accounting`] I7 | counters add up, and agree with what the simulator counted |
//! | [`isolation`] I8 | one item's failure fails at most its request; no engine dies, nothing panics |

pub mod accounting;
pub mod bounds;
pub mod conservation;
pub mod durability;
pub mod exclusivity;
pub mod integrity;
pub mod isolation;
pub mod liveness;

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, Place},
    plan::Plan,
};

/// The number of an oracle, as the design names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OracleId {
    /// Durability.
    I1,
    /// Integrity.
    I2,
    /// Exclusivity.
    I3,
    /// Conservation.
    I4,
    /// Liveness.
    I5,
    /// Bounds.
    I6,
    /// Accounting.
    I7,
    /// Isolation.
    I8,
    /// Namespaces.
    I9,
    /// The expectation of a scenario, beyond the oracles.
    Expectation,
}

impl OracleId {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::I1 => "durability",
            Self::I2 => "integrity",
            Self::I3 => "exclusivity",
            Self::I4 => "conservation",
            Self::I5 => "liveness",
            Self::I6 => "bounds",
            Self::I7 => "accounting",
            Self::I8 => "isolation",
            Self::I9 => "namespaces",
            Self::Expectation => "expectation",
        }
    }
}

impl fmt::Display for OracleId {
    /// `I1 durability`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expectation => f.write_str(self.name()),
            numbered => write!(f, "{numbered:?} {}", numbered.name()),
        }
    }
}

/// Why an event is illegal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// Which promise it breaks.
    pub oracle: OracleId,
    /// How.
    pub message: String,
}

impl Illegal {
    /// The event breaks the promise of `oracle`.
    pub fn new(oracle: OracleId, message: impl Into<String>) -> Self {
        Self { oracle, message: message.into() }
    }
}

/// A judge of histories.
pub trait Oracle: Send + fmt::Debug {
    /// Takes the next event.
    ///
    /// # Errors
    /// [`Illegal`] when it must not happen here.
    fn observe(&mut self, place: Place<'_>, event: &Event) -> Result<(), Illegal>;
}

/// All oracles, set up for a plan.
pub fn all(plan: &Plan) -> Vec<Box<dyn Oracle>> {
    let ms = Duration::from_millis;
    // A call that has to return at its deadline is polled in the tick of the deadline, and the timers of a
    // runtime have a grain of a millisecond.
    let slack = ms(plan.link.tick_ms + 1);
    let believed = ms(plan.connector.absent_ttl_ms + plan.connector.load_deadline_ms);
    vec![
        Box::new(durability::Durability::new(believed)),
        Box::new(integrity::Integrity),
        Box::new(exclusivity::Exclusivity),
        Box::new(conservation::Conservation::default()),
        Box::new(liveness::Liveness::new(slack)),
        Box::new(bounds::Bounds),
        Box::new(accounting::Accounting),
        Box::new(isolation::Isolation::default()),
    ]
}

#[cfg(test)]
pub(crate) mod testing {
    //! Feeds histories to an oracle.

    use springtide::env::Time;

    use super::*;

    /// An event of `host` at `ms`.
    pub(crate) fn at(ms: u64, host: &'static str, event: Event) -> (u64, &'static str, Event) {
        (ms, host, event)
    }

    /// The number of the first illegal event and why.
    pub(crate) fn judge(
        oracle: &mut dyn Oracle,
        history: impl IntoIterator<Item = (u64, &'static str, Event)>,
    ) -> Result<(), (u64, Illegal)> {
        for (number, (ms, host, event)) in (1..).zip(history) {
            let place = Place { number, time: time(ms), host };
            oracle.observe(place, &event).map_err(|illegal| (number, illegal))?;
        }
        Ok(())
    }

    /// The time `ms` after the start.
    pub(crate) fn time(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }
}
