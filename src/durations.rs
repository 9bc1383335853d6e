//! How long things took, in fixed buckets.
//!
//! Whole numbers throughout: a simulated run that is repeated counts the same. The bounds are the same for
//! everything that is measured, so that histograms of all instances can be added.

use std::time::Duration;

use serde::Serialize;

/// Upper bounds of all buckets but the last, in microseconds; the last has none.
pub const BOUNDS_US: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Durations {
    counts: [u64; BOUNDS_US.len() + 1],
    sum_us: u64,
}

impl Durations {
    /// Counts one.
    pub fn record(&mut self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all of them took together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// How many are in each bucket, with its upper bound; `None` for the last.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS_US.iter().map(|bound| Some(Duration::from_micros(*bound)));
        bounds.chain([None]).zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_that_it_does_not_exceed() {
        let mut durations = Durations::default();
        for us in [0, 100, 101, 1_000, 30_000_000, 30_000_001] {
            durations.record(Duration::from_micros(us));
        }
        let filled = durations.buckets().filter(|(_, count)| *count > 0);
        let filled: Vec<_> =
            filled.map(|(bound, count)| (bound.map(|b| b.as_micros()), count)).collect();
        let expected =
            [(Some(100), 2), (Some(250), 1), (Some(1_000), 1), (Some(30_000_000), 1), (None, 1)];
        assert_eq!(filled, expected);
        assert_eq!((durations.count(), durations.sum().as_micros()), (6, 60_001_202));
        assert!(BOUNDS_US.is_sorted());
    }

    #[test]
    fn what_takes_for_ever_is_counted() {
        let mut durations = Durations::default();
        durations.record(Duration::MAX);
        durations.record(Duration::MAX);
        assert_eq!((durations.count(), durations.sum()), (2, Duration::from_micros(u64::MAX)));
    }
}
