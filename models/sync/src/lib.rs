//! What stands in for the standard library's and tokio's synchronisation while a checker looks on: loom
//! (every interleaving, and every value that a weak memory may show), shuttle (random schedules of many
//! threads), or ThreadSanitizer (real threads, with locks whose every access it sees).
//!
//! The production crate takes its primitives from `springtide::sync`, which takes them from here when it is
//! built with `--cfg springtide_model`. The names and their contracts are those of the originals, so that the
//! code above cannot tell; what is not offered here is not modelled, and does not compile.
//!
//! | name | contract of |
//! |---|---|
//! | `Mutex`, `MutexGuard`, `Condvar` (under the explorers) | `std::sync` |
//! | `AtomicU64`, `Ordering`, `fence` | `std::sync::atomic` |
//! | `Notify` | `tokio::sync::Notify` |
//! | `thread` (under the explorers) | `std::thread` |
//! | `Arc` | the standard library's own: its count is not explored, only what it points to |

#![forbid(unsafe_code)]
#![cfg(any(feature = "loom", feature = "shuttle", feature = "instrumented"))]

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod instrumented;
#[cfg(any(feature = "loom", feature = "shuttle"))]
mod notify;

pub use std::sync::{Arc, PoisonError};

#[cfg(feature = "loom")]
pub use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering, fence},
    },
    thread,
};
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
pub use shuttle::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering, fence},
    },
    thread,
};

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use self::instrumented::{AtomicU64, Mutex, MutexGuard, Notify, Ordering, fence};
#[cfg(any(feature = "loom", feature = "shuttle"))]
pub use self::notify::{Notified, Notify};
