//! Production implementations of the injected world.
//!
//! | type | implements |
//! |---|---|
//! | [`TokioClock`] | [`Clock`](crate::env::Clock) |
//! | [`TokioNetwork`] | [`Network`](crate::env::Network) |
//! | [`HostDevice`] | [`Device`] for tensors in host memory; [`copy_out`], [`copy_out_seen`], [`copy_in`] for others |
//! | [`cuda::CudaDevice`] | [`Device`] for tensors in the memory of NVIDIA cards |
//! | [`Runtime`] | [`Env`] over these and a store |

mod clock;
mod copies;
pub mod cuda;
mod host;
mod network;

pub use self::{
    clock::TokioClock,
    copies::{copy_in, copy_out, copy_out_seen},
    host::{HostDevice, HostEvent, HostMemory, HostSignal, HostTensor},
    network::{TokioListener, TokioNetwork},
};
use crate::env::{Device, Env, Store, Task};

/// A process's environment on a tokio runtime.
#[derive(Clone)]
pub struct Runtime<S, D = HostDevice> {
    clock: TokioClock,
    network: TokioNetwork,
    store: S,
    device: D,
    handle: tokio::runtime::Handle,
}

impl<S: Store, D: Device> Runtime<S, D> {
    /// An environment whose tasks run on `handle`.
    pub fn new(handle: tokio::runtime::Handle, clock: TokioClock, store: S, device: D) -> Self {
        Self { clock, network: TokioNetwork, store, device, handle }
    }
}

impl<S: Store, D: Device> Env for Runtime<S, D> {
    type Clock = TokioClock;
    type Network = TokioNetwork;
    type Store = S;
    type Device = D;

    fn clock(&self) -> &TokioClock {
        &self.clock
    }

    fn network(&self) -> &TokioNetwork {
        &self.network
    }

    fn store(&self) -> &S {
        &self.store
    }

    fn device(&self) -> &D {
        &self.device
    }

    fn spawn(&self, task: Task) {
        drop(self.handle.spawn(task));
    }
}
