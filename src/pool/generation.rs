//! How a process that only maps the region learns that what it has read was not its own any more.
//!
//! Owner and mapper share one word a unit: the generation of the allocation that begins there. The owner puts
//! up the next generation *before* anything of it is written; a reader copies the bytes *and then* looks at the
//! word. If it still shows the generation of the reader's handle, then no byte that was read is of a later one.
//! Nobody waits and the reader writes nothing, so a mapping without the right to write would do.

use crate::sync::{Ordering, fence};

/// A word of the region's control area.
pub trait GenerationWord {
    /// Reads it.
    fn load(&self, ordering: Ordering) -> u32;
    /// Writes it.
    fn store(&self, generation: u32, ordering: Ordering);
}

impl GenerationWord for std::sync::atomic::AtomicU32 {
    fn load(&self, ordering: Ordering) -> u32 {
        self.load(ordering)
    }

    fn store(&self, generation: u32, ordering: Ordering) {
        self.store(generation, ordering);
    }
}

/// Puts up a new generation. What the caller writes to the memory afterwards is seen by nobody who does not
/// also see the generation, if it looks with [`after_reading`].
pub fn begin(word: &impl GenerationWord, generation: u32) {
    word.store(generation, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// The generation after everything that this thread has read.
pub fn after_reading(word: &impl GenerationWord) -> u32 {
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed)
}
