//! The stores that can be chosen, and how each is joined.
//!
//! | module | store |
//! |---|---|
//! | `disk` | files in a directory |
//! | `fake` | the fake store over TCP, started here or elsewhere |
//! | `mooncake` | Mooncake Store, through its C library or through Python |

mod disk;
mod fake;
mod mooncake;

use std::future::Future;

use springtide::{
    backend::{Blocking, MooncakeConfig},
    env::Store,
    runtime::TokioClock,
};

pub use self::{
    disk::Disk,
    fake::Fake,
    mooncake::{Mooncake, Python},
};
use crate::failure::Failure;

/// What whoever joins a store brings.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    /// Bytes of memory that will be registered.
    pub region_bytes: u64,
    /// Calls that move data at a time.
    pub data_threads: usize,
}

/// A store that can be joined by any number of instances.
pub trait Target: Sync {
    /// One instance's client.
    type Store: Store;

    /// Its name in the report.
    fn name(&self) -> String;

    /// Joins it.
    ///
    /// # Errors
    /// [`Failure`].
    fn join(
        &self,
        joining: Joining,
        clock: TokioClock,
    ) -> impl Future<Output = Result<Self::Store, Failure>> + Send;

    /// The store's own calls below a client, where they block: what is measured as the raw calls.
    fn blocking<'a>(&self, _store: &'a Self::Store) -> Option<&'a dyn Blocking> {
        None
    }

    /// What to do when the store has no room.
    fn no_room(&self) -> String;
}

/// The store that a program with a Python interpreter inside brings.
pub trait Interpreter: Sync {
    /// One instance's client.
    type Store: Store;

    /// Joins a Mooncake Store through its Python class.
    ///
    /// # Errors
    /// What went wrong, in words.
    fn join(
        &self,
        config: &MooncakeConfig,
        region_bytes: u64,
        clock: TokioClock,
    ) -> impl Future<Output = Result<Self::Store, String>> + Send;

    /// The calls below a client.
    fn blocking<'a>(&self, store: &'a Self::Store) -> Option<&'a dyn Blocking>;
}

/// A program without one.
#[derive(Clone, Copy, Debug)]
pub struct NoInterpreter;

impl Interpreter for NoInterpreter {
    /// Never made.
    type Store = springtide::backend::DiskStore;

    async fn join(
        &self,
        _config: &MooncakeConfig,
        _region_bytes: u64,
        _clock: TokioClock,
    ) -> Result<Self::Store, String> {
        Err("this program has no Python inside: run `python -m springtide bench --store python` with the \
             interpreter that has the package springtide and the wheel mooncake-transfer-engine"
            .into())
    }

    fn blocking<'a>(&self, _store: &'a Self::Store) -> Option<&'a dyn Blocking> {
        None
    }
}
