//! Mooncake's master as a pure state machine.
//!
//! [`Master::handle`] takes a request and the time and gives the reply; [`Master::tick`] is one turn of the
//! loops that Mooncake runs in threads: the evictor every 10 ms, the check of clients every second. Nothing
//! here knows a clock, a socket or a source of randomness other than the seed; the same calls at the same
//! times give the same replies. What became of objects is written to a history ([`Master::drain_history`]).
//!
//! | file | idea |
//! |---|---|
//! | `objects` | put, upsert, end, revoke, query, exist; leases and pins |
//! | `remove` | the four ways to remove |
//! | `eviction` | watermark rounds, space held back for dead writers |
//! | `clients` | mount, ping, expiry |
//! | `segments`, `allocator` | where replicas go |
//!
//! Behaviour follows Mooncake as of August 2026, measured against the real master; `DIVERGENCES.md` lists
//! what differs.

mod allocator;
mod clients;
mod eviction;
mod history;
mod knobs;
mod objects;
mod remove;
mod segments;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use springtide::env::{ErrorCode, Time};

use self::{
    clients::Clients,
    eviction::Discarded,
    history::History,
    objects::Object,
    segments::{Extent, Segments},
};
pub use self::{
    history::{Event, EventKind, RemovedBy, SegmentEnd},
    knobs::{KnobError, Knobs, Placement},
    objects::ObjectState,
};
use crate::{
    protocol::{Call, Code, NewObject, ReplicaConfig, Reply, Request},
    rng::Rng,
};

/// How often the master's evictor runs: the period of [`Master::tick`].
pub const TICK: Duration = Duration::from_millis(10);

/// The state of a master.
#[derive(Clone, Debug)]
pub struct Master {
    knobs: Knobs,
    rng: Rng,
    objects: BTreeMap<String, Object>,
    segments: Segments,
    clients: Clients,
    discarded: Vec<Discarded>,
    need_eviction: bool,
    last_sweep: Time,
    /// Orders what happens at one instant.
    turn: u64,
    history: History,
    counters: Counters,
}

/// What a master has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Starts of puts and upserts that found no room.
    pub starts_without_room: u64,
    /// Rounds of the evictor, with or without a victim.
    pub eviction_rounds: u64,
    /// Objects evicted.
    pub evicted: u64,
    /// Bytes of objects evicted.
    pub evicted_bytes: u64,
    /// Unfinished puts set aside or dropped.
    pub unfinished_discarded: u64,
    /// Discarded puts whose space became free.
    pub discarded_released: u64,
    /// Clients given up for want of pings.
    pub clients_expired: u64,
    /// Events that the history dropped.
    pub history_dropped: u64,
}

/// A view of the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Readable objects.
    pub complete: usize,
    /// Objects being put or overwritten.
    pub writing: usize,
    /// Bytes asked for by all live replicas and by discarded ones.
    pub used_bytes: u64,
    /// Bytes of all mounted segments.
    pub capacity_bytes: u64,
    /// Bytes held back for dead writers.
    pub discarded_bytes: u64,
    /// Whether a put failed for want of room since the evictor last got anywhere.
    pub need_eviction: bool,
}

impl Master {
    /// A new, empty master. `seed` decides random placement.
    ///
    /// # Errors
    /// [`KnobError`] as [`Knobs::validate`] gives it.
    pub fn new(now: Time, knobs: Knobs, seed: u64) -> Result<Self, KnobError> {
        knobs.validate()?;
        Ok(Self {
            rng: Rng::new(seed),
            objects: BTreeMap::new(),
            segments: Segments::new(knobs.bin_rounding, knobs.placement.clone()),
            clients: Clients::new(now),
            discarded: Vec::new(),
            need_eviction: false,
            last_sweep: now,
            turn: 0,
            history: History::new(knobs.history_max),
            counters: Counters::default(),
            knobs,
        })
    }

    /// Does what a new process at the same address does: all metadata is gone. History, counters and the
    /// stream of random numbers go on.
    pub fn restart(&mut self, now: Time) {
        for (key, _) in self.objects.iter().filter(|(_, object)| !object.writing) {
            self.history.push(now, key, EventKind::Restarted);
        }
        self.objects.clear();
        self.segments.clear();
        self.clients = Clients::new(now);
        self.discarded.clear();
        self.need_eviction = false;
        self.last_sweep = now;
    }

