//! Notices a simulation that goes on without time passing.
//!
//! A loop that never waits keeps a host at one instant for ever: the run would hang, and no deadline of the
//! simulated world would ever come. Every look at the clock and every poll of a task is counted for the
//! instant at which it happens; one more than any healthy run needs is a panic, which names the instant.

use std::{cell::Cell, time::Duration};

/// Looks and polls that one instant may have.
const LOOKS_MAX: u64 = 2_000_000;

thread_local! {
    static SEEN: Cell<(Duration, u64)> = const { Cell::new((Duration::ZERO, 0)) };
}

/// Counts a look at the clock, or a poll, at `now`.
///
/// # Panics
/// When time does not pass any more.
pub fn look(now: Duration) {
    let (instant, looks) = SEEN.get();
    let looks = if instant == now { looks + 1 } else { 0 };
    SEEN.set((now, looks));
    assert!(
        looks < LOOKS_MAX,
        "time stands still at {now:?}: {looks} looks at the clock and polls"
    );
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_loop_without_time_is_noticed_and_time_forgives() {
        let second = Duration::from_secs;
        for now in 0..100 {
            (0..LOOKS_MAX / 50).for_each(|_| look(second(now)));
        }
        assert!(catch_unwind(|| (0..=LOOKS_MAX).for_each(|_| look(second(100)))).is_err());
    }
}
