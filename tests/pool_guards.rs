//! What each guard of the pool allows, and what its end leaves behind.

use springtide::pool::{
    AllocError, Contiguity, Corruption, EvictionPolicy, GUARD, Handle, Lease, POISON, Pin, Pool,
    PoolConfig, PoolError, QuarantineCause, UNIT_HEADER, Violation,
};

const UNIT: u64 = 512 + UNIT_HEADER;

fn config(units: u64) -> PoolConfig {
    PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(units * UNIT) }
}

/// A pool of `units` units of 512 + 64 bytes.
fn pool(units: u64) -> Pool {
    Pool::new(&config(units)).unwrap()
}

fn lease(pool: &Pool, units: u64) -> Lease {
    pool.allocate(units * UNIT, Contiguity::Extents).unwrap()
}

/// An idle resident.
fn resident(pool: &Pool, units: u64) -> Handle {
    lease(pool, units).publish(0).handle()
}

fn bytes_of(pin: &Pin) -> Vec<u8> {
    pin.segments().collect::<Vec<_>>().concat()
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
    assert_eq!(bytes_of(&pin), bytes);
    let mut read = vec![0; bytes.len() - 5];
    view.read_at(5, &mut read);
    assert_eq!(read, bytes[5..]);
    assert!(pool.reclaim(handle).is_none(), "a pinned resident cannot be reclaimed");
    assert_eq!(pool.usage().counters.stale_handles, 0, "it is not stale either");
    drop(pin);
    let again = pool.reclaim(handle).unwrap();
    assert_ne!(again.handle(), handle);
    assert!(view.check().is_err(), "the bytes may change now");
    assert!(pool.reclaim(handle).is_none());
    assert_eq!(pool.usage().counters.stale_handles, 1);
    assert_eq!(bytes_of(&again.publish(7)), bytes);
    pool.verify().unwrap();
}

#[test]
fn a_dropped_lease_is_free_and_its_handle_stale() {
    let pool = pool(4);
    let first = lease(&pool, 4);
    let handle = first.handle();
    assert_eq!(pool.usage().filling, 4 * UNIT);
    assert_eq!(pool.pin(handle).unwrap_err().found, Some(handle.generation()), "no resident");
    drop(first);
    assert_eq!(pool.usage().free, 4 * UNIT);
    let second = lease(&pool, 4).publish(0);
    assert_eq!(second.handle().index(), handle.index());
    let stale = pool.pin(handle).unwrap_err();
    assert_eq!(stale.to_string(), "stale handle 0/2@0: that place is at generation 1");
    assert_eq!(pool.discard(handle).unwrap_err(), stale);
    assert!(pool.reclaim(handle).is_none());
    assert_eq!(pool.usage().counters.stale_handles, 4);
    pool.verify().unwrap();
}

#[test]
fn a_handle_of_another_pool_is_stale_here() {
    let (small, large) = (pool(2), pool(64));
    let far = lease(&large, 32);
    let handle = resident(&large, 32);
    assert!(handle.index() > far.handle().index());
    assert_eq!(small.pin(handle).unwrap_err().found, None);
    let other_order = resident(&small, 1);
    let same_place = resident(&pool(4), 4);
    assert_eq!(other_order.index(), same_place.index());
    assert!(small.pin(same_place).is_err(), "same unit and generation, another order");
    assert!(small.discard(same_place).is_err());
    assert_eq!(small.usage().pinned, 0);
    small.discard(other_order).unwrap();
    small.verify().unwrap();
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
    assert_eq!(pool.usage().counters.quarantine_full, 1);
    pool.verify().unwrap();
    assert_eq!(pool.release_quarantine(), 3 * UNIT);
    assert_eq!(pool.usage().free, 4 * UNIT);
    assert_eq!(pool.usage().peak_quarantined, 3 * UNIT);
    pool.verify().unwrap();
}

