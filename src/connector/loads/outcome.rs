//! Why an item is not delivered, and what loading counts.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{connector::object::Rejection, env::ErrorCode};

/// Why a request encodes an item itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissReason {
    /// The store does not have it.
    Absent,
    /// Somebody is still writing it.
    NotReady,
    /// It was there at the lookup and gone at the load.
    Vanished,
    /// No room in the pool, and nothing in it may be evicted.
    PoolFull,
    /// Larger than the pool or than the store takes.
    TooLarge,
    /// What the store delivered is not the item.
    Rejected(Rejection),
    /// The store refused, or kept refusing until the deadline.
    Store(ErrorCode),
    /// The store ended the call without knowing whether the transfer has ended; the memory is quarantined.
    Uncertain(ErrorCode),
    /// The call outlived the I/O timeout; the store still holds the memory.
    Lost,
    /// The request's deadline came first.
    Deadline,
    /// Too many keys are under way.
    Overload,
    /// A tensor without elements: nothing to load.
    Empty,
    /// The expected shape cannot be described, or differs between requests.
    WrongSpec,
    /// The connector is shutting down, or does not load at all.
    Closed,
}

impl fmt::Display for MissReason {
    /// Name in metrics: `absent`, `rejected checksum`, `TRANSFER_FAIL (-800)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::NotReady => f.write_str("not ready"),
            Self::Vanished => f.write_str("vanished"),
            Self::PoolFull => f.write_str("pool full"),
            Self::TooLarge => f.write_str("too large"),
            Self::Rejected(rejection) => write!(f, "rejected {}", rejection.name()),
            Self::Store(code) => write!(f, "{code}"),
            Self::Uncertain(code) => write!(f, "uncertain {code}"),
            Self::Lost => f.write_str("lost"),
            Self::Deadline => f.write_str("deadline"),
            Self::Overload => f.write_str("overload"),
            Self::Empty => f.write_str("empty"),
            Self::WrongSpec => f.write_str("wrong spec"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// Counts of everything that loading did. They add up: see [`LoadCounters::check`].
///
/// A *lookup* is one item of one request, however often the engine asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadCounters {
    /// Items that requests asked for.
    pub lookups: u64,
    /// Of these, delivered from the pool or the store.
    pub hits: u64,
    /// Of the hits, those that lay in the pool already.
    pub resident_hits: u64,
    /// Encoded locally, by reason.
    pub misses: BTreeMap<String, u64>,
    /// Not decided yet.
    pub waiting: u64,
    /// Ended by the end of their request before they were decided.
    pub withdrawn: u64,
    /// Keys asked for by `exists`.
    pub exists: u64,
    /// Keys asked for by `size`.
    pub sizes: u64,
    /// Items fetched from the store.
    pub gets: u64,
    /// Bytes asked of the store.
    pub get_bytes: u64,
    /// Fetches that ended validated in the pool.
    pub loaded: u64,
    /// Fetched items that were not what was asked for, by [`Rejection::name`].
    pub rejected: BTreeMap<String, u64>,
    /// Bad objects removed from the store.
    pub removed: u64,
    /// Store errors, by code.
    pub errors: BTreeMap<String, u64>,
    /// Store calls repeated.
    pub retries: u64,
    /// Fetches whose memory went into quarantine.
    pub uncertain: u64,
    /// Store calls that outlived the I/O timeout.
    pub lost: u64,
    /// Residents evicted to make room.
    pub evicted: u64,
    /// Orders handed to the workers.
    pub orders: u64,
    /// Orders that every rank acknowledged.
    pub acknowledged: u64,
}

impl LoadCounters {
    /// Whether the counts add up.
    ///
    /// # Errors
    /// The sum that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let misses: u64 = self.misses.values().sum();
        if self.lookups == self.hits + misses + self.waiting + self.withdrawn {
            return Ok(());
        }
        Err(format!(
            "lookups {} != hits {} + misses {misses} + waiting {} + withdrawn {}",
            self.lookups, self.hits, self.waiting, self.withdrawn
        ))
    }
}

/// Adds one under a name.
pub(in crate::connector) fn bump(counts: &mut BTreeMap<String, u64>, name: impl fmt::Display) {
    *counts.entry(name.to_string()).or_default() += 1;
}
