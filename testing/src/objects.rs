//! Objects of one length through any store: the words that tests of back ends use.

use springtide::{
    env::{ErrorCode, GetItem, Key, Outcome, PutItem, Store},
    pool::{Contiguity, Lease, Pool, PoolConfig},
};

/// Bytes of an object.
pub const LEN: u64 = 3000;

/// A pool with room for a few objects.
///
/// # Panics
/// Without memory.
pub fn pool() -> Pool {
    let config = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) };
    Pool::new(&config).expect("36 KiB of memory")
}

/// Memory for an object in one piece, filled.
///
/// # Panics
/// If the pool is full.
pub fn lease(pool: &Pool, fill: u8) -> Lease {
    let mut lease = pool.allocate(LEN, Contiguity::Required).expect("the pool has room");
    lease.write_at(0, &[fill; LEN as usize]);
    lease
}

/// Puts objects in one batch.
///
/// # Panics
/// If a put's end is unknown.
pub async fn put(store: &impl Store, items: Vec<(&str, Lease)>) -> Vec<Result<(), ErrorCode>> {
    let item =
        |(key, lease): (&str, Lease)| PutItem { key: Key::new(key), source: lease.into_transfer() };
    let ends = ended(store.put(items.into_iter().map(item).collect()).await);
    ends.into_iter().map(|(_, result)| result).collect()
}

/// Gets an object; gives the memory back with the result.
///
/// # Panics
/// If the get's end is unknown.
pub async fn get(store: &impl Store, key: &str, lease: Lease) -> (Lease, Result<u64, ErrorCode>) {
    let item = GetItem { key: Key::new(key), dest: lease.into_transfer() };
    ended(store.get(vec![item]).await).remove(0)
}

/// The ends of transfers that are over.
///
/// # Panics
/// If one is not.
pub fn ended<T>(outcomes: Vec<Outcome<T>>) -> Vec<(Lease, Result<T, ErrorCode>)> {
    let end = |outcome: Outcome<T>| match outcome {
        Outcome::Ended { buffer, result } => (buffer, result.map_err(|error| error.code)),
        Outcome::Uncertain { error, .. } => panic!("expected an end, got {error}"),
    };
    outcomes.into_iter().map(end).collect()
}