    /// Answers one request.
    pub fn handle(&mut self, now: Time, request: Request) -> Reply {
        let client = request.client;
        match request.call {
            Call::PutStart { objects, config } => {
                Reply::Started(self.each(objects, |master, NewObject { key, bytes }| {
                    master.put_start(now, client, &key, bytes, &config)
                }))
            }
            Call::UpsertStart { objects, config } => {
                Reply::Started(self.each(objects, |master, NewObject { key, bytes }| {
                    master.upsert_start(now, client, &key, bytes, &config)
                }))
            }
            Call::PutEnd { keys } => {
                Reply::Done(self.each(keys, |master, key| master.put_end(now, client, &key)))
            }
            Call::PutRevoke { keys } => {
                Reply::Done(self.each(keys, |master, key| master.put_revoke(now, client, &key)))
            }
            Call::Query { keys } | Call::Size { keys } => {
                Reply::Found(self.each(keys, |master, key| master.query(now, &key)))
            }
            Call::Exist { keys } => {
                Reply::Exists(self.each(keys, |master, key| Ok(master.exist(now, &key))))
            }
            Call::Remove { keys, force } => {
                Reply::Done(self.each(keys, |master, key| master.remove(now, client, &key, force)))
            }
            Call::RemoveByRegex { pattern, force } => {
                Reply::Removed(self.remove_by_regex(now, client, &pattern, force).map_err(Code))
            }
            Call::RemoveAll { force } => Reply::Removed(Ok(self.remove_all(now, client, force))),
            Call::Mount { segment } => {
                Reply::Segment(self.mount(now, client, segment).map_err(Code))
            }
            Call::Unmount { segment } => {
                self.unmount(now, segment);
                Reply::Segment(Ok(()))
            }
            Call::Ping => Reply::Pong(self.ping(now, client)),
            Call::Remount { segments } => {
                Reply::Segment(self.remount(now, client, segments).map_err(Code))
            }
        }
    }

    /// One turn of the master's own loops. To be called every [`TICK`]; the check of clients runs at every
    /// first call after a full second.
    pub fn tick(&mut self, now: Time) {
        self.check_clients(now);
        self.evict_or_sweep(now);
    }

    /// The events since the last call.
    pub fn drain_history(&mut self) -> Vec<Event> {
        self.history.drain()
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        Counters { history_dropped: self.history.dropped(), ..self.counters }
    }

    /// What it holds now.
    pub fn usage(&self) -> Usage {
        let writing = self.objects.values().filter(|object| object.writing).count();
        Usage {
            complete: self.objects.len() - writing,
            writing,
            used_bytes: self.segments.used_bytes(),
            capacity_bytes: self.segments.capacity_bytes(),
            discarded_bytes: self.discarded_extents().map(|extent| extent.bytes).sum(),
            need_eviction: self.need_eviction,
        }
    }

    /// An object as it is, without taking a lease.
    pub fn peek(&self, key: &str) -> Option<ObjectState> {
        self.objects.get(key).map(|object| object.state(&self.segments))
    }

    /// All keys, in order, without taking leases.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }

    /// The knobs it was made with.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Gives leases of another length from now on; those that were given stay as they are.
    pub fn set_lease_ttl(&mut self, lease_ttl: std::time::Duration) {
        self.knobs.lease_ttl = lease_ttl;
    }

    /// Checks the invariants: live space never overlaps, every byte of every segment is accounted for, and
    /// what objects and discarded puts hold is what the allocators have lent.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn verify(&self) -> Result<(), String> {
        self.segments.verify()?;
        let objects = self.objects.values().flat_map(|object| &object.extents);
        let held: u64 = objects.chain(self.discarded_extents()).map(|extent| extent.bytes).sum();
        let lent = self.segments.used_bytes();
        if held != lent {
            return Err(format!("objects and discarded puts hold {held} bytes, {lent} are lent"));
        }
        for (key, object) in &self.objects {
            if object.extents.is_empty() {
                return Err(format!("{key} has no replica"));
            }
        }
        Ok(())
    }

    fn discarded_extents(&self) -> impl Iterator<Item = &Extent> {
        self.discarded.iter().flat_map(|discarded| &discarded.extents)
    }

    /// Applies `call` to each item in order and makes its results serializable.
    fn each<T, R>(
        &mut self,
        items: Vec<T>,
        mut call: impl FnMut(&mut Self, T) -> Result<R, ErrorCode>,
    ) -> Vec<Result<R, Code>> {
        items.into_iter().map(|item| call(self, item).map_err(Code)).collect()
    }

    /// Refuses what Mooncake refuses before it looks at the key.
    fn check_new(&self, key: &str, bytes: u64, config: &ReplicaConfig) -> Result<(), ErrorCode> {
        let pin_too_long = match config.soft_pin {
            crate::protocol::SoftPin::EnableFor(ttl) => ttl > self.knobs.soft_pin_ttl_max,
            _ => false,
        };
        if key.is_empty() || bytes == 0 || config.replica_num == 0 || pin_too_long {
            return Err(ErrorCode::InvalidParams);
        }
        Ok(())
    }
}
