//! The pool, by sequences of operations.

use springtide::pool::{EvictionPolicy, MAX_EXTENTS, PoolConfig};
use springtide_testing::pool::{Step, UNIT, play};

/// Steps that one input may have: each is followed by a verification of everything.
const STEPS_MAX: usize = 48;

/// Four bytes of configuration, then steps in the form of postcard, up to the first that is none.
pub fn run(bytes: &[u8]) {
    let Some((&[units, extents, policy, quarantine], mut rest)) = bytes.split_first_chunk() else {
        return;
    };
    let units = u64::from(units % 96) + 1;
    let config = PoolConfig {
        unit_payload: 512,
        max_extents: 1 + usize::from(extents) % MAX_EXTENTS,
        eviction: [EvictionPolicy::Fifo, EvictionPolicy::Lru, EvictionPolicy::S3Fifo]
            [usize::from(policy) % 3],
        quarantine_max: units * UNIT * u64::from(quarantine % 3) / 2,
        ..PoolConfig::with_bytes(units * UNIT)
    };
    let mut steps = Vec::new();
    while steps.len() < STEPS_MAX
        && let Ok((step, after)) = postcard::take_from_bytes::<Step>(rest)
    {
        steps.push(step);
        rest = after;
    }
    play(&config, steps);
}
