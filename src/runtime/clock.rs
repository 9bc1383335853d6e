//! Monotonic time from tokio.

use std::future::Future;

use tokio::time::Instant;

use crate::env::{Clock, Time};

/// Tokio's monotonic clock, with its origin where it was made. Under a paused runtime it is virtual time.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send {
        let at = self.origin.checked_add(deadline.since_origin());
        async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }
}
