//! Rounds in which the contestants take turns.
//!
//! A neighbour on the machine slows whatever runs at that moment. Short turns, one after another, let it
//! slow all contestants alike; a ratio is taken within a round, and the median over rounds is reported with
//! the quartiles, so that a disturbed round does not count.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// One contestant's turn: does a fixed amount of work.
pub type Turn<'a> = Box<dyn FnMut() + 'a>;

/// What the rounds gave for one contestant.
#[derive(Clone, Debug)]
pub struct Times {
    /// Seconds of each round's turn.
    pub seconds: Vec<f64>,
}

impl Times {
    /// Median seconds of a turn.
    pub fn median(&self) -> f64 {
        quantile(&self.seconds, 0.5)
    }

    /// Lower quartile, median and upper quartile of this one's time over `rival`'s in the same round.
    pub fn over(&self, rival: &Self) -> [f64; 3] {
        let ratios: Vec<f64> =
            self.seconds.iter().zip(&rival.seconds).map(|(ours, theirs)| ours / theirs).collect();
        [0.25, 0.5, 0.75].map(|q| quantile(&ratios, q))
    }
}

/// Runs every contestant once in each of `rounds` rounds, the first of a round changing from round to round,
/// after one turn each that is not counted.
pub fn interleave(rounds: usize, mut turns: Vec<Turn<'_>>) -> Vec<Times> {
    turns.iter_mut().for_each(|turn| turn());
    let mut times = vec![Times { seconds: Vec::with_capacity(rounds) }; turns.len()];
    for round in 0..rounds {
        for step in 0..turns.len() {
            let contestant = (round + step) % turns.len();
            let started = now();
            turns[contestant]();
            times[contestant].seconds.push((now() - started).as_secs_f64());
        }
    }
    times
}

/// The `q` quantile of `values`, by the nearest rank.
///
/// # Panics
/// If there are none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// Time since some moment of the past that never goes back.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_round_does_not_move_the_ratio() {
        let ours = Times { seconds: vec![2.0, 2.0, 40.0, 2.0, 2.0] };
        let theirs = Times { seconds: vec![4.0, 4.0, 4.0, 4.0, 80.0] };
        assert_eq!(ours.over(&theirs)[1], 0.5);
    }

    #[test]
    fn contestants_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let order = &order;
        let turn = |name| -> Turn<'_> { Box::new(move || order.borrow_mut().push(name)) };
        let (a, b) = (turn('a'), turn('b'));
        let times = interleave(3, vec![a, b]);
        assert_eq!(*order.borrow(), "ababbaab");
        assert_eq!(times.iter().map(|times| times.seconds.len()).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert_eq!(quantile(&[5.0, 1.0, 3.0], 0.5), 3.0);
        assert_eq!(quantile(&[5.0, 1.0, 3.0], 1.0), 5.0);
        assert_eq!(quantile(&[5.0], 0.25), 5.0);
    }
}
