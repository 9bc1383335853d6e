//! The pool under threads that save, load, discard, lose transfers and fence.
//!
//! Every allocation is filled with a stamp that no other has, and everybody who may read checks it: a byte
//! that belongs to somebody else is found wherever it is read.

use shuttle::thread;
use springtide::pool::{
    Contiguity, EvictionPolicy, Handle, Pin, Pool, PoolConfig, QuarantineCause, UNIT_HEADER,
};
use springtide_model_sync::{Arc, AtomicU64, Mutex, Ordering};

use crate::below;

const UNIT: u64 = 64 + UNIT_HEADER;
const UNITS: u64 = 11;
const OPERATIONS: u64 = 6;

/// What the threads share.
struct World {
    pool: Pool,
    /// Handles that were published, live or stale.
    published: Mutex<Vec<Handle>>,
    stamps: AtomicU64,
}

impl World {
    fn new(eviction: EvictionPolicy) -> Self {
        let config = PoolConfig {
            unit_payload: 64,
            eviction,
            quarantine_max: UNITS * UNIT / 2,
            ..PoolConfig::with_bytes(UNITS * UNIT)
        };
        let pool = Pool::new(&config).unwrap();
        Self { pool, published: Mutex::new(Vec::new()), stamps: AtomicU64::new(1) }
    }

    fn save(&self) {
        let len = 8 * (1 + below(3 * UNIT / 8));
        let contiguity = [Contiguity::Required, Contiguity::Extents][below(2) as usize];
        let lease = self.pool.allocate(len, contiguity).or_else(|_| {
            let _victims = self.pool.evict_until_fits(len, contiguity);
            self.pool.allocate(len, contiguity)
        });
        let Ok(lease) = lease else { return };
        let stamp = self.stamps.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let mut transfer = lease.into_transfer();
        transfer.write_at(0, &stamp.repeat((len / 8) as usize));
        match below(8) {
            0 => drop(transfer),
            1 => transfer.quarantine(QuarantineCause::Uncertain),
            2 => drop(transfer.finish()),
            _ => {
                let pin = transfer.finish().publish(below(4));
                assert_eq!(stamp_of(&pin).to_le_bytes(), stamp);
                self.published.lock().unwrap().push(pin.handle());
            }
        }
    }

    fn load(&self) {
        let handle = {
            let published = self.published.lock().unwrap();
            match published.len() as u64 {
                0 => return,
                n => published[below(n) as usize],
            }
        };
        match below(6) {
            0 => drop(self.pool.discard(handle)),
            1 => {
                if let Some(lease) = self.pool.reclaim(handle) {
                    assert!(lease.handle() != handle, "the old name still holds");
                    self.published.lock().unwrap().push(lease.publish(3).handle());
                }
            }
            _ => {
                if let Ok(pin) = self.pool.pin(handle) {
                    let stamp = stamp_of(&pin);
                    thread::yield_now();
                    assert_eq!(stamp_of(&pin.clone()), stamp, "the bytes changed under a pin");
                }
            }
        }
    }

    fn work(&self) {
        for _ in 0..OPERATIONS {
            match below(9) {
                0..4 => self.save(),
                4..8 => self.load(),
                _ => drop(self.pool.release_quarantine()),
            }
        }
    }

    /// Everything can be given back, and the pool is then as it was.
    fn check_rest(&self) {
        self.pool.verify().unwrap();
        self.pool.release_quarantine();
        let usage = self.pool.usage();
        assert_eq!((usage.filling, usage.in_flight, usage.pinned, usage.quarantined), (0, 0, 0, 0));
        let _victims = self.pool.evict_until_fits(UNITS * UNIT, Contiguity::Extents);
        let usage = self.pool.usage();
        assert_eq!((usage.free, usage.allocations), (UNITS * UNIT, 0));
        assert_eq!(usage.counters.allocated, usage.counters.freed);
        self.pool.verify().unwrap();
        self.pool.scrub().unwrap();
    }
}

/// All words of an allocation are its stamp; the stamp.
fn stamp_of(pin: &Pin) -> u64 {
    let bytes = pin.segments().collect::<Vec<_>>().concat();
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let stamp = words.next().expect("an allocation has a word");
    assert!(words.all(|word| word == stamp), "{pin:?} is torn");
    stamp
}

fn threads_share_a_pool(threads: u64, eviction: EvictionPolicy) {
    let world = Arc::new(World::new(eviction));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.work())
        })
        .collect();
    // An auditor beside them: the parts agree at any moment.
    world.pool.verify().unwrap();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    world.check_rest();
}

campaign! {
    400 fn eight_threads_share_a_pool_with_s3_fifo() {
        threads_share_a_pool(8, EvictionPolicy::S3Fifo);
    }
}

campaign! {
    400 fn six_threads_share_a_pool_with_lru() {
        threads_share_a_pool(6, EvictionPolicy::Lru);
    }
}

campaign! {
    400 fn four_threads_share_a_pool_with_fifo() {
        threads_share_a_pool(4, EvictionPolicy::Fifo);
    }
}
