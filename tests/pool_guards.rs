//! What each guard of the pool allows, and what its end leaves behind.

use springtide::pool::{
    AllocError, Contiguity, Lease, Pool, PoolConfig, QuarantineCause, UNIT_HEADER,
};

const UNIT: u64 = 512 + UNIT_HEADER;

/// A pool of `units` units of 512 + 64 bytes.
fn pool(units: u64) -> Pool {
    let config = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(units * UNIT) };
    Pool::new(&config).unwrap()
}

fn lease(pool: &Pool, units: u64) -> Lease {
    pool.allocate(units * UNIT, Contiguity::Extents).unwrap()
}

fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn bytes_survive_the_way_from_lease_to_resident_and_back() {
    let pool = pool(16);
    let bytes = pattern(11 * UNIT - 100);
    let mut lease = pool.allocate(bytes.len() as u64, Contiguity::Extents).unwrap();
    assert_eq!(lease.extents().len(), 3);
    lease.write_at(0, &bytes[..700]);
    let mut transfer = lease.into_transfer();
    transfer.write_at(700, &bytes[700..]);
    let pin = transfer.finish().publish(7);
    let view = pool.mapper().view(&pin.descriptor()).unwrap();
    let handle = pin.handle();
    assert_eq!(pin.segments().collect::<Vec<_>>().concat(), bytes);
    let mut read = vec![0; bytes.len() - 5];
    view.read_at(5, &mut read);
    assert_eq!(read, bytes[5..]);
    assert!(pool.reclaim(handle).is_none(), "a pinned resident cannot be reclaimed");
    drop(pin);
    let again = pool.reclaim(handle).unwrap();
    assert_ne!(again.handle(), handle);
    assert!(view.check().is_err());
    assert_eq!(again.segments().collect::<Vec<_>>().concat(), bytes);
    pool.verify().unwrap();
}

#[test]
fn a_dropped_transfer_is_quarantined_until_released() {
    let pool = pool(4);
    drop(lease(&pool, 1).into_transfer());
    lease(&pool, 2).into_transfer().quarantine(QuarantineCause::TimedOut);
    let usage = pool.usage();
    assert_eq!(usage.quarantined, 3 * UNIT);
    assert_eq!(usage.counters.quarantined_abandoned, 1);
    assert_eq!(usage.counters.quarantined_timed_out, 1);
    let refused = pool.allocate(1, Contiguity::Extents).unwrap_err();
    assert_eq!(refused, AllocError::QuarantineFull { quarantined: 3 * UNIT, max: UNIT });
    pool.verify().unwrap();
    assert_eq!(pool.release_quarantine(), 3 * UNIT);
    assert_eq!(pool.usage().free, 4 * UNIT);
    pool.verify().unwrap();
}
