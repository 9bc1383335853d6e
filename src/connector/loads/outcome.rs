//! Why an item is not delivered, and what loading counts.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{connector::object::Rejection, durations::Durations, env::ErrorCode};

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
    /// Of these, those for which there was no room in the pool, so that the store was not asked.
    pub no_room: u64,
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

/// How long the stages of loads took. They agree with the counters: see [`LoadTimes::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadTimes {
    /// Questions whether the store has an item, an item each.
    pub lookup: Durations,
    /// Gets, an item each.
    pub get: Durations,
    /// Validations of what was fetched.
    pub validate: Durations,
    /// Items that were loaded, from the first request for them to their place in the pool.
    pub load: Durations,
}

impl LoadTimes {
    /// Whether the numbers of stages agree with the counters, once no store call is under way.
    ///
    /// # Errors
    /// The stage that does not, in words.
    pub fn check(&self, counters: &LoadCounters) -> Result<(), String> {
        let rejected: u64 = counters.rejected.values().sum();
        for (stage, durations, least, most) in [
            ("lookup", &self.lookup, counters.exists, counters.exists),
            ("get", &self.get, counters.gets - counters.no_room, counters.gets - counters.no_room),
            // Some are rejected by their size alone.
            ("validate", &self.validate, counters.loaded, counters.loaded + rejected),
            ("load", &self.load, counters.loaded, counters.loaded),
        ] {
            let count = durations.count();
            if !(least..=most).contains(&count) {
                let text =
                    format!("stage {stage} was timed {count} times, expected {least} to {most}");
                return Err(text);
            }
        }
        Ok(())
    }
}

impl LoadCounters {
    /// Whether the counts add up, and none is larger than what it is a part of.
    ///
    /// # Errors
    /// The sum that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let misses: u64 = self.misses.values().sum();
        if self.lookups != self.hits + misses + self.waiting + self.withdrawn {
            return Err(format!(
                "lookups {} != hits {} + misses {misses} + waiting {} + withdrawn {}",
                self.lookups, self.hits, self.waiting, self.withdrawn
            ));
        }
        let rejected: u64 = self.rejected.values().sum();
        let gets_ended = self.loaded + self.no_room + self.uncertain + self.lost;
        within(&[
            ("resident hits", self.resident_hits, "hits", self.hits),
            ("gets that ended", gets_ended, "gets", self.gets),
            ("removed", self.removed, "rejected", rejected),
            ("rejected", rejected, "gets and size calls", self.gets + self.sizes),
            ("orders", self.orders, "hits", self.hits),
            ("acknowledged", self.acknowledged, "orders", self.orders),
        ])
    }
}

/// Whether each part is at most the whole that it belongs to.
pub(in crate::connector) fn within(parts: &[(&str, u64, &str, u64)]) -> Result<(), String> {
    match parts.iter().find(|(_, part, _, whole)| part > whole) {
        None => Ok(()),
        Some((name, part, of, whole)) => Err(format!("{name} {part} > {of} {whole}")),
    }
}

/// Adds one under a name.
pub(in crate::connector) fn bump(counts: &mut BTreeMap<String, u64>, name: impl fmt::Display) {
    *counts.entry(name.to_string()).or_default() += 1;
}
