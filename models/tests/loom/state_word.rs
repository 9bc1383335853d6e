//! The state word alone: who wins a race, and that winning orders the bytes.
//!
//! `Bytes` stands for the memory of one allocation. Loom fails a model in which a write to it is not ordered
//! after the reads and writes before it, so these models also prove the word's acquire and release.

use loom::{cell::UnsafeCell, thread};
use springtide::pool::state::{Discarded, State, StateWord, Unpinned, Word};
use springtide_model_sync::Arc;

#[derive(Default)]
struct Allocation {
    word: StateWord,
    bytes: UnsafeCell<()>,
}

impl Allocation {
    /// A free allocation, in generation 0.
    fn free() -> Arc<Self> {
        Arc::default()
    }

    /// A lease, in generation 0.
    fn filling() -> Arc<Self> {
        let allocation = Self::free();
        allocation.word.reserve().unwrap();
        allocation
    }

    /// A resident with this many pins, in generation 0.
    fn resident(pins: u32) -> Arc<Self> {
        let allocation = Self::filling();
        allocation.write();
        allocation.word.publish().unwrap();
        for _ in 0..pins {
            allocation.word.pin(0).unwrap();
        }
        allocation.word.unpin().unwrap();
        allocation
    }

    fn read(&self) {
        self.bytes.with(|_| ());
    }

    fn write(&self) {
        self.bytes.with_mut(|_| ());
    }

    /// Reads under a pin, if there is something to pin.
    fn pin_and_read(&self) -> bool {
        let pinned = self.word.pin(0).is_ok();
        if pinned {
            self.read();
            self.unpin();
        }
        pinned
    }

    /// Gives a pin back; whoever gave back the last of a discarded allocation ends it.
    fn unpin(&self) -> bool {
        let last = self.word.unpin().unwrap() == Unpinned::Last;
        if last {
            self.word.bury().unwrap();
            self.write();
        }
        last
    }

    fn evict(&self) -> bool {
        let evicted = self.word.evict(0).is_ok();
        if evicted {
            self.write();
        }
        evicted
    }

    fn is(&self, generation: u32, state: State) -> bool {
        self.word.load() == Word { generation, state, pins: 0 }
    }
}

fn spawn<T: 'static>(
    allocation: &Arc<Allocation>,
    operation: impl FnOnce(&Allocation) -> T + 'static,
) -> thread::JoinHandle<T> {
    let allocation = Arc::clone(allocation);
    thread::spawn(move || operation(&allocation))
}

model! {
    /// A pinned resident is not evicted, and an eviction waits for what the readers read.
    fn pins_against_evict_exhaustive() {
        let allocation = Allocation::resident(0);
        let readers = [0, 1].map(|_| spawn(&allocation, Allocation::pin_and_read));
        let evicted = allocation.evict();
        let _read = readers.map(|reader| reader.join().unwrap());
        assert!(if evicted { allocation.is(1, State::Free) } else { allocation.is(0, State::Resident) });
        assert_eq!(allocation.pin_and_read(), !evicted);
    }
}

model! {
    /// Whoever pins a new resident sees all of its bytes.
    fn publish_against_pin_and_evict_exhaustive() {
        let allocation = Allocation::filling();
        let reader = spawn(&allocation, Allocation::pin_and_read);
        let evictor = spawn(&allocation, Allocation::evict);
        allocation.write();
        allocation.word.publish().unwrap();
        allocation.unpin();
        reader.join().unwrap();
        let evicted = evictor.join().unwrap();
        assert_eq!(allocation.is(1, State::Free), evicted);
    }
}

model! {
    /// A discarded resident ends once: with the discard, or with the last of its pins.
    fn discard_against_unpins_exhaustive() {
        let allocation = Allocation::resident(2);
        let readers = [0, 1].map(|_| {
            spawn(&allocation, |allocation| {
                allocation.read();
                allocation.unpin()
            })
        });
        let freed = allocation.word.discard(0).unwrap() == Discarded::Freed;
        if freed {
            allocation.write();
        }
        let buried = readers.map(|reader| reader.join().unwrap());
        let ends = buried.into_iter().chain([freed]).filter(|ended| *ended).count();
        assert_eq!(ends, 1, "a discarded resident ends once");
        assert!(allocation.is(1, State::Free));
    }
}

model! {
    /// Of those who would end an idle resident one does; the others learn that it has gone.
    fn evict_against_reclaim_and_discard_exhaustive() {
        let allocation = Allocation::resident(0);
        let evictor = spawn(&allocation, Allocation::evict);
        let owner = spawn(&allocation, |allocation| {
            let reclaimed = allocation.word.reclaim(0).is_ok();
            if reclaimed {
                allocation.write();
            }
            reclaimed
        });
        let discarded = allocation.word.discard(0).is_ok();
        if discarded {
            allocation.write();
        }
        let (evicted, reclaimed) = (evictor.join().unwrap(), owner.join().unwrap());
        assert_eq!([evicted, reclaimed, discarded].iter().filter(|won| **won).count(), 1);
        assert!(allocation.is(1, if reclaimed { State::Filling } else { State::Free }));
        assert!(allocation.word.pin(0).is_err(), "the old name still pins");
    }
}

model! {
    /// Quarantined memory is nobody's until it is absolved, and then of a new generation.
    fn quarantine_against_absolve_and_pin_exhaustive() {
        let allocation = Allocation::filling();
        allocation.word.lend().unwrap();
        let reader = spawn(&allocation, |allocation| {
            assert!(allocation.word.pin(0).is_err(), "memory under I/O was pinned");
        });
        let fence = spawn(&allocation, |allocation| {
            let absolved = allocation.word.absolve().is_ok();
            if absolved {
                allocation.word.reserve().unwrap();
                allocation.write();
            }
            absolved
        });
        allocation.write();
        allocation.word.quarantine().unwrap();
        assert!(allocation.word.take_back().is_err(), "a quarantined transfer was taken back");
        reader.join().unwrap();
        let absolved = fence.join().unwrap();
        assert!(if absolved { allocation.is(1, State::Filling) } else { allocation.is(0, State::Quarantined) });
    }
}

model! {
    /// Free memory has one next owner at a time, and each in its own generation.
    fn reserve_against_reserve_exhaustive() {
        let allocation = Allocation::free();
        let owner = |allocation: &Allocation| {
            let reserved = allocation.word.reserve().is_ok();
            if reserved {
                allocation.write();
                allocation.word.release().unwrap();
            }
            u32::from(reserved)
        };
        let others = [0, 1].map(|_| spawn(&allocation, owner));
        let owners = owner(&allocation) + others.map(|other| other.join().unwrap()).iter().sum::<u32>();
        assert!(owners >= 1 && allocation.is(owners, State::Free));
    }
}