#[test]
fn one_quarantined_allocation_can_be_released_by_name() {
    let pool = pool(16);
    let transfers = [lease(&pool, 1).into_transfer(), lease(&pool, 2).into_transfer()];
    let handles = [transfers[0].handle(), transfers[1].handle()];
    for transfer in transfers {
        transfer.quarantine(QuarantineCause::Uncertain);
    }
    assert_eq!(pool.release_quarantined(handles[1]), Ok(2 * UNIT));
    assert!(pool.release_quarantined(handles[1]).is_err());
    assert_eq!(pool.usage().quarantined, UNIT);
    assert!(pool.discard(handles[0]).is_err(), "quarantined memory is nobody's to discard");
    assert!(pool.pin(handles[0]).is_err(), "nor to read");
    assert!(pool.reclaim(handles[0]).is_none(), "nor to reuse");
    assert_eq!(pool.usage().quarantined, UNIT);
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "memory is poisoned with debug assertions only")]
fn late_writes_into_quarantine_hurt_nobody_and_after_release_they_are_found() {
    let pool = pool(16);
    let transfer = lease(&pool, 2).into_transfer();
    let offset = transfer.extents()[0].offset;
    drop(transfer);
    pool.region().dma_write(offset, &[1; 600]);
    let bystander = lease(&pool, 4);
    pool.verify().unwrap();
    pool.scrub().unwrap();
    drop(bystander);
    pool.release_quarantine();
    pool.scrub().unwrap();
    // The store claimed to be fenced and was not.
    pool.region().dma_write(offset + 7, &[9]);
    let found = Violation::Poison { offset: offset + 7, found: 9, expected: POISON };
    assert_eq!(pool.scrub(), Err(Corruption::Memory(found)));
    assert_eq!(pool.verify(), Err(Corruption::Memory(found)), "once found, it stays on record");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "memory is poisoned with debug assertions only")]
fn a_write_to_freed_memory_is_found_at_the_next_allocation() {
    let pool = pool(4);
    let first = lease(&pool, 2);
    let offset = first.extents()[0].offset;
    drop(first);
    pool.region().dma_write(offset + UNIT, &[3]);
    pool.verify().unwrap();
    let second = lease(&pool, 2);
    assert_eq!(second.extents()[0].offset, offset);
    assert_eq!(pool.usage().counters.poison_violations, 1);
    let found = Violation::Poison { offset: offset + UNIT, found: 3, expected: POISON };
    assert_eq!(pool.verify(), Err(Corruption::Memory(found)));
    drop(second);
    drop(lease(&pool, 2));
    assert_eq!(pool.usage().counters.poison_violations, 1, "freeing poisons again");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "memory is poisoned with debug assertions only")]
fn a_write_to_memory_that_was_never_handed_out_is_found() {
    let pool = pool(4);
    pool.region().dma_write(3 * UNIT, &[POISON]);
    let found = Violation::Poison { offset: 3 * UNIT, found: POISON, expected: 0 };
    assert_eq!(pool.scrub(), Err(Corruption::Memory(found)));
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "memory is poisoned with debug assertions only")]
fn a_write_past_the_end_is_found() {
    let pool = pool(8);
    let lease = pool.allocate(3 * UNIT - 10, Contiguity::Required).unwrap();
    let (handle, end) = (lease.handle(), lease.extents()[0].offset + lease.len());
    let mut guards = [0; 64];
    pool.region().dma_read(end, &mut guards);
    assert_eq!(guards, [GUARD; 64], "the slack of a rounded block is guarded across units");
    pool.verify().unwrap();
    let transfer = lease.into_transfer();
    pool.region().dma_write(end + 63, &[5]);
    let found = Violation::Guard { handle, offset: end + 63, found: 5 };
    assert_eq!(
        pool.verify(),
        Err(Corruption::Memory(found)),
        "verification sees it while it lives"
    );
    drop(transfer.finish().publish(0));
    assert_eq!(pool.usage().counters.guard_violations, 1, "reported once, at the end of the I/O");
    assert_eq!(pool.verify(), Err(Corruption::Memory(found)));
}

#[test]
fn a_discarded_resident_lives_as_long_as_its_pins() {
    let pool = pool(4);
    let pin = lease(&pool, 4).publish(0);
    let clone = pin.clone();
    pool.discard(pin.handle()).unwrap();
    assert!(pool.pin(pin.handle()).is_err());
    assert!(pool.discard(pin.handle()).is_err());
    assert!(pool.evict_until_fits(UNIT, Contiguity::Extents).is_empty());
    drop(pin);
    let third = clone.clone();
    drop(clone);
    assert_eq!(pool.usage().pinned, 4 * UNIT);
    pool.verify().unwrap();
    drop(third);
    assert_eq!(pool.usage().free, 4 * UNIT);
    pool.verify().unwrap();
}

