//! The synchronisation primitives of the crate, in one place.
//!
//! Everything that several threads may touch goes through these names, so that a model checker can stand in
//! for the standard library by changing this file alone.

pub use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};
