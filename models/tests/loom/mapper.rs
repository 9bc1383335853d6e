//! Readers in other processes: the generation in the control area is all that they have.
//!
//! Their bytes are read while the owner may write them, so they are atomics here, as weak as can be: what is
//! proven is that a reader *finds out*, not that it never reads what has changed.

use loom::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};
use springtide::pool::generation::{GenerationWord, after_reading, begin};
use springtide_model_sync::Arc;

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
