//! What stands in for the standard library's and tokio's synchronisation while a checker explores
//! interleavings: loom (every interleaving, and every value that a weak memory may show) or shuttle (random
//! schedules of many threads).
//!
//! The production crate takes its primitives from `springtide::sync`, which takes them from here when it is
//! built with `--cfg springtide_model`. The names and their contracts are those of the originals, so that the
//! code above cannot tell; what is not offered here is not modelled, and does not compile.
//!
//! | name | contract of |
//! |---|---|
//! | `Mutex`, `MutexGuard`, `Condvar` | `std::sync` |
//! | `AtomicU64`, `Ordering` | `std::sync::atomic` |
//! | `Notify` | `tokio::sync::Notify` |
//! | `thread` | `std::thread` |
//! | `Arc` | the standard library's own: its count is not explored, only what it points to |

#![cfg(any(feature = "loom", feature = "shuttle"))]

mod notify;

pub use std::sync::{Arc, PoisonError};

#[cfg(feature = "loom")]
pub use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
pub use shuttle::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

pub use self::notify::{Notified, Notify};
