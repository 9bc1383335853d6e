//! The pool against a model of it: a shadow map of byte ranges, and what every byte must hold.
//!
//! Sequences of everything that a pool's user and a card can do, late writes included. After each step the
//! pool's own verification must hold, its accounts must be the model's, every allocation's blocks must be
//! disjoint from all others', and every readable byte must be the one its owner wrote.

mod entry;
mod model;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use springtide::pool::{Contiguity, EvictionPolicy, MAX_EXTENTS, PoolConfig, UNIT_HEADER};

pub use self::model::Model;

/// Bytes of one unit in these pools.
pub const UNIT: u64 = 512 + UNIT_HEADER;

/// Item sizes of real encoders in MiB; one byte here stands for a KiB there.
const SIZES_MIB: [f64; 13] =
    [1.0, 1.8, 2.5, 3.6, 4.0, 5.3, 8.3, 10.5, 16.0, 18.4, 32.0, 63.8, 255.0];

/// One step. Numbers choose among whatever is in the right state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is named after the call that it makes")]
pub enum Step {
    Allocate { len: u64, contiguity: Contiguity },
    DropLease(usize),
    Lend(usize),
    Write(usize),
    Finish(usize),
    DropTransfer(usize),
    Quarantine(usize),
    LateWrite(usize),
    Release(usize),
    ReleaseAll,
    Publish { choice: usize, tag: u64 },
    Pin(usize),
    ClonePin(usize),
    Unpin(usize),
    Reclaim(usize),
    Discard(usize),
    UseStale(usize),
    Evict { len: u64, contiguity: Contiguity },
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => prop::sample::select(SIZES_MIB.as_slice())
            .prop_map(|mib| (mib * 1024.0) as u64 + UNIT_HEADER),
        3 => 1..6 * UNIT,
        1 => Just(0),
        1 => Just(UNIT),
        1 => any::<u64>(),
    ]
}

fn contiguity() -> impl Strategy<Value = Contiguity> {
    prop_oneof![3 => Just(Contiguity::Extents), 1 => Just(Contiguity::Required)]
}

/// Draws a step.
pub fn step() -> impl Strategy<Value = Step> {
    let choice = any::<usize>;
    prop_oneof![
        10 => (len(), contiguity()).prop_map(|(len, contiguity)| Step::Allocate { len, contiguity }),
        2 => choice().prop_map(Step::DropLease),
        6 => choice().prop_map(Step::Lend),
        3 => choice().prop_map(Step::Write),
        5 => choice().prop_map(Step::Finish),
        1 => choice().prop_map(Step::DropTransfer),
        1 => choice().prop_map(Step::Quarantine),
        2 => choice().prop_map(Step::LateWrite),
        1 => choice().prop_map(Step::Release),
        1 => Just(Step::ReleaseAll),
        6 => (choice(), 0..20u64).prop_map(|(choice, tag)| Step::Publish { choice, tag }),
        5 => choice().prop_map(Step::Pin),
        2 => choice().prop_map(Step::ClonePin),
        7 => choice().prop_map(Step::Unpin),
        2 => choice().prop_map(Step::Reclaim),
        2 => choice().prop_map(Step::Discard),
        3 => choice().prop_map(Step::UseStale),
        5 => (len(), contiguity()).prop_map(|(len, contiguity)| Step::Evict { len, contiguity }),
    ]
}

/// Draws the size and the policies of a small pool.
pub fn config() -> impl Strategy<Value = PoolConfig> {
    let policy = prop::sample::select(
        [EvictionPolicy::Fifo, EvictionPolicy::Lru, EvictionPolicy::S3Fifo].as_slice(),
    );
    let units = prop_oneof![1 => 1..4u64, 2 => 4..64u64, 3 => 64..700u64, 1 => Just(512)];
    (units, 0..UNIT, 1..=MAX_EXTENTS, policy, 0..3u64).prop_map(
        |(units, more, max_extents, eviction, quarantine)| PoolConfig {
            unit_payload: 512,
            max_extents,
            eviction,
            quarantine_max: units * UNIT * quarantine / 2,
            ..PoolConfig::with_bytes(units * UNIT + more)
        },
    )
}

/// Plays a sequence on a new pool, and gives everything back.
///
/// # Panics
/// If the pool does not keep to its model.
pub fn play(config: &PoolConfig, steps: impl IntoIterator<Item = Step>) {
    let mut model = Model::new(config);
    for step in steps {
        model.run(step);
    }
    model.finish(config);
}
