//! The get protocol: query, pick a replica, transfer, look at the lease.

use std::collections::BTreeMap;

use springtide::env::{Clock, ErrorCode, Time};

use super::{Client, batch, transfers::Ended};
use crate::{
    faults::Point,
    memory::Buffer,
    protocol::{Call, Readable, Replica, Reply},
    transport::{Job, Transport},
};

/// An object to be fetched.
#[derive(Clone, Debug)]
pub(super) struct Get {
    pub(super) key: String,
    pub(super) buffer: Buffer,
}

impl<T: Transport, C: Clock> Client<T, C> {
    /// Fetches a batch; one end an item, in order. A result is the number of bytes delivered.
    ///
    /// With one buffer an object, a larger buffer is fine; with several their sum must be exact. The leases
    /// are looked at once, after the last transfer: a slow item fails quick ones, whose bytes are there.
    pub(super) async fn get_batch(&self, gets: Vec<Get>, multi_buffer: bool) -> Vec<Ended> {
        let asked = self.now();
        let keys = gets.iter().map(|get| get.key.clone()).collect();
        let found = self.look_up(keys).await;
        self.fetch(gets, found, asked, multi_buffer).await
    }

    /// Asks where objects lie.
    pub(super) async fn look_up(&self, keys: Vec<String>) -> Vec<Result<Readable, ErrorCode>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let n = keys.len();
        batch!(self.call(Call::Query { keys }).await, Reply::Found, n)
    }

    /// Fetches what was `found` for a question of the time `asked`.
    pub(super) async fn fetch(
        &self,
        gets: Vec<Get>,
        found: Vec<Result<Readable, ErrorCode>>,
        asked: Time,
        multi_buffer: bool,
    ) -> Vec<Ended> {
        let mut ends: Vec<Option<Ended>> = vec![None; gets.len()];
        let mut leased_until = vec![Time::NEVER; gets.len()];
        let mut chosen = Vec::new();
        for (i, found) in found.into_iter().enumerate() {
            let picked = found.and_then(|readable| {
                leased_until[i] = asked + readable.lease_ttl;
                self.pick(&gets[i].buffer, readable)
            });
            match picked {
                Ok(replica) => chosen.push((i, replica)),
                Err(code) => ends[i] = Some(Ended::with(Err(code))),
            }
        }
        self.transfer_into(&gets, chosen, multi_buffer, &mut ends).await;

        let now = self.now();
        let mut ends: Vec<Ended> = ends
            .into_iter()
            .map(|end| end.unwrap_or(Ended::with(Err(ErrorCode::Internal))))
            .collect();
        for (end, until) in ends.iter_mut().zip(leased_until) {
            if end.result.is_ok() && now >= until {
                end.result = Err(ErrorCode::LeaseExpired);
            }
        }
        ends
    }

    /// The replica to read: one of an own segment, else the first. Never another one if that fails.
    fn pick(&self, buffer: &Buffer, readable: Readable) -> Result<Replica, ErrorCode> {
        let own = readable.replicas.iter().position(|r| self.0.transport.owns(r.segment));
        let mut replicas = readable.replicas;
        if replicas.is_empty() {
            return Err(ErrorCode::InvalidReplica);
        }
        let replica = replicas.swap_remove(own.unwrap_or(0));
        let room = buffer.len();
        if room < replica.bytes || self.is_too_scattered(buffer) {
            return Err(ErrorCode::InvalidParams);
        }
        Ok(replica)
    }

    /// Fills the buffers. Of items with one key only the last one's buffer is filled, and all get its end:
    /// also whether it is too large counts for the last one only.
    async fn transfer_into(
        &self,
        gets: &[Get],
        chosen: Vec<(usize, Replica)>,
        multi_buffer: bool,
        ends: &mut [Option<Ended>],
    ) {
        let last: BTreeMap<&str, usize> =
            chosen.iter().map(|(i, _)| (gets[*i].key.as_str(), *i)).collect();
        let items: Vec<usize> = chosen.iter().map(|(i, _)| *i).collect();
        let mut to_peer = BTreeMap::new();
        let mut running = Vec::new();
        for (i, replica) in chosen {
            let Get { key, buffer } = &gets[i];
            if last[key.as_str()] != i {
                continue;
            }
            let fits = !multi_buffer || buffer.len() == replica.bytes;
            let admitted =
                fits && self.may_transfer(buffer) && self.admit(&mut to_peer, &replica, buffer);
            let client = self.0.config.id;
            let job = Job { client, key: key.clone(), number: 0, replica, buffer: buffer.clone() };
            running.push((i, admitted.then(|| self.submit(Point::Read, job))));
        }
        for (i, running) in running {
            ends[i] = Some(match running {
                Some(running) => self.wait(running).await,
                None => Ended::with(Err(ErrorCode::TransferFail)),
            });
        }
        for i in items {
            let twin = last[gets[i].key.as_str()];
            if twin != i {
                // Nothing moves into this one's buffer, whatever becomes of the other.
                ends[i] = ends[twin].map(|end| Ended { late: false, ..end });
            }
        }
    }
}
