//! Objects: how they are put, overwritten and found, and what protects them.
//!
//! An object is *being written* or complete; both with their space allocated. It becomes visible in one step
//! when its put ends. Reads take a lease that ends at `now + ttl` and never earlier than an older one; puts
//! take none. All replicas of an object share their state, because memory replicas start and end together.

use std::time::Duration;

use springtide::env::{ErrorCode, Time};

use super::{EventKind, Master, eviction::Discarded, segments::Extent, segments::Segments};
use crate::protocol::{ClientId, Readable, Replica, ReplicaConfig, SoftPin};

/// The end of a lease, ordered also among those that end at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Lease {
    pub(super) until: Time,
    pub(super) turn: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Who put it, or is overwriting it.
    pub(super) owner: ClientId,
    pub(super) bytes: u64,
    pub(super) put_start: Time,
    pub(super) lease: Lease,
    pub(super) hard_pin: bool,
    pub(super) soft_pin_until: Option<Time>,
    /// The soft pin that begins when the write ends.
    soft_pin_at_end: Option<Duration>,
    /// Between start and end of a put or upsert.
    pub(super) writing: bool,
    pub(super) extents: Vec<Extent>,
}

impl Object {
    pub(super) fn is_leased(&self, now: Time) -> bool {
        self.lease.until > now
    }

    pub(super) fn is_soft_pinned(&self, now: Time) -> bool {
        self.soft_pin_until.is_some_and(|until| until > now)
    }

    pub(super) fn state(&self, segments: &Segments) -> ObjectState {
        ObjectState {
            owner: self.owner,
            bytes: self.bytes,
            writing: self.writing,
            put_start: self.put_start,
            leased_until: self.lease.until,
            soft_pinned_until: self.soft_pin_until,
            hard_pinned: self.hard_pin,
            replicas: self.extents.iter().map(|extent| segments.replica(extent)).collect(),
        }
    }
}

/// An object from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    /// Who put it, or is overwriting it.
    pub owner: ClientId,
    /// Its length.
    pub bytes: u64,
    /// Whether it is being written, and so unreadable.
    pub writing: bool,
    /// When its last put or upsert started.
    pub put_start: Time,
    /// When its lease ends or ended; the end of its put if nobody has read it.
    pub leased_until: Time,
    /// When its soft pin ends or ended.
    pub soft_pinned_until: Option<Time>,
    /// Whether it is never evicted.
    pub hard_pinned: bool,
    /// Where it lies.
    pub replicas: Vec<Replica>,
}

impl Master {
    /// Starts a put: allocates its space and enters it as being written.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] for an empty key, no bytes, no replicas or too long a soft pin,
    /// [`ErrorCode::ObjectAlreadyExists`] also while somebody else is writing it,
    /// [`ErrorCode::NoAvailableHandle`] without room for one replica; the evictor is told then.
    pub fn put_start(
        &mut self,
        now: Time,
        client: ClientId,
        key: &str,
        bytes: u64,
        config: &ReplicaConfig,
    ) -> Result<Vec<Replica>, ErrorCode> {
        self.check_new(key, bytes, config)?;
        if let Some(object) = self.objects.get(key) {
            if !object.writing || object.put_start + self.knobs.put_start_discard_timeout >= now {
                return Err(ErrorCode::ObjectAlreadyExists);
            }
            let due = object.put_start + self.knobs.put_start_release_timeout;
            self.discard(key, due);
            self.history.push(now, key, EventKind::SetAside { by: client });
        }
        self.enter(now, client, key, bytes, config, None)
    }

    /// Starts a put that replaces what exists: in place if the length is the same, else into new space, with
    /// the old object lost even if there is no room for the new one. Takes a put in progress over at once.
    ///
    /// # Errors
    /// As [`Master::put_start`], except that an existing object is none.
    pub fn upsert_start(
        &mut self,
        now: Time,
        client: ClientId,
        key: &str,
        bytes: u64,
        config: &ReplicaConfig,
    ) -> Result<Vec<Replica>, ErrorCode> {
        self.check_new(key, bytes, config)?;
        let Some(object) = self.objects.get_mut(key) else {
            return self.enter(now, client, key, bytes, config, None);
        };
        let due = now + self.knobs.put_start_release_timeout;
        let soft_pin_until = object.soft_pin_until.filter(|until| *until > now);
        if object.writing {
            self.discard(key, due);
            self.history.push(now, key, EventKind::SetAside { by: client });
            return self.enter(now, client, key, bytes, config, soft_pin_until);
        }
        if object.bytes == bytes {
            object.owner = client;
            object.put_start = now;
            object.writing = true;
            object.soft_pin_at_end = soft_pin(config, self.knobs.soft_pin_ttl);
            let extents = &object.extents;
            let replicas = extents.iter().map(|extent| self.segments.replica(extent)).collect();
            self.history.push(now, key, EventKind::Overwriting { client });
            return Ok(replicas);
        }
        let hard_pin = config.hard_pin || object.hard_pin;
        let config = ReplicaConfig { hard_pin, ..config.clone() };
        self.discard(key, due);
        let entered = self.enter(now, client, key, bytes, &config, soft_pin_until);
        let event = match &entered {
            Ok(_) => EventKind::Overwriting { client },
            Err(code) => EventKind::upsert_lost(client, *code),
        };
        self.history.push(now, key, event);
        entered
    }

