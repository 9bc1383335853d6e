//! Locks that ThreadSanitizer sees.
//!
//! The standard library comes compiled, without the sanitizer's marks: what a contended `std::sync::Mutex`
//! does inside it is invisible, and every access that it orders would be reported as a race. These are built
//! from source with the program.

use std::sync::LockResult;
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

pub use parking_lot::MutexGuard;
pub use tokio::sync::Notify;

/// A mutex with the signature of the standard library's. It is never poisoned; whoever takes a lock in spite of
/// a panic sees no difference.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// None.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.0.lock())
    }

    /// The value, which nobody can hold any more.
    ///
    /// # Errors
    /// None.
    pub fn into_inner(self) -> LockResult<T> {
        Ok(self.0.into_inner())
    }
}
