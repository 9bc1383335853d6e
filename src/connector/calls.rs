//! One call of the store or the device: bounded in time, and contained.
//!
//! A call that panics has no answer, like one that never ends. Without that, what waits for the answer (a
//! key being looked up, an upload, bytes in flight) would be stuck for ever, since tasks are not joined and
//! nobody would see the panic. What the call owned goes the way of a dropped transfer: into quarantine.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
};

use crate::env::{Clock, Env, Time};

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It goes on; whoever runs it keeps what it owns.
    Late,
    /// It has ended in the middle of what it did.
    Panicked,
}

/// Makes a call now, to be awaited with [`finish`].
pub(super) fn start<F>(call: impl FnOnce() -> F) -> Result<F, NoAnswer> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| NoAnswer::Panicked)
}

/// The answer to a call that was started, if it comes by `deadline`.
pub(super) async fn finish<E: Env, F>(
    env: &E,
    deadline: Time,
    started: Result<F, NoAnswer>,
) -> Result<F::Output, NoAnswer>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = Box::pin(started?);
    let contained =
        poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(NoAnswer::Panicked)),
        });
    env.clock().timeout_at(deadline, contained).await.unwrap_or(Err(NoAnswer::Late))
}

/// Makes a call and awaits its answer.
pub(super) async fn bounded<E: Env, F>(
    env: &E,
    deadline: Time,
    call: impl FnOnce() -> F + Send,
) -> Result<F::Output, NoAnswer>
where
    F: Future + Send,
    F::Output: Send,
{
    finish(env, deadline, start(call)).await
}
