//! The synchronisation primitives of the crate, in one place.
//!
//! Everything that several threads may touch goes through these names, so that a checker of interleavings
//! can stand in for the standard library and tokio by changing this file alone: built with
//! `--cfg springtide_model`, the crate takes them from `models/sync`. (A name of its own and not `loom`, which
//! would take tokio's network and time away from the rest of the crate.)

#[cfg(not(springtide_model))]
pub use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(springtide_model)]
pub use springtide_model_sync::{
    Arc, AtomicU64, Mutex, MutexGuard, Notify, Ordering, PoisonError, fence,
};
#[cfg(not(springtide_model))]
pub use tokio::sync::Notify;
