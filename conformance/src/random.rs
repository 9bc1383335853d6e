//! Draws random sequences: the n-th of a seed is always the same.

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{arm::Broken, generate, step::Step};

/// Steps of a random sequence.
const STEPS: std::ops::Range<usize> = 10..40;

/// Draws sequences, one after the other.
#[derive(Debug)]
pub struct Draw {
    runner: TestRunner,
    drawn: u64,
}

impl Draw {
    /// The sequences of a seed.
    pub fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let runner = TestRunner::new_with_rng(Config::default(), rng);
        Self { runner, drawn: 0 }
    }

    /// The next one, with its number from 1.
    ///
    /// # Errors
    /// [`Broken::Harness`] if none can be drawn.
    pub fn draw(&mut self) -> Result<(u64, Vec<Step>), Broken> {
        let tree = generate::sequence(STEPS).new_tree(&mut self.runner);
        let steps = tree.map_err(|reason| Broken::Harness(reason.to_string()))?.current();
        self.drawn += 1;
        Ok((self.drawn, steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequences_of_a_seed_are_always_the_same() {
        let three = |seed| {
            let mut draw = Draw::new(seed);
            [(); 3].map(|()| draw.draw().unwrap())
        };
        let [(first, one), (second, two), _] = three(7);
        assert_eq!((first, second), (1, 2));
        assert_ne!(one, two);
        assert_eq!(three(7)[0].1, one);
        assert_ne!(three(8)[0].1, one);
    }
}
