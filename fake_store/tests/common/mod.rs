//! What the integration tests share: a pool, and short ways to put and get.

use std::{sync::Arc, time::Duration};

use fake_store::Spawner;
use springtide::{
    env::{ErrorCode, GetItem, Key, Outcome, PutItem, Store},
    pool::{Contiguity, Lease, Pool, PoolConfig, Transfer},
};
use tokio::runtime::Handle;

/// Runs tasks on the test's runtime.
pub(crate) fn spawner() -> Spawner {
    Arc::new(|task| drop(Handle::current().spawn(task)))
}

/// A pool with small units, so that objects scatter over several extents.
pub(crate) fn pool(bytes: u64) -> Pool {
    let config =
        PoolConfig { unit_payload: 1024, quarantine_max: bytes, ..PoolConfig::with_bytes(bytes) };
    Pool::new(&config).unwrap()
}

/// Bytes that differ from one seed to the next and from one place to the next.
pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

pub(crate) fn filled(pool: &Pool, bytes: &[u8]) -> Transfer {
    let mut lease = pool.allocate(bytes.len() as u64, Contiguity::Extents).unwrap();
    lease.write_at(0, bytes);
    lease.into_transfer()
}

pub(crate) fn empty(pool: &Pool, len: usize) -> Transfer {
    pool.allocate(len as u64, Contiguity::Extents).unwrap().into_transfer()
}

pub(crate) fn bytes_of(lease: &Lease) -> Vec<u8> {
    lease.segments().flatten().copied().collect()
}

pub(crate) fn put_item(pool: &Pool, key: &str, bytes: &[u8]) -> PutItem {
    PutItem { key: Key::new(key), source: filled(pool, bytes) }
}

pub(crate) fn get_item(pool: &Pool, key: &str, len: usize) -> GetItem {
    GetItem { key: Key::new(key), dest: empty(pool, len) }
}

/// Puts one object through the store's trait.
pub(crate) async fn put(store: &impl Store, pool: &Pool, key: &str, bytes: &[u8]) -> i64 {
    let outcomes = store.put(vec![put_item(pool, key, bytes)]).await;
    match &outcomes[0] {
        Outcome::Ended { result: Ok(()), .. } => 0,
        Outcome::Ended { result: Err(error), .. } | Outcome::Uncertain { error, .. } => {
            error.code.number().into()
        }
    }
}

/// Gets one object through the store's trait: its bytes, or a code.
pub(crate) async fn get(
    store: &impl Store,
    pool: &Pool,
    key: &str,
    len: usize,
) -> Result<Vec<u8>, i64> {
    let mut outcomes = store.get(vec![get_item(pool, key, len)]).await;
    match outcomes.remove(0) {
        Outcome::Ended { buffer, result: Ok(n) } => {
            let mut bytes = bytes_of(&buffer);
            bytes.truncate(n as usize);
            Ok(bytes)
        }
        Outcome::Ended { result: Err(error), .. } | Outcome::Uncertain { error, .. } => {
            Err(error.code.number().into())
        }
    }
}

pub(crate) async fn exists(store: &impl Store, key: &str) -> Result<bool, ErrorCode> {
    let results = store.exists(vec![Key::new(key)]).await;
    results[0].map_err(|error| error.code)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