#[test]
fn eviction_takes_idle_residents_in_order_until_the_allocation_fits() {
    let pool = Pool::new(&PoolConfig { eviction: EvictionPolicy::Fifo, ..config(8) }).unwrap();
    let residents: Vec<Handle> = (0..4).map(|_| resident(&pool, 2)).collect();
    assert_eq!(
        pool.allocate(3 * UNIT, Contiguity::Extents).unwrap_err(),
        AllocError::NoBytes { len: 3 * UNIT, free: 0 }
    );
    let pin = pool.pin(residents[1]).unwrap();
    let victims = pool.evict_until_fits(3 * UNIT, Contiguity::Extents);
    assert_eq!(victims, [residents[0], residents[2]]);
    assert_eq!(pool.pin(victims[0]).unwrap_err().found, Some(1));
    assert_eq!(pool.evict_until_fits(3 * UNIT, Contiguity::Extents), [], "it fits already");
    assert_eq!(lease(&pool, 3).extents().len(), 2);
    assert_eq!(pool.usage().counters.evictions, 2);
    drop(pin);
    pool.verify().unwrap();
}

#[test]
fn a_pin_is_an_access_and_a_clone_is_none() {
    let pool = Pool::new(&PoolConfig { eviction: EvictionPolicy::Lru, ..config(3) }).unwrap();
    let pin = lease(&pool, 1).publish(0);
    let residents = [pin.handle(), resident(&pool, 1), resident(&pool, 1)];
    drop(pool.pin(residents[1]).unwrap());
    drop(pin.clone());
    drop(pin);
    let order = [residents[0], residents[2], residents[1]];
    assert_eq!(pool.evict_until_fits(3 * UNIT, Contiguity::Extents), order);
}

#[test]
fn nothing_is_evicted_in_vain() {
    let pool = pool(8);
    let residents: Vec<Handle> = (0..8).map(|_| resident(&pool, 1)).collect();
    let pins = [pool.pin(residents[1]).unwrap(), pool.pin(residents[6]).unwrap()];
    // Six units could be freed, but no four in one block.
    assert_eq!(pool.evict_until_fits(4 * UNIT, Contiguity::Required), []);
    assert_eq!(pool.evict_until_fits(7 * UNIT, Contiguity::Extents), []);
    assert_eq!(pool.evict_until_fits(9 * UNIT, Contiguity::Extents), [], "never fits");
    assert_eq!(pool.evict_until_fits(0, Contiguity::Extents), []);
    assert_eq!(pool.usage().resident, 8 * UNIT);
    pool.verify().unwrap();
    assert_eq!(pool.evict_until_fits(6 * UNIT, Contiguity::Extents).len(), 6);
    drop(pins);
    assert_eq!(pool.evict_until_fits(8 * UNIT, Contiguity::Required).len(), 2);
    assert_eq!(pool.usage().free, 8 * UNIT);
    // Nor while the quarantine refuses every allocation.
    resident(&pool, 4);
    drop(lease(&pool, 4).into_transfer());
    assert_eq!(pool.evict_until_fits(4 * UNIT, Contiguity::Required), []);
}

#[test]
fn refusals_say_what_is_missing_and_change_nothing() {
    let pool = pool(7);
    let allocate = |len, contiguity| pool.allocate(len, contiguity).unwrap_err();
    assert_eq!(allocate(0, Contiguity::Extents), AllocError::Empty);
    let max = 7 * UNIT;
    assert_eq!(allocate(max + 1, Contiguity::Extents), AllocError::TooLarge { len: max + 1, max });
    assert_eq!(
        allocate(u64::MAX, Contiguity::Required),
        AllocError::TooLarge { len: u64::MAX, max: 4 * UNIT }
    );
    let held: Vec<Lease> = (0..7).map(|_| lease(&pool, 1)).collect();
    assert_eq!(allocate(1, Contiguity::Extents), AllocError::NoBytes { len: 1, free: 0 });
    let (even, odd): (Vec<_>, Vec<_>) =
        held.into_iter().partition(|lease| lease.handle().index() % 2 == 0);
    drop(odd);
    assert_eq!(
        allocate(2 * UNIT, Contiguity::Required),
        AllocError::NoShape { len: 2 * UNIT, free: 3 * UNIT, largest: UNIT }
    );
    assert_eq!(lease(&pool, 3).extents().len(), 3, "scattered, it fits");
    drop(even);
    let counters = pool.usage().counters;
    assert_eq!((counters.too_large, counters.no_bytes, counters.no_shape), (2, 1, 1));
    pool.verify().unwrap();
}

