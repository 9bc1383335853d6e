//! The master against what was measured on the real one.

mod eviction;
mod pins;
mod props;
mod puts;
mod reads;
mod segments;
mod table;

use std::time::Duration;

use springtide::env::{ErrorCode, Time};

use super::*;
use crate::protocol::{ClientId, ClientStatus, Readable, Replica, Segment, SegmentId, SoftPin};

const MIB: u64 = 1 << 20;
const ALICE: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A master with a hand-moved clock.
struct Bed {
    master: Master,
    now: Time,
    config: ReplicaConfig,
}

impl Bed {
    /// One segment named `a` of `mib`, lent by `Alice`.
    fn new(mib: u64, knobs: Knobs) -> Self {
        let mut bed = Self::empty(knobs);
        bed.mount(ALICE, 1, "a", mib);
        bed
    }

    fn empty(knobs: Knobs) -> Self {
        let now = Time::from_origin(ms(1000));
        let master = Master::new(now, knobs, 7).unwrap();
        Self { master, now, config: ReplicaConfig::default() }
    }

    fn mount(&mut self, client: ClientId, id: u64, name: &str, mib: u64) {
        let segment = Segment {
            id: SegmentId(id),
            name: name.into(),
            endpoint: format!("{name}:17"),
            bytes: mib * MIB,
        };
        self.master.mount(self.now, client, segment).unwrap();
    }

    /// Moves time without a turn of the master's loops.
    fn skip(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Moves time, with a turn of the loops every 10 ms and pings of `alive` every second.
    fn run(&mut self, time: Duration, alive: &[ClientId]) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + TICK;
            if self.now.as_millis().is_multiple_of(1000) {
                for client in alive {
                    self.master.ping(self.now, *client);
                }
            }
            self.master.tick(self.now);
        }
        assert_eq!(self.master.verify(), Ok(()));
    }

    fn start(&mut self, client: ClientId, key: &str, bytes: u64) -> Result<(), ErrorCode> {
        self.master.put_start(self.now, client, key, bytes, &self.config).map(|_| ())
    }

    fn upsert(&mut self, client: ClientId, key: &str, bytes: u64) -> Result<(), ErrorCode> {
        self.master.upsert_start(self.now, client, key, bytes, &self.config).map(|_| ())
    }

    fn end(&mut self, client: ClientId, key: &str) -> Result<(), ErrorCode> {
        self.master.put_end(self.now, client, key)
    }

    fn revoke(&mut self, client: ClientId, key: &str) -> Result<(), ErrorCode> {
        self.master.put_revoke(self.now, client, key)
    }

    /// A whole put, at one instant, with the success that Mooncake makes of an existing key.
    fn put(&mut self, key: &str, bytes: u64) -> Result<(), ErrorCode> {
        match self.start(ALICE, key, bytes) {
            Ok(()) => self.end(ALICE, key),
            Err(ErrorCode::ObjectAlreadyExists) => Ok(()),
            Err(code) => Err(code),
        }
    }

    /// Puts of `n` objects of 1 MiB, 1 ms apart; how many succeeded.
    fn fill(&mut self, prefix: &str, n: usize) -> usize {
        let ok = (0..n).filter(|i| {
            self.skip(ms(1));
            self.put(&format!("{prefix}{i}"), MIB).is_ok()
        });
        ok.count()
    }

    fn exist(&mut self, key: &str) -> bool {
        self.master.exist(self.now, key)
    }

    fn query(&mut self, key: &str) -> Result<Readable, ErrorCode> {
        self.master.query(self.now, key)
    }

    fn replicas(&mut self, key: &str) -> Vec<String> {
        self.master.peek(key).unwrap().replicas.into_iter().map(|r| r.segment_name).collect()
    }

    fn remove(&mut self, key: &str, force: bool) -> Result<(), ErrorCode> {
        self.master.remove(self.now, BOB, key, force)
    }

    /// Which of `prefix0..prefix(n-1)` are gone.
    fn gone(&self, prefix: &str, n: usize) -> Vec<usize> {
        (0..n).filter(|i| self.master.peek(&format!("{prefix}{i}")).is_none()).collect()
    }

    fn kinds(&mut self) -> Vec<EventKind> {
        self.master.drain_history().into_iter().map(|event| event.kind).collect()
    }
}

/// Short times, as the conformance runs against the real store use them.
fn short() -> Knobs {
    Knobs {
        lease_ttl: ms(1500),
        put_start_discard_timeout: ms(4000),
        put_start_release_timeout: ms(8000),
        client_ttl: ms(6000),
        placement: Placement::FirstFit,
        ..Knobs::default()
    }
}
