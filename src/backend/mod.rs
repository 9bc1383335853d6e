//! Implementations of [`Store`](crate::env::Store) for production.
//!
//! | type | keeps objects in | shared by |
//! |---|---|---|
//! | [`DiskStore`] | a directory | the instances that mount it |
//! | [`BlockingStore`] | whatever its [`Blocking`] calls reach | – |

mod batches;
mod blocking;
mod disk;
mod disk_files;
mod threads;

pub use self::{
    blocking::{Blocking, BlockingConfig, BlockingStore},
    disk::{DiskConfig, DiskStore},
};
