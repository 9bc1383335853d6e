//! Clients that lend memory: how they are known, and how they are given up.
//!
//! A client lives for a time to live after its last sign of life (a mount or a ping), looked at every
//! second. When it is given up its segments go, and with them every replica in them, leased or not. A client
//! that the master does not know (a new master, or one that was given up) is told to mount again; the
//! segments start empty then.

use std::{collections::BTreeMap, time::Duration};

use springtide::env::{ErrorCode, Time};

use super::{EventKind, Master, SegmentEnd};
use crate::protocol::{ClientId, ClientStatus, Segment, SegmentId};

/// How often clients are looked at.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct Clients {
    seen: BTreeMap<ClientId, Seen>,
    last_check: Time,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Time,
    /// Has remounted since this master knows it. The first ping after a mount asks for that, too.
    remounted: bool,
}

impl Clients {
    pub(super) fn new(now: Time) -> Self {
        Self { seen: BTreeMap::new(), last_check: now }
    }

    fn see(&mut self, client: ClientId, now: Time) -> &mut Seen {
        let seen = self.seen.entry(client).or_insert(Seen { at: now, remounted: false });
        seen.at = now;
        seen
    }
}

impl Master {
    /// Takes a segment on. Mounting a mounted one changes nothing.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] for a segment without bytes or name.
    pub fn mount(
        &mut self,
        now: Time,
        client: ClientId,
        segment: Segment,
    ) -> Result<(), ErrorCode> {
        self.segments.mount(client, segment)?;
        self.clients.see(client, now);
        Ok(())
    }

    /// Lets a segment go, with every replica in it.
    pub fn unmount(&mut self, now: Time, segment: SegmentId) {
        if self.segments.unmount(segment) {
            self.lose_replicas(now, segment, SegmentEnd::Unmounted);
        }
    }

    /// A sign of life; says whether the client must mount again.
    pub fn ping(&mut self, now: Time, client: ClientId) -> ClientStatus {
        if self.clients.see(client, now).remounted {
            ClientStatus::Ok
        } else {
            ClientStatus::NeedRemount
        }
    }

    /// Takes all segments of a client on again; those still mounted keep what they hold.
    ///
    /// # Errors
    /// As [`Master::mount`], at the first that is refused.
    pub fn remount(
        &mut self,
        now: Time,
        client: ClientId,
        segments: Vec<Segment>,
    ) -> Result<(), ErrorCode> {
        for segment in segments {
            self.segments.mount(client, segment)?;
        }
        self.clients.see(client, now).remounted = true;
        Ok(())
    }

    /// Gives up the clients whose time is over, if a second has passed since the last look.
    pub(super) fn check_clients(&mut self, now: Time) {
        if now - self.clients.last_check < CHECK_PERIOD {
            return;
        }
        self.clients.last_check = now;
        let ttl = self.knobs.client_ttl;
        let seen = &mut self.clients.seen;
        let expired: Vec<ClientId> =
            seen.iter().filter(|(_, seen)| seen.at + ttl < now).map(|(id, _)| *id).collect();
        for client in expired {
            self.clients.seen.remove(&client);
            self.counters.clients_expired += 1;
            for segment in self.segments.owned_by(client) {
                self.segments.unmount(segment);
                self.lose_replicas(now, segment, SegmentEnd::ClientExpired);
            }
        }
    }

    /// Drops every replica in a segment that is gone, and the objects that have no other.
    fn lose_replicas(&mut self, now: Time, segment: SegmentId, end: SegmentEnd) {
        for discarded in &mut self.discarded {
            discarded.extents.retain(|extent| extent.segment != segment);
        }
        self.discarded.retain(|discarded| !discarded.extents.is_empty());
        let history = &mut self.history;
        self.objects.retain(|key, object| {
            let before = object.extents.len();
            object.extents.retain(|extent| extent.segment != segment);
            if object.extents.len() == before {
                return true;
            }
            let lost = object.extents.is_empty();
            let kind = if lost {
                EventKind::SegmentLost { segment, end }
            } else {
                EventKind::ReplicaLost { segment, end }
            };
            history.push(now, key, kind);
            !lost
        });
    }
}
