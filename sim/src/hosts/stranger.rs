//! Another user of the store: fills it up, and puts meaningless objects under other people's keys.
//!
//! Lives on the client's host, with a store client and a pool of its own, and does what the injector asks.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use springtide::{
    connector::{HEADER_BYTES, Header, PayloadChecksum},
    env::{Clock, Key, PutItem, Store, Time},
    pool::{Contiguity, Pool, PoolConfig},
};
use tokio::sync::Notify;

use super::store::{self, StoreClient};
use crate::world::host::Host;

/// What the stranger is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Put `objects` objects of `bytes` bytes and keep them leased until a time; then remove them.
    Fill {
        /// Length of each.
        bytes: u64,
        /// How many.
        objects: u32,
        /// Until when.
        until: Time,
    },
    /// Put an object of meaningless bytes.
    Plant {
        /// Under this key.
        key: Key,
        /// Of this length.
        bytes: u64,
        /// With the header of an item of this length.
        forged: bool,
    },
}

/// The list of what the stranger has not begun.
#[derive(Clone, Debug, Default)]
pub struct Errands(Arc<(Mutex<VecDeque<Errand>>, Notify)>);

impl Errands {
    /// Adds an errand.
    pub fn send(&self, errand: Errand) {
        self.0.0.lock().expect("no panic while held").push_back(errand);
        self.0.1.notify_one();
    }

    async fn next(&self) -> Errand {
        loop {
            let mut sent = std::pin::pin!(self.0.1.notified());
            sent.as_mut().enable();
            if let Some(errand) = self.0.0.lock().expect("no panic while held").pop_front() {
                return errand;
            }
            sent.await;
        }
    }
}

/// Runs errands until the end of the world.
pub async fn run(host: Host) {
    let client = store::client(&host, 0);
    for number in 0.. {
        let errand = host.world.stranger.next().await;
        let (host, client) = (host.clone(), client.clone());
        let process = host.process.clone();
        process.spawn(Box::pin(async move {
            match errand {
                Errand::Fill { bytes, objects, until } => {
                    fill(&host, &client, number, bytes, objects, until).await;
                }
                // Over an object that exists a put does nothing: the store says so itself.
                Errand::Plant { key, bytes, forged: false } => put(&client, key, bytes).await,
                Errand::Plant { key, bytes, forged: true } => {
                    put_object(&client, key.clone(), forged(&host, &key, bytes)).await;
                }
            }
        }));
    }
}

async fn fill(
    host: &Host,
    client: &StoreClient,
    number: u32,
    bytes: u64,
    objects: u32,
    until: Time,
) {
    let keys: Vec<Key> = (0..objects).map(|n| Key::new(format!("stranger/{number}/{n}"))).collect();
    for key in &keys {
        put(client, key.clone(), bytes).await;
        client.exists(vec![key.clone()]).await;
    }
    let lease = Duration::from_millis(host.world.plan.store.lease_ttl_ms);
    while host.clock.now() < until {
        // The probe takes a lease.
        client.exists(keys.clone()).await;
        host.clock.sleep_until(until.min(host.clock.now() + lease / 2)).await;
    }
    for key in keys {
        // What was evicted meanwhile is gone already.
        let _ = client.remove(key, true).await;
    }
}

/// An item's object as anybody can make it who knows its key and shape, of meaningless bytes.
fn forged(host: &Host, key: &Key, bytes: u64) -> Vec<u8> {
    let engine = &host.world.plan.engine;
    let payload = vec![0x5A; bytes.saturating_sub(HEADER_BYTES) as usize];
    let spec = host.world.spec(payload.len() as u64 / (engine.width * engine.dtype.size()));
    let mut checksum = PayloadChecksum::default();
    checksum.update(&payload);
    [Header::new(key, spec, Some(checksum.finish())).encode().as_slice(), &payload].concat()
}

/// Puts one object of meaningless bytes.
async fn put(client: &StoreClient, key: Key, bytes: u64) {
    put_object(client, key, vec![0x5A; bytes as usize]).await;
}

/// Puts one object. Whatever goes wrong is the stranger's loss.
async fn put_object(client: &StoreClient, key: Key, object: Vec<u8>) {
    let bytes = object.len() as u64;
    let config = PoolConfig { unit_payload: 64, ..PoolConfig::with_bytes(bytes * 4 + 4096) };
    let pool = Pool::new(&config).expect("a pool for one object");
    let mut lease = pool.allocate(bytes, Contiguity::Required).expect("it has room for its object");
    lease.write_at(0, &object);
    drop(client.put(vec![PutItem { key, source: lease.into_transfer() }]).await);
}
