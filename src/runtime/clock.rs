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
        // A timer centuries ahead is not "never": a paused clock would run through them.
        let at = if deadline == Time::NEVER {
            None
        } else {
            self.origin.checked_add(deadline.since_origin())
        };
        async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn never_is_no_timer() {
        let clock = TokioClock::new();
        // As far as an idle runtime with a paused clock would jump for a timer there.
        tokio::time::advance(Duration::from_secs(600 * 365 * 24 * 3600)).await;
        assert_eq!(clock.now(), Time::NEVER);
        let mut never = pin!(clock.sleep_until(Time::NEVER));
        assert!(poll_fn(|cx| Poll::Ready(never.as_mut().poll(cx))).await.is_pending());
    }
}
