//! Faults that lie in wait for operations.
//!
//! The injector lays an [`Ambush`] on the desk; device and transport ask the desk at each operation whether
//! one is meant for it. An ambush hits a number of operations and is withdrawn at its end, used up or not.

use std::sync::{Arc, Mutex, MutexGuard};

use fake_store::faults::Point;
use springtide::env::Time;

use crate::plan::{Direction, Op};

/// A fault that waits for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ambush {
    /// A copy from the device fails.
    FailCopy,
    /// A copy takes longer by this many milliseconds.
    SlowCopy(Direction, u64),
    /// A kernel finishes later by this many milliseconds.
    LateKernel(u64),
    /// An item is saved twice at once.
    DoubleSave,
    /// A store call panics.
    Panic(Op),
    /// A call to the store's master arrives twice.
    Duplicate {
        /// Which call.
        point: Point,
        /// Only if it names this item.
        item: Option<String>,
        /// How long after its answer it arrives again.
        after_ms: u64,
    },
}

#[derive(Debug)]
struct Laid {
    host: String,
    ambush: Ambush,
    left: u32,
    until: Time,
}

/// The desk that all hosts of a world share.
#[derive(Clone, Debug, Default)]
pub struct Desk(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    laid: Vec<Laid>,
    hits: u64,
}

impl Desk {
    /// Lays an ambush for the next `count` operations of `host` that begin before `until`.
    pub fn lay(&self, host: &str, ambush: Ambush, count: u32, until: Time) {
        let host = host.to_owned();
        self.lock().laid.push(Laid { host, ambush, left: count, until });
    }

    /// The first thing that `pick` sees in an ambush for `host`, which counts as a hit.
    pub fn hit<T>(&self, host: &str, now: Time, pick: impl Fn(&Ambush) -> Option<T>) -> Option<T> {
        let mut inner = self.lock();
        inner.laid.retain(|laid| laid.left > 0 && laid.until > now);
        let mut found = None;
        for laid in inner.laid.iter_mut().filter(|laid| laid.host == host) {
            if let Some(picked) = pick(&laid.ambush) {
                laid.left -= 1;
                found = Some(picked);
                break;
            }
        }
        inner.hits += u64::from(found.is_some());
        found
    }

    /// How many operations were hit so far.
    pub fn hits(&self) -> u64 {
        self.lock().hits
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::time;

    fn fails(ambush: &Ambush) -> Option<()> {
        (*ambush == Ambush::FailCopy).then_some(())
    }

    #[test]
    fn an_ambush_hits_its_host_its_count_and_its_time() {
        let desk = Desk::default();
        desk.lay("e", Ambush::LateKernel(5), 9, time(100));
        desk.lay("e", Ambush::FailCopy, 2, time(100));
        assert_eq!(desk.hit("f", time(1), fails), None);
        assert_eq!(desk.hit("e", time(1), fails), Some(()));
        assert_eq!(desk.hit("e", time(2), fails), Some(()));
        assert_eq!(desk.hit("e", time(3), fails), None);
        desk.lay("e", Ambush::FailCopy, 2, time(100));
        assert_eq!(desk.hit("e", time(100), fails), None);
        assert_eq!(desk.hits(), 2);
    }
}
