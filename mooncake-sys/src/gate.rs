//! When a handle may be called, and when it may be destroyed.
//!
//! The library crashes when a handle is used after its destruction, and when it is destroyed while another
//! thread is inside a call. The gate counts the calls that are inside and lets nobody in once a close has
//! begun, so that whoever destroys the handle is alone with it. It is a mutex and a counter: a call takes
//! it for a few instructions and then runs without it.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::code::CallError;

pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    phase: Phase,
    inside: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Closing,
    Closed,
}

/// One call that is inside. Dropping it leaves.
pub(crate) struct Inside<'a>(&'a Gate);

impl Gate {
    /// A gate that lets calls in.
    pub(crate) fn open() -> Self {
        let state = State { phase: Phase::Open, inside: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Lets a call in.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, CallError> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(CallError::Closed);
        }
        state.inside += 1;
        Ok(Inside(self))
    }

    /// Begins to close, the first time with `begin`, which starts whoever calls [`Gate::empty`] and then
    /// [`Gate::closed`]. If that fails the gate stays open.
    pub(crate) fn close<E>(&self, begin: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            begin()?;
            state.phase = Phase::Closing;
        }
        Ok(())
    }

    /// Waits until a close has begun and no call is inside any more.
    pub(crate) fn empty(&self) {
        let mut state = self.lock();
        while state.phase == Phase::Open || state.inside > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The handle is destroyed.
    pub(crate) fn closed(&self) {
        self.lock().phase = Phase::Closed;
        self.changed.notify_all();
    }

    /// Waits for [`Gate::closed`], at most for `limit`; whether it came.
    pub(crate) fn wait_closed(&self, limit: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, |state| state.phase != Phase::Closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase == Phase::Closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}
