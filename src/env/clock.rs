//! Monotonic time as a value.
//!
//! A [`Time`] is nanoseconds since an origin that only the clock knows. Pure parts of the connector take it
//! as an argument; only the asynchronous shell asks a [`Clock`] for it.

use std::{
    fmt,
    future::Future,
    ops::{Add, Sub},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// A point in monotonic time: nanoseconds since the clock's origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than every time a clock returns; a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time `since_origin` after the origin; saturates at [`Time::NEVER`].
    pub fn from_origin(since_origin: Duration) -> Self {
        Self(saturating_nanos(since_origin))
    }

    /// How long after the origin this is.
    pub fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Whole milliseconds since the origin.
    pub fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::NEVER`].
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(rhs)))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Saturates at zero, like [`Time::saturating_since`].
    fn sub(self, rhs: Self) -> Duration {
        self.saturating_since(rhs)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Time {
    /// Seconds with microseconds, `12.003450s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.write_str("never");
        }
        let micros = self.0 / 1_000;
        write!(f, "{}.{:06}s", micros / 1_000_000, micros % 1_000_000)
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The deadline passed before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadline {deadline} passed")]
pub struct Elapsed {
    /// The deadline that passed.
    pub deadline: Time,
}

/// A source of monotonic time.
pub trait Clock: Clone + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Time;

    /// Ends at `deadline`, at once if it has passed.
    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send;

    /// Ends after `duration`.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        self.sleep_until(self.now() + duration)
    }

    /// Runs `future` until `deadline`. A future that is ready at the deadline wins.
    ///
    /// # Errors
    /// [`Elapsed`] when the deadline came first; the future is dropped, so it must own nothing whose
    /// release is unsafe while I/O runs (see [`super::Store`]).
    fn timeout_at<F>(
        &self,
        deadline: Time,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + Send
    where
        F: Future + Send,
    {
        async move {
            let mut sleep = pin!(self.sleep_until(deadline));
            let mut future = pin!(future);
            std::future::poll_fn(|cx| {
                if let Poll::Ready(output) = future.as_mut().poll(cx) {
                    return Poll::Ready(Ok(output));
                }
                sleep.as_mut().poll(cx).map(|()| Err(Elapsed { deadline }))
            })
            .await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let second = Duration::from_secs(1);
        assert_eq!(Time::NEVER + second, Time::NEVER);
        assert_eq!(Time::ZERO - Time::from_origin(second), Duration::ZERO);
        assert_eq!(Time::from_origin(Duration::MAX), Time::NEVER);
    }

    #[test]
    fn displays_seconds() {
        let time = Time::from_origin(Duration::from_micros(12_003_450));
        assert_eq!(time.to_string(), "12.003450s");
        assert_eq!(Time::NEVER.to_string(), "never");
    }
}