    /// Ends a put or upsert: the object is visible from now on.
    ///
    /// # Errors
    /// [`ErrorCode::ObjectNotFound`] when it has vanished, [`ErrorCode::IllegalClient`] when it belongs to
    /// somebody else by now.
    pub fn put_end(&mut self, now: Time, client: ClientId, key: &str) -> Result<(), ErrorCode> {
        let turn = self.next_turn();
        let object = self.objects.get_mut(key).ok_or(ErrorCode::ObjectNotFound)?;
        if object.owner != client {
            return Err(ErrorCode::IllegalClient);
        }
        if !object.writing {
            return Ok(());
        }
        object.writing = false;
        object.lease = object.lease.max(Lease { until: now, turn });
        if let Some(ttl) = object.soft_pin_at_end.take() {
            object.soft_pin_until = Some(now + ttl);
        }
        let (bytes, replicas) = (object.bytes, object.extents.len());
        self.history.push(now, key, EventKind::Stored { client, bytes, replicas });
        Ok(())
    }

    /// Gives a put or upsert up: the object is gone and its space free at once.
    ///
    /// # Errors
    /// As [`Master::put_end`]; [`ErrorCode::InvalidWrite`] when nothing is in progress.
    pub fn put_revoke(&mut self, now: Time, client: ClientId, key: &str) -> Result<(), ErrorCode> {
        let object = self.objects.get(key).ok_or(ErrorCode::ObjectNotFound)?;
        if object.owner != client {
            return Err(ErrorCode::IllegalClient);
        }
        if !object.writing {
            return Err(ErrorCode::InvalidWrite);
        }
        self.erase(key);
        self.history.push(now, key, EventKind::Revoked { client });
        Ok(())
    }

    /// Where an object lies; takes a lease.
    ///
    /// # Errors
    /// [`ErrorCode::ObjectNotFound`]; [`ErrorCode::ReplicaIsNotReady`] while it is being written.
    pub fn query(&mut self, now: Time, key: &str) -> Result<Readable, ErrorCode> {
        let object = self.objects.get(key).ok_or(ErrorCode::ObjectNotFound)?;
        if object.writing {
            return Err(ErrorCode::ReplicaIsNotReady);
        }
        let extents = &object.extents;
        let replicas = extents.iter().map(|extent| self.segments.replica(extent)).collect();
        self.lease(now, key);
        Ok(Readable { replicas, lease_ttl: self.knobs.lease_ttl })
    }

    /// Whether an object is readable; takes a lease if it is.
    pub fn exist(&mut self, now: Time, key: &str) -> bool {
        let readable = self.objects.get(key).is_some_and(|object| !object.writing);
        if readable {
            self.lease(now, key);
        }
        readable
    }

    fn lease(&mut self, now: Time, key: &str) {
        let lease = Lease { until: now + self.knobs.lease_ttl, turn: self.next_turn() };
        if let Some(object) = self.objects.get_mut(key) {
            object.lease = object.lease.max(lease);
        }
    }

    /// Allocates space for a key that is not there and enters it as being written.
    fn enter(
        &mut self,
        now: Time,
        client: ClientId,
        key: &str,
        bytes: u64,
        config: &ReplicaConfig,
        soft_pin_until: Option<Time>,
    ) -> Result<Vec<Replica>, ErrorCode> {
        let ReplicaConfig { replica_num, preferred_segments, hard_pin, .. } = config;
        let rng = &mut self.rng;
        let extents = self.segments.allocate(bytes, *replica_num, preferred_segments, rng);
        if extents.is_empty() {
            self.counters.starts_without_room += 1;
            self.need_eviction |= self.segments.names().len() as u64 >= *replica_num;
            return Err(ErrorCode::NoAvailableHandle);
        }
        let replicas = extents.iter().map(|extent| self.segments.replica(extent)).collect();
        let object = Object {
            owner: client,
            bytes,
            put_start: now,
            lease: Lease::default(),
            hard_pin: *hard_pin,
            soft_pin_until,
            soft_pin_at_end: soft_pin(config, self.knobs.soft_pin_ttl),
            writing: true,
            extents,
        };
        self.objects.insert(key.to_owned(), object);
        Ok(replicas)
    }

    /// Takes an object out and holds its space back until `due`: its writer may still be writing to it, or
    /// its readers reading.
    pub(super) fn discard(&mut self, key: &str, due: Time) {
        if let Some(object) = self.objects.remove(key) {
            self.counters.unfinished_discarded += u64::from(object.writing);
            self.discarded.push(Discarded { due, extents: object.extents });
        }
    }

    /// Takes an object out and frees its space.
    pub(super) fn erase(&mut self, key: &str) -> Option<Object> {
        let object = self.objects.remove(key)?;
        for extent in &object.extents {
            self.segments.free(extent);
        }
        Some(object)
    }

    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }
}

/// The soft pin that begins when a write with `config` ends.
fn soft_pin(config: &ReplicaConfig, default: Duration) -> Option<Duration> {
    match config.soft_pin {
        SoftPin::Preserve => None,
        SoftPin::Enable => Some(default),
        SoftPin::EnableFor(ttl) => Some(ttl),
    }
}
