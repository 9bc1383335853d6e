//! What is compared: a store that does what a sequence says, and what is seen of it.

use std::time::Duration;

use crate::step::{Call, Event};

/// What a call shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Observed {
    /// One code or length an item; one for all where Mooncake gives one.
    pub codes: Vec<i64>,
    /// Checksums of the memory that a get was given, an item each: also of what it should not have touched.
    pub memory: Vec<u32>,
    /// Whether bytes outside of that memory changed.
    pub overrun: bool,
}

/// An arm can not go on.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The process that made the call ended in it.
    #[error("the calling process ended ({0})")]
    Died(String),
    /// Something around the store failed: nothing can be said of the store.
    #[error("{0}")]
    Harness(String),
}

/// A store that does what a sequence says.
pub trait Arm {
    /// Makes a call.
    ///
    /// # Errors
    /// [`Broken`]; [`Broken::Died`] is something to be compared too.
    fn call(&mut self, client: usize, call: &Call) -> Result<Observed, Broken>;

    /// Lets something happen.
    ///
    /// # Errors
    /// [`Broken::Harness`].
    fn event(&mut self, event: Event) -> Result<(), Broken>;

    /// The keys of all readable objects that the master has, sorted, without taking leases.
    ///
    /// # Errors
    /// [`Broken::Harness`].
    fn keys(&mut self) -> Result<Vec<String>, Broken>;

    /// How many objects were evicted since the master started.
    ///
    /// # Errors
    /// [`Broken::Harness`].
    fn evicted(&mut self) -> Result<u64, Broken>;

    /// How many bytes the clients lend.
    ///
    /// # Errors
    /// [`Broken::Harness`].
    fn capacity(&mut self) -> Result<u64, Broken>;

    /// Lets its own time reach `now`, if it has one.
    fn reach(&mut self, now: Duration);

    /// Its own time, if it has one: a call may have moved it.
    fn ahead(&self) -> Duration;
}
