//! I2 and I9: what is delivered is byte for byte what a producer saved under that key, type and shape
//! included, and never another model's.
//!
//! The simulator can compute an item's bytes from its name and model, so whoever receives a tensor compares
//! it on the spot; this oracle judges the comparison.

use super::{Illegal, Oracle, OracleId};
use crate::event::{Check, Event, Place};

/// See the module's text.
#[derive(Debug)]
pub struct Integrity;

impl Oracle for Integrity {
    fn observe(&mut self, _place: Place<'_>, event: &Event) -> Result<(), Illegal> {
        let Event::Delivered { key, rank, spec, check } = event else {
            return Ok(());
        };
        let oracle = match check {
            Check::Equal => return Ok(()),
            Check::Foreign => OracleId::I9,
            Check::Spec { .. } | Check::Bytes { .. } => OracleId::I2,
        };
        Err(Illegal::new(oracle, format!("{key} delivered to rank {rank} as {spec}: {check}")))
    }
}

#[cfg(test)]
mod tests {
    use springtide::env::{DType, Shape, TensorSpec};

    use super::*;
    use crate::oracle::testing::{at, judge};

    fn delivered(check: Check) -> Event {
        let spec = TensorSpec::new(DType::Bf16, Shape::rows(2, 8).unwrap()).unwrap();
        Event::Delivered { key: "k".into(), rank: 0, spec, check }
    }

    #[test]
    fn equal_tensors_are_legal() {
        assert_eq!(judge(&mut Integrity, [at(1, "p", delivered(Check::Equal))]), Ok(()));
    }

    #[test]
    fn different_tensors_are_illegal() {
        let spec = TensorSpec::new(DType::Bf16, Shape::rows(3, 8).unwrap()).unwrap();
        for (check, oracle) in [
            (Check::Bytes { first: 7 }, OracleId::I2),
            (Check::Spec { expected: spec }, OracleId::I2),
            (Check::Foreign, OracleId::I9),
        ] {
            let (_, illegal) = judge(&mut Integrity, [at(1, "p", delivered(check))]).unwrap_err();
            assert_eq!(illegal.oracle, oracle);
        }
    }
}
