//! The host's virtual time as an [`env::Clock`](springtide::env::Clock).
//!
//! Time counts from the start of the simulation and goes on over a host's crash, so that times of all hosts
//! and lives can be compared. Works inside a simulated host only.

use std::time::Duration;

use springtide::env::{Clock, Time};
use tokio::time::Instant;

use super::watchdog;

/// Virtual time of the simulation.
#[derive(Clone, Copy, Debug)]
pub enum SimClock {
    /// Turmoil's, of the host that runs.
    Turmoil,
    /// That of the one runtime of all hosts, counted from here.
    Fast(Instant),
}

impl SimClock {
    /// Time from the start of the simulation; `None` outside of one.
    pub fn elapsed(self) -> Option<Duration> {
        match self {
            Self::Turmoil => turmoil::sim_elapsed(),
            Self::Fast(start) => Some(start.elapsed()),
        }
    }
}

/// A sleep longer than this never ends within a run.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl Clock for SimClock {
    fn now(&self) -> Time {
        let elapsed = self.elapsed().expect("called outside of a simulated host");
        watchdog::look(elapsed);
        Time::from_origin(elapsed)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the simulated clock")]
    async fn sleep_until(&self, deadline: Time) {
        let left = deadline - self.now();
        if left > Duration::ZERO {
            tokio::time::sleep(left.min(FOREVER)).await;
        }
    }
}
