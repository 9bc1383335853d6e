//! What a pool is made of, and why one could not be made.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{extents::MAX_EXTENTS, region_file::RegionError};
use crate::size;

/// Bytes that every unit holds on top of its payload: room for one object header in a block of any order.
pub const UNIT_HEADER: u64 = 64;

/// Size, memory and policies of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Bytes to use at most; the region is the whole units that fit in them.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub bytes: u64,
    /// Payload bytes of one unit, a power of two of at least 64. The unit is [`UNIT_HEADER`] more, so that a
    /// block of order `n` holds a payload of `unit_payload << n` and its header.
    #[serde(default = "default_unit_payload")]
    pub unit_payload: u32,
    /// Blocks that one allocation may be scattered over, 1 to [`MAX_EXTENTS`].
    #[serde(default = "default_max_extents")]
    pub max_extents: usize,
    /// Where the memory comes from.
    #[serde(default)]
    pub backing: Backing,
    /// Which residents go first.
    #[serde(default)]
    pub eviction: EvictionPolicy,
    /// Bytes that may be quarantined before allocations are refused.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub quarantine_max: u64,
}

impl PoolConfig {
    /// A pool of `bytes` of anonymous memory with the defaults; a quarter of it may be quarantined.
    pub fn with_bytes(bytes: u64) -> Self {
        Self {
            bytes,
            unit_payload: default_unit_payload(),
            max_extents: default_max_extents(),
            backing: Backing::default(),
            eviction: EvictionPolicy::default(),
            quarantine_max: bytes / 4,
        }
    }

    /// Bytes of one unit.
    pub fn unit(&self) -> u64 {
        u64::from(self.unit_payload) + UNIT_HEADER
    }

    /// Whole units in [`PoolConfig::bytes`].
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn units(&self) -> Result<u32, PoolError> {
        let out_of_range = |field, got, expected| PoolError::Config { field, got, expected };
        if !self.unit_payload.is_power_of_two() || self.unit_payload < 64 {
            let expected = "a power of two of at least 64";
            return Err(out_of_range("unit_payload", self.unit_payload.into(), expected));
        }
        if !(1..=MAX_EXTENTS).contains(&self.max_extents) {
            return Err(out_of_range("max_extents", self.max_extents as u64, "1 to 16"));
        }
        match u32::try_from(self.bytes / self.unit()) {
            Ok(0) => Err(out_of_range("bytes", self.bytes, "at least one unit")),
            Ok(units) if units <= 1 << 30 => Ok(units),
            _ => Err(out_of_range("bytes", self.bytes, "at most 2^30 units")),
        }
    }
}

fn default_unit_payload() -> u32 {
    32 << 10
}

fn default_max_extents() -> usize {
    8
}

/// Where a pool's memory comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// Memory of this process alone.
    #[default]
    Anonymous,
    /// A file (in `/dev/shm`) that other processes of the same instance map. The pool creates it, owns it
    /// while it lives and removes it at its end; a file that a dead owner left is replaced, one that mappers
    /// have prepared ([`Mapper::prepare`](super::Mapper::prepare)) is adopted.
    Shared(PathBuf),
}

/// Which resident is evicted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EvictionPolicy {
    /// The one published first.
    Fifo,
    /// The one whose last pin is the longest ago.
    Lru,
    /// A small queue that one-time items pass through, a main queue for those that were used again, and a
    /// memory of the keys evicted from the small one. The default: encoder outputs are either never asked
    /// for again or many times (a conversation repeats its images), and a scan of new images must not push
    /// the repeated ones out.
    #[default]
    S3Fifo,
}

/// Whether an allocation may be scattered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contiguity {
    /// One block, for stores that take one buffer per object.
    Required,
    /// Up to [`PoolConfig::max_extents`] blocks.
    Extents,
}

/// Why a pool could not be made or mapped.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A configured value is out of range.
    #[error("pool: {field} is {got}, expected {expected}")]
    Config {
        /// The field of [`PoolConfig`].
        field: &'static str,
        /// Its value.
        got: u64,
        /// The values it may have.
        expected: &'static str,
    },
    /// The memory could not be had.
    #[error("pool: {0}")]
    Region(#[from] RegionError),
}

/// Why an allocation was refused. Nothing was allocated or evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Nothing was asked for.
    #[error("an allocation of 0 bytes")]
    Empty,
    /// No state of this pool could serve it.
    #[error("{len} bytes can never fit, the most is {max}")]
    TooLarge {
        /// Bytes asked for.
        len: u64,
        /// The longest allocation of an empty pool.
        max: u64,
    },
    /// Too little is free.
    #[error("no bytes: {len} asked for, {free} free")]
    NoBytes {
        /// Bytes asked for.
        len: u64,
        /// Free bytes.
        free: u64,
    },
    /// Enough is free, but in too many pieces.
    #[error("no shape: {len} bytes asked for, {free} free, {largest} in the largest block")]
    NoShape {
        /// Bytes asked for.
        len: u64,
        /// Free bytes.
        free: u64,
        /// Bytes of the largest free block.
        largest: u64,
    },
    /// The quarantine is over its budget: the store has to end its I/O, or be fenced, first.
    #[error("quarantine holds {quarantined} bytes, its budget is {max}")]
    QuarantineFull {
        /// Quarantined bytes.
        quarantined: u64,
        /// [`PoolConfig::quarantine_max`].
        max: u64,
    },
}
