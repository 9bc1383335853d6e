//! Random streams, one per purpose.
//!
//! Every draw of the simulator comes from a [`Stream`] that is named by what it is for. A new purpose, or one more
//! draw inside one, shifts nobody else's numbers. The generator is ChaCha8, whose output is fixed for all
//! platforms and releases, and the helpers that turn words into choices are written here for the same
//! reason. Only drawing a plan and the bytes of tensors use them: a plan, once drawn, runs without randomness.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng as _, SeedableRng as _},
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A deterministic source of numbers for one purpose.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of `purpose` on `host` (empty for none) under the root seed.
    pub fn new(root: u64, host: &str, purpose: &str) -> Self {
        let name = format!("{host}/{purpose}");
        let mut seed = [0; 32];
        for (part, lane) in seed.chunks_exact_mut(8).zip(0u64..) {
            let word = xxh3_64_with_seed(name.as_bytes(), root ^ lane.wrapping_mul(0x9e37_79b9));
            part.copy_from_slice(&word.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(seed))
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, every one as likely up to 2⁻⁶⁴ (multiply and shift).
    ///
    /// # Panics
    /// When `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a draw needs at least one choice");
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "empty range {low}..={high}");
        match (high - low).checked_add(1) {
            Some(choices) => low + self.below(choices),
            None => self.word(),
        }
    }

    /// True `numerator` times out of `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// One of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Puts `items` into a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// A waiting time with the given mean, geometric over steps of one thousandth of it: the integer
    /// relative of an exponential distribution. At most sixteen means.
    pub fn wait(&mut self, mean: u64) -> u64 {
        // -ln(u) by the position of the leading bit and a table of ln over one octave, in units of 1/1024.
        const LN2: u64 = 710;
        let word = self.word() | 1;
        let octaves = u64::from(word.leading_zeros());
        let mantissa = (word << octaves) >> 54;
        let within = ((1024 - mantissa.max(512)) * LN2 * 2) / 1024;
        (mean * (octaves * LN2 + within) / 1024).min(mean * 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_pinned() {
        // A change here changes every plan that a seed draws: bump the plan version when it is meant.
        let mut stream = Stream::new(7, "encoder0", "faults");
        let words: Vec<u64> = (0..3).map(|_| stream.word()).collect();
        insta::assert_debug_snapshot!(words);
    }

    #[test]
    fn purposes_are_independent() {
        let word = |host, purpose| Stream::new(1, host, purpose).word();
        assert_ne!(word("a", "x"), word("b", "x"));
        assert_ne!(word("a", "x"), word("a", "y"));
        assert_eq!(word("a", "x"), word("a", "x"));
    }

    #[test]
    fn draws_stay_in_range_and_reach_both_ends() {
        let mut stream = Stream::new(3, "", "test");
        let draws: Vec<u64> = (0..2000).map(|_| stream.between(5, 9)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&5), Some(&9)));
    }

    #[test]
    fn waits_have_their_mean() {
        let mut stream = Stream::new(3, "", "wait");
        let sum: u64 = (0..4000).map(|_| stream.wait(1000)).sum();
        assert!((850..1150).contains(&(sum / 4000)), "mean {}", sum / 4000);
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..50).collect();
        Stream::new(9, "", "shuffle").shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
