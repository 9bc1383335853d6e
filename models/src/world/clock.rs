//! Time that a model moves by hand.

use std::{
    future::Future,
    task::{Poll, Waker},
};

use springtide::env::{Clock, Time};
use springtide_model_sync::{Arc, Mutex};

use super::lock;

/// Time that stands still, or moves when a model says so.
#[derive(Clone)]
pub struct ModelClock(Option<Arc<Mutex<Hands>>>);

struct Hands {
    now: Time,
    sleepers: Vec<(Time, Waker)>,
}

impl ModelClock {
    /// Always the origin: no deadline ever comes. Asking for it is not an interaction between threads.
    pub fn frozen() -> Self {
        Self(None)
    }

    /// The origin, until it is moved.
    pub fn by_hand() -> Self {
        Self(Some(Arc::new(Mutex::new(Hands { now: Time::ZERO, sleepers: Vec::new() }))))
    }

    /// It is `now`: whoever slept until then or less wakes up.
    ///
    /// # Panics
    /// If the clock is frozen, or was later already.
    pub fn move_to(&self, now: Time) {
        let hands = self.0.as_ref().expect("a frozen clock does not move");
        let woken: Vec<(Time, Waker)> = {
            let mut hands = lock(hands);
            assert!(hands.now <= now, "expected a time from {} on, got {now}", hands.now);
            hands.now = now;
            hands.sleepers.extract_if(.., |(until, _)| *until <= now).collect()
        };
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Time {
        self.0.as_ref().map_or(Time::ZERO, |hands| lock(hands).now)
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send {
        std::future::poll_fn(move |cx| {
            // A deadline that never comes needs no look at the clock.
            let Some(hands) = self.0.as_ref().filter(|_| deadline < Time::NEVER) else {
                return Poll::Pending;
            };
            let mut hands = lock(hands);
            if hands.now >= deadline {
                return Poll::Ready(());
            }
            hands.sleepers.push((deadline, cx.waker().clone()));
            Poll::Pending
        })
    }
}
