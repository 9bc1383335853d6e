//! The pool under several threads: bytes never change under a pin, and nothing is lost.
//!
//! A smoke test with real threads; the state word's interleavings are for a model checker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use springtide::{
    pool::{
        Contiguity, EvictionPolicy, Handle, Pin, Pool, PoolConfig, QuarantineCause, UNIT_HEADER,
    },
    sync::Mutex,
};

const UNIT: u64 = 512 + UNIT_HEADER;
const THREADS: u64 = 4;
const ROUNDS: u64 = 1500;

/// What the threads share.
struct World {
    pool: Pool,
    /// Handles that were published, live or stale.
    published: Mutex<Vec<Handle>>,
    stamp: AtomicU64,
    hits: AtomicU64,
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }
}

impl World {
    /// Fills an allocation with copies of a stamp that no other has, and publishes it.
    fn save(&self, draw: &mut Draw) {
        let len = 8 * (1 + draw.below(6 * UNIT / 8));
        let contiguity =
            if draw.below(3) == 0 { Contiguity::Required } else { Contiguity::Extents };
        let lease = self.pool.allocate(len, contiguity).or_else(|_| {
            let _victims = self.pool.evict_until_fits(len, contiguity);
            self.pool.allocate(len, contiguity)
        });
        let Ok(lease) = lease else { return };
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let mut transfer = lease.into_transfer();
        for at in (0..len).step_by(8) {
            transfer.write_at(at, &stamp);
        }
        match draw.below(12) {
            0 => drop(transfer),
            1 => transfer.quarantine(QuarantineCause::Uncertain),
            2 => drop(transfer.finish()),
            _ => {
                let pin = transfer.finish().publish(draw.below(50));
                self.published.lock().unwrap().push(pin.handle());
                check(&pin);
            }
        }
    }

    fn load(&self, draw: &mut Draw) {
        let handle = {
            let published = self.published.lock().unwrap();
            match published.len() as u64 {
                0 => return,
                n => published[(n - 1 - draw.below(n.min(40))) as usize],
            }
        };
        match draw.below(10) {
            0 => drop(self.pool.discard(handle)),
            1 => {
                if let Some(lease) = self.pool.reclaim(handle) {
                    let pin = lease.publish(3);
                    check(&pin);
                    self.published.lock().unwrap().push(pin.handle());
                }
            }
            _ => {
                if let Ok(pin) = self.pool.pin(handle) {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    let stamp = check(&pin);
                    std::thread::yield_now();
                    assert_eq!(check(&pin.clone()), stamp, "the bytes changed under a pin");
                }
            }
        }
    }

    fn work(&self, thread: u64) {
        let mut draw = Draw(0x9E37_79B9 + thread);
        for round in 0..ROUNDS {
            if draw.below(2) == 0 {
                self.save(&mut draw)
            } else {
                self.load(&mut draw)
            }
            if round % 32 == thread {
                self.pool.release_quarantine();
            }
        }
    }
}

/// All of an allocation's words are its stamp; the stamp.
fn check(pin: &Pin) -> u64 {
    let bytes = pin.segments().collect::<Vec<_>>().concat();
    let mut words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let stamp = words.next().unwrap();
    assert!(words.all(|word| word == stamp), "{pin:?} is torn");
    stamp
}

fn smoke(eviction: EvictionPolicy) {
    let config = PoolConfig { unit_payload: 512, eviction, ..PoolConfig::with_bytes(75 * UNIT) };
    let pool = Pool::new(&config).unwrap();
    let world = World {
        pool: pool.clone(),
        published: Mutex::default(),
        stamp: AtomicU64::new(1),
        hits: AtomicU64::new(0),
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let auditor = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                pool.verify().unwrap();
                let usage = pool.usage();
                assert!(usage.pinned <= usage.resident);
                std::thread::yield_now();
            }
        });
        let world = &world;
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || world.work(thread))).collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        auditor.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(world.hits.into_inner() > 100);
    assert!(pool.usage().counters.evictions > 100);
    pool.release_quarantine();
    let all = pool.usage();
    assert_eq!((all.filling, all.in_flight, all.pinned, all.quarantined), (0, 0, 0, 0));
    let _victims = pool.evict_until_fits(75 * UNIT, Contiguity::Extents);
    assert_eq!(pool.usage().free, 75 * UNIT);
    pool.verify().unwrap();
    pool.scrub().unwrap();
}

#[test]
fn four_threads_save_load_and_discard_with_fifo() {
    smoke(EvictionPolicy::Fifo);
}

#[test]
fn four_threads_save_load_and_discard_with_lru() {
    smoke(EvictionPolicy::Lru);
}

#[test]
fn four_threads_save_load_and_discard_with_s3_fifo() {
    smoke(EvictionPolicy::S3Fifo);
}
