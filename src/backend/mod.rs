//! Implementations of [`Store`](crate::env::Store) for production.
//!
//! | type | keeps objects in | shared by |
//! |---|---|---|
//! | [`DiskStore`] | a directory | the instances that mount it |

mod disk;
mod disk_files;
mod threads;

pub use self::disk::{DiskConfig, DiskStore};