#[test]
fn a_pool_of_any_unit_count_pins_what_was_asked_for() {
    for units in [1, 2, 3, 5, 6, 7, 96, 100] {
        let mut config = config(units);
        config.bytes += UNIT - 1;
        config.max_extents = 16;
        let pool = Pool::new(&config).unwrap();
        assert_eq!(pool.region().len(), units * UNIT, "whole units of the bytes given");
        let whole = pool.allocate(units * UNIT, Contiguity::Extents).unwrap();
        assert_eq!(whole.extents().len() as u32, units.count_ones());
        assert_eq!(pool.usage().free, 0);
        drop(whole);
        assert_eq!(pool.usage().largest_free, UNIT << units.ilog2());
        pool.verify().unwrap();
        pool.scrub().unwrap();
    }
}

#[test]
fn a_block_holds_a_power_of_two_payload_and_its_header() {
    let pool = Pool::new(&PoolConfig::with_bytes(64 << 20)).unwrap();
    for payload in [32 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let lease = pool.allocate(payload + UNIT_HEADER, Contiguity::Required).unwrap();
        assert_eq!(pool.usage().waste, UNIT_HEADER * (payload / (32 << 10) - 1));
        drop(lease);
    }
}

#[test]
fn configurations_out_of_range_are_refused_by_name() {
    let refused = |change: fn(&mut PoolConfig)| {
        let mut config = config(4);
        change(&mut config);
        let error = Pool::new(&config).unwrap_err();
        assert!(matches!(error, PoolError::Config { .. }));
        error.to_string()
    };
    assert_eq!(refused(|c| c.bytes = 100), "pool: bytes is 100, expected at least one unit");
    assert_eq!(
        refused(|c| c.unit_payload = 1000),
        "pool: unit_payload is 1000, expected a power of two of at least 64"
    );
    assert_eq!(refused(|c| c.max_extents = 0), "pool: max_extents is 0, expected 1 to 16");
    assert_eq!(refused(|c| c.max_extents = 17), "pool: max_extents is 17, expected 1 to 16");
    assert_eq!(
        refused(|c| c.bytes = u64::MAX),
        format!("pool: bytes is {}, expected at most 2^30 units", u64::MAX)
    );
}

#[test]
fn a_configuration_reads_from_json_with_defaults_and_refuses_strangers() {
    let text = r#"{"bytes": 1048576, "quarantine_max": 4096, "eviction": "s3fifo",
        "backing": {"shared": "/dev/shm/pool"}}"#;
    let config: PoolConfig = serde_json::from_str(text).unwrap();
    assert_eq!((config.unit_payload, config.max_extents), (32 << 10, 8));
    assert_eq!(config.eviction, EvictionPolicy::default());
    let stranger = r#"{"bytes": 1, "quarantine_max": 1, "extents": 3}"#;
    let error = serde_json::from_str::<PoolConfig>(stranger).unwrap_err();
    assert!(error.to_string().contains("unknown field `extents`"), "{error}");
}

#[test]
#[should_panic(expected = "got 2 bytes at 575")]
fn reads_past_the_end_of_an_allocation_panic() {
    lease(&pool(2), 1).read_at(575, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "got 1 bytes at 1152")]
fn a_card_that_leaves_the_region_panics() {
    pool(2).region().dma_write(1152, &[0]);
}

#[test]
fn guards_can_go_to_other_threads() {
    fn sends<T: Send + Sync + 'static>() {}
    sends::<Pool>();
    sends::<Lease>();
    sends::<springtide::pool::Transfer>();
    sends::<Pin>();
    sends::<springtide::pool::View>();
    sends::<springtide::pool::Mapper>();
}
