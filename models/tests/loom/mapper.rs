//! Readers in other processes: the generation in the control area is all that they have.
//!
//! Their bytes are read while the owner may write them, so they are atomics here, as weak as can be: what is
//! proven is that a reader *finds out*, not that it never reads what has changed.

use loom::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};
use springtide::pool::{
    Contiguity, Pool, PoolConfig, UNIT_HEADER,
    generation::{GenerationWord, after_reading, begin},
};
use springtide_model_sync::Arc;

const UNIT: u64 = 64 + UNIT_HEADER;

/// A word of the control area that loom sees.
#[derive(Default)]
struct Seen(AtomicU32);

impl GenerationWord for Seen {
    fn load(&self, ordering: Ordering) -> u32 {
        self.0.load(ordering)
    }

    fn store(&self, generation: u32, ordering: Ordering) {
        self.0.store(generation, ordering);
    }
}

model! {
    /// A reader that still sees its generation has read no byte of a later one, in whatever order memory shows
    /// two writes of an owner, whichever of two bytes it reads first.
    fn generation_against_two_owners_exhaustive() {
        let shared = Arc::new((Seen::default(), [AtomicU32::new(0), AtomicU32::new(0)]));
        let owner = Arc::clone(&shared);
        let owner = thread::spawn(move || {
            let (word, bytes) = &*owner;
            for generation in [1, 2] {
                begin(word, generation);
                bytes.iter().for_each(|byte| byte.store(generation, Ordering::Relaxed));
            }
        });
        let (word, bytes) = &*shared;
        let read = [1, 0].map(|at: usize| bytes[at].load(Ordering::Relaxed));
        let generation = after_reading(word);
        let latest = read.into_iter().max().unwrap();
        assert!(latest <= generation, "bytes of {latest} under the generation {generation}");
        owner.join().unwrap();
    }
}

model! {
    /// A view that passes its check has read what its handle names, although the owner did not keep its pin.
    fn view_against_reclaim_and_rewrite_preempt3() {
        let config = PoolConfig { unit_payload: 64, ..PoolConfig::with_bytes(UNIT) };
        let pool = Pool::new(&config).unwrap();
        let byte = Arc::new(AtomicU32::new(1));
        let pin = pool.allocate(UNIT, Contiguity::Required).unwrap().publish(0);
        let (handle, descriptor) = (pin.handle(), pin.descriptor());
        drop(pin);
        let (owner, theirs) = (pool.clone(), Arc::clone(&byte));
        let owner = thread::spawn(move || {
            let lease = owner.reclaim(handle).expect("nobody has pinned it");
            theirs.store(2, Ordering::Relaxed);
            drop(lease);
        });
        if let Ok(view) = pool.mapper().view(&descriptor) {
            let read = byte.load(Ordering::Relaxed);
            assert!(view.check().is_err() || read == 1, "read {read} under {handle}");
        }
        owner.join().unwrap();
        assert!(pool.mapper().view(&descriptor).is_err(), "the handle is stale for good");
    }
}
