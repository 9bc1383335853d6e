//! `tokio::sync::Notify` over the checker's mutex, as its documentation describes it.
//!
//! * [`Notify::notify_one`] wakes the one that has waited longest, or leaves a permit for the next; a second
//!   permit is lost in the first.
//! * [`Notify::notify_waiters`] wakes everything that [`Notify::notified`] has returned so far, polled or not,
//!   and leaves no permit.
//! * A waiter that is dropped after `notify_one` chose it passes the choice on.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use crate::{Mutex, MutexGuard, PoisonError};

/// Wakes tasks. See the module's text.
#[derive(Debug, Default)]
pub struct Notify(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    permit: bool,
    /// Number of calls of `notify_waiters`.
    rounds: u64,
    next: u64,
    /// In the order in which they began to wait.
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    chosen: bool,
}

impl State {
    /// Chooses the waiter that has waited longest, or leaves a permit.
    fn notify_one(&mut self) -> Option<Waker> {
        match self.waiters.values_mut().find(|waiter| !waiter.chosen) {
            Some(waiter) => {
                waiter.chosen = true;
                waiter.waker.take()
            }
            None => {
                self.permit = true;
                None
            }
        }
    }
}

impl Notify {
    /// Nobody waits, and there is no permit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one waiter, now or the next that comes.
    pub fn notify_one(&self) {
        let waker = self.lock().notify_one();
        wake(waker);
    }

    /// Wakes every future that [`Notify::notified`] has returned.
    pub fn notify_waiters(&self) {
        let woken: Vec<Option<Waker>> = {
            let mut state = self.lock();
            state.rounds += 1;
            let woken = state.waiters.values_mut().map(|waiter| waiter.waker.take()).collect();
            state.waiters.retain(|_, waiter| waiter.chosen);
            woken
        };
        woken.into_iter().for_each(wake);
    }

    /// Ends with the next notification.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, round: self.lock().rounds, id: None, done: false }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for a notification.
#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a Notify,
    /// Calls of `notify_waiters` before this wait.
    round: u64,
    /// Its place among the waiters, once it has one.
    id: Option<u64>,
    done: bool,
}

impl Notified<'_> {
    /// Takes a place among the waiters without being polled; true if it was notified already.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.get_mut().advance(None)
    }

    fn advance(&mut self, waker: Option<&Waker>) -> bool {
        if self.done {
            return true;
        }
        let mut state = self.notify.lock();
        let chosen =
            self.id.and_then(|id| state.waiters.get(&id)).is_some_and(|waiter| waiter.chosen);
        self.done = chosen || state.rounds != self.round;
        if self.id.is_none() && !self.done {
            self.done = std::mem::take(&mut state.permit);
        }
        if self.done {
            if let Some(id) = self.id.take() {
                state.waiters.remove(&id);
            }
            return true;
        }
        let id = *self.id.get_or_insert(state.next);
        state.next = state.next.max(id + 1);
        state.waiters.entry(id).or_default().waker = waker.cloned();
        false
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.get_mut().advance(Some(cx.waker())) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let waker = {
            let mut state = self.notify.lock();
            let chosen = state.waiters.remove(&id).is_some_and(|waiter| waiter.chosen);
            // What was meant for one waiter is not lost with this one.
            if chosen { state.notify_one() } else { None }
        };
        wake(waker);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
