//! The injected world: everything the connector needs from outside, one trait a file.
//!
//! Production implements these traits with tokio, CUDA and Mooncake Store (`runtime`, `backend`); the
//! simulator implements them with virtual time, faulty links and a fake store. The connector is written
//! against the traits alone, so the code that the simulator drives is the code that ships.
//!
//! | trait | gives | never |
//! |---|---|---|
//! | [`Clock`] | monotonic time, sleeping, deadlines | the wall clock |
//! | [`Network`] | byte streams between named hosts | raw sockets |
//! | [`Store`] | objects by key, with buffers that stay owned until the I/O is over | a reused buffer |
//! | [`Device`] | copies between device tensors and pool memory, ordered by events | a blocking copy |
//!
//! [`Env`] ties one of each together and adds the one thing left: where a task runs.

mod clock;
mod code;
mod device;
mod network;
mod store;

use std::{future::Future, pin::Pin};

pub use self::{
    clock::{Clock, Elapsed, Time},
    code::{ErrorCode, InFlight, Retry},
    device::{DType, Device, DeviceError, MAX_RANK, Shape, ShapeError, TensorSpec, Witness},
    network::{Listener, Network, Stream},
    store::{Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits},
};

/// A task that the connector hands to its environment to run.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// One implementation of each part of the injected world.
///
/// Cheap to clone: an environment is a bundle of handles.
pub trait Env: Clone + Send + Sync + 'static {
    /// Source of time.
    type Clock: Clock;
    /// Byte streams between hosts.
    type Network: Network;
    /// The shared object store.
    type Store: Store;
    /// The accelerator (or the host itself) that holds tensors.
    type Device: Device;

    /// The clock of this host.
    fn clock(&self) -> &Self::Clock;
    /// The network of this host.
    fn network(&self) -> &Self::Network;
    /// The store client of this process.
    fn store(&self) -> &Self::Store;
    /// The device of this process.
    fn device(&self) -> &Self::Device;

    /// Runs `task` beside its caller until it ends. Tasks die with the process and are never joined:
    /// whatever must be waited for is waited for through a ticket, not through its task.
    fn spawn(&self, task: Task);
}
