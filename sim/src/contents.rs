//! What a tensor holds: a function of model, identifier and length, so that everybody can check it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use springtide::env::TensorSpec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::event::Check;

/// Bytes by model, identifier and length.
type Made = BTreeMap<(u32, String, u64), Arc<[u8]>>;

/// The bytes of every item, made once.
#[derive(Clone, Debug, Default)]
pub struct Contents(Arc<Mutex<Made>>);

impl Contents {
    /// The bytes that an encoder of `model` makes of an item, `bytes` of them.
    pub fn of(&self, model: u32, identifier: &str, bytes: u64) -> Arc<[u8]> {
        let mut made = self.0.lock().expect("no panic while held");
        let name = (model, identifier.to_owned(), bytes);
        Arc::clone(made.entry(name).or_insert_with(|| make(model, identifier, bytes)))
    }

    /// Compares a delivered tensor with what an encoder of `model`, one of `models`, makes of the item.
    pub fn check(
        &self,
        (model, models): (u32, u32),
        identifier: &str,
        expected: TensorSpec,
        got: (TensorSpec, &[u8]),
    ) -> Check {
        let (spec, bytes) = got;
        if spec != expected {
            return Check::Spec { expected };
        }
        let content = self.of(model, identifier, expected.bytes());
        // All at once first: byte by byte takes a while.
        if *content == *bytes {
            return Check::Equal;
        }
        let Some(first) = content.iter().zip(bytes).position(|(a, b)| a != b) else {
            return Check::Equal;
        };
        let foreign = (0..models).filter(|other| *other != model);
        if foreign.into_iter().any(|other| *self.of(other, identifier, spec.bytes()) == *bytes) {
            return Check::Foreign;
        }
        Check::Bytes { first: first as u64 }
    }
}

/// SplitMix64 from a hash of the name: every item differs from every other from its first words on.
fn make(model: u32, identifier: &str, bytes: u64) -> Arc<[u8]> {
    let mut state = xxh3_64_with_seed(identifier.as_bytes(), u64::from(model));
    let mut content = Vec::with_capacity(bytes as usize + 8);
    while content.len() < bytes as usize {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        content.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    content.truncate(bytes as usize);
    content.into()
}

#[cfg(test)]
mod tests {
    use springtide::env::{DType, Shape};

    use super::*;

    fn spec(rows: u64) -> TensorSpec {
        TensorSpec::new(DType::Bf16, Shape::rows(rows, 32).unwrap()).unwrap()
    }

    #[test]
    fn every_difference_is_told() {
        let contents = Contents::default();
        let bytes = contents.of(0, "a", 640).to_vec();
        let check = |got: (TensorSpec, &[u8])| contents.check((0, 2), "a", spec(10), got);
        assert_eq!(check((spec(10), &bytes)), Check::Equal);
        assert_eq!(check((spec(9), &bytes[..576])), Check::Spec { expected: spec(10) });
        assert_eq!(check((spec(10), &contents.of(1, "a", 640))), Check::Foreign);
        let mut flipped = bytes.clone();
        flipped[600] ^= 1;
        assert_eq!(check((spec(10), &flipped)), Check::Bytes { first: 600 });
    }

    #[test]
    fn models_and_items_differ() {
        assert_ne!(make(0, "a", 64), make(1, "a", 64));
        assert_ne!(make(0, "a", 64), make(0, "b", 64));
        assert_eq!(make(0, "a", 64)[..], make(0, "a", 65)[..64]);
    }
}
