//! When two observations are equal, and the ways in which they may differ.
//!
//! A divergence is a rule of its own: it says what exactly may differ and where, `DIVERGENCES.md` gives the
//! reason under the same name, and the report counts how often each was used. Everything else is a
//! difference.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{arm::Observed, step::Call};

/// A way in which the fake may differ from the real store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Divergence {
    /// What lies in the destination of a get that failed in its transfer (-800).
    BytesOfFailedTransfer,
    /// -900 instead of -901 from a master that hangs.
    HungMaster,
    /// Which items of a batch fail whose fragments overflow a peer's queue.
    FragmentOverflow,
}

impl Divergence {
    /// All of them.
    pub const ALL: [Self; 3] =
        [Self::BytesOfFailedTransfer, Self::HungMaster, Self::FragmentOverflow];
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = serde_json::to_value(self).ok();
        f.write_str(name.as_ref().and_then(|name| name.as_str()).unwrap_or("?"))
    }
}

/// What is true around a call, as far as a divergence depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    /// The master is stopped.
    pub master_hangs: bool,
    /// There is no master.
    pub master_is_down: bool,
}

/// How two observations of one call compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Alike in everything.
    Equal,
    /// Alike but for what these allow.
    Allowed(Vec<Divergence>),
    /// Different, in words.
    Different(String),
}

const TRANSFER_FAIL: i64 = -800;
const RPC_FAIL: i64 = -900;
const RPC_TIMEOUT: i64 = -901;

/// Fragments of one batch to one peer, above which the outcome depends on timing.
const FRAGMENTS_MAX: usize = 2048;

/// Compares what a call showed in both arms.
pub fn compare(call: &Call, around: Circumstances, fake: &Observed, real: &Observed) -> Verdict {
    let mut used = Vec::new();
    if fake.codes.len() != real.codes.len() || fake.memory.len() != real.memory.len() {
        return Verdict::Different("another number of results".into());
    }
    if fake.overrun || real.overrun {
        return Verdict::Different("bytes outside of the destination changed".into());
    }
    for (item, (fake, real)) in fake.codes.iter().zip(&real.codes).enumerate() {
        if fake == real {
            continue;
        }
        match code_may_differ(call, around, *fake, *real) {
            Some(divergence) => used.push(divergence),
            None => return Verdict::Different(format!("item {item}: the codes differ")),
        }
    }
    for (item, (in_fake, in_real)) in fake.memory.iter().zip(&real.memory).enumerate() {
        if in_fake == in_real {
            continue;
        }
        if real.codes.get(item) != Some(&TRANSFER_FAIL) {
            return Verdict::Different(format!("item {item}: the destinations differ"));
        }
        used.push(Divergence::BytesOfFailedTransfer);
    }
    used.sort_unstable();
    used.dedup();
    if used.is_empty() { Verdict::Equal } else { Verdict::Allowed(used) }
}

fn code_may_differ(call: &Call, around: Circumstances, fake: i64, real: i64) -> Option<Divergence> {
    if around.master_hangs && fake == RPC_TIMEOUT && real == RPC_FAIL {
        return Some(Divergence::HungMaster);
    }
    let failed_one = (fake == TRANSFER_FAIL) != (real == TRANSFER_FAIL);
    (fragments(call) > FRAGMENTS_MAX && failed_one).then_some(Divergence::FragmentOverflow)
}

/// Pieces that a batch means on the wire.
fn fragments(call: &Call) -> usize {
    match call {
        Call::BatchPutFromMultiBuffers { objects, .. } => {
            objects.iter().map(|object| object.parts.len()).sum()
        }
        Call::BatchGetIntoMultiBuffers { rooms } => rooms.iter().map(|room| room.parts.len()).sum(),
        _ => call.keys().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(codes: &[i64], memory: &[u32]) -> Observed {
        Observed { codes: codes.to_vec(), memory: memory.to_vec(), overrun: false }
    }

    fn get() -> Call {
        Call::BatchGetInto { rooms: Vec::new() }
    }

    #[test]
    fn every_part_of_an_observation_counts() {
        let one = seen(&[5, -704], &[1, 2]);
        let check = |other: &Observed| compare(&get(), Circumstances::default(), &one, other);
        assert_eq!(check(&one), Verdict::Equal);
        for other in [
            seen(&[5, -703], &[1, 2]),
            seen(&[5, -704], &[1, 3]),
            seen(&[5], &[1, 2]),
            seen(&[5, -704], &[1]),
            Observed { overrun: true, ..one.clone() },
        ] {
            assert!(matches!(check(&other), Verdict::Different(_)), "{other:?}");
        }
    }

    #[test]
    fn a_divergence_allows_what_it_says_and_no_more() {
        let hangs = Circumstances { master_hangs: true, ..Circumstances::default() };
        let (late, refused) = (seen(&[-901], &[]), seen(&[-900], &[]));
        let key = Call::IsExist { key: "a".into() };
        let allowed = Verdict::Allowed(vec![Divergence::HungMaster]);
        assert_eq!(compare(&key, hangs, &late, &refused), allowed);
        assert_ne!(compare(&key, Circumstances::default(), &late, &refused), allowed);
        assert_ne!(compare(&key, hangs, &refused, &late), allowed);

        let allowed = Verdict::Allowed(vec![Divergence::BytesOfFailedTransfer]);
        let (some, none) = (seen(&[-800], &[1]), seen(&[-800], &[2]));
        assert_eq!(compare(&get(), Circumstances::default(), &some, &none), allowed);
        let (some, none) = (seen(&[-707], &[1]), seen(&[-707], &[2]));
        assert_ne!(compare(&get(), Circumstances::default(), &some, &none), allowed);
    }

    #[test]
    fn every_divergence_has_its_reason() {
        let reasons = include_str!("../../fake_store/DIVERGENCES.md");
        for divergence in Divergence::ALL {
            assert!(reasons.contains(&format!("`{divergence}`")), "{divergence} has no reason");
        }
    }
}
