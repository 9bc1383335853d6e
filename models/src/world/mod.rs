//! The injected world under a checker: a clock that is moved by hand, a store in memory, a device that copies
//! at once.
//!
//! All of it is state behind the checker's own mutex, so that the checker sees who depends on whom. Nothing
//! here takes time: what a model wants to be slow it holds back with a [`Gate`], what it wants to fail it
//! tells the [`ModelStore`].

mod clock;
mod device;
mod store;

use std::{io, time::Duration};

use springtide::{
    connector::{Config, NamespaceParts, Role},
    env::{DType, Env, Listener, Network, Task, Time},
    pool::PoolConfig,
};
use springtide_model_sync::{Mutex, MutexGuard, PoisonError};

pub use self::{
    clock::ModelClock,
    device::{ModelDevice, ModelTensor, tensor},
    store::{Fault, Gate, ModelStore},
};
use crate::executor::{Executor, Threads};

/// Payload of a unit in bytes, and of the items of [`tensor`].
pub const PAYLOAD: u64 = 64;

/// A configuration for a pool of so many units, each of which holds one item.
pub fn config(role: Role, units: u64) -> Config {
    let namespace = NamespaceParts { dtype: DType::Bf16, width: PAYLOAD / 2, ..Default::default() };
    let pool = PoolConfig {
        unit_payload: PAYLOAD as u32,
        quarantine_max: u64::MAX,
        ..PoolConfig::with_bytes(units * (PAYLOAD + springtide::pool::UNIT_HEADER))
    };
    Config { role, namespace, pool, payload_checksum: false, ..Config::default() }
}

/// A time so many milliseconds after the clock's origin.
pub fn at(millis: u64) -> Time {
    Time::from_origin(Duration::from_millis(millis))
}

/// One process: its environment, and the threads that run its tasks.
pub struct World {
    /// What the connector is given.
    pub env: ModelEnv,
    threads: Threads,
}

impl World {
    /// A process whose tasks run on `threads` threads, at this clock, with this store.
    pub fn start(threads: usize, clock: ModelClock, store: ModelStore) -> Self {
        let (executor, threads) = Executor::start(threads);
        Self { env: ModelEnv { clock, store, executor }, threads }
    }

    /// Ends the process. Tasks that have not ended are dropped.
    pub fn stop(self) {
        self.threads.stop();
    }
}

/// The environment of a modelled process.
#[derive(Clone)]
pub struct ModelEnv {
    clock: ModelClock,
    store: ModelStore,
    executor: Executor,
}

impl Env for ModelEnv {
    type Clock = ModelClock;
    type Network = NoNetwork;
    type Store = ModelStore;
    type Device = ModelDevice;

    fn clock(&self) -> &ModelClock {
        &self.clock
    }

    fn network(&self) -> &NoNetwork {
        &NoNetwork
    }

    fn store(&self) -> &ModelStore {
        &self.store
    }

    fn device(&self) -> &ModelDevice {
        &ModelDevice
    }

    fn spawn(&self, task: Task) {
        self.executor.spawn(task);
    }
}

/// Nobody is there.
#[derive(Clone, Copy, Debug)]
pub struct NoNetwork;

/// What listens to nobody: there is none.
#[derive(Debug)]
pub enum NoListener {}

impl Listener for NoListener {
    type Stream = tokio::io::DuplexStream;

    async fn accept(&mut self) -> io::Result<(Self::Stream, String)> {
        match *self {}
    }

    fn local_addr(&self) -> io::Result<String> {
        match *self {}
    }
}

impl Network for NoNetwork {
    type Stream = tokio::io::DuplexStream;
    type Listener = NoListener;

    async fn bind(&self, _address: &str) -> io::Result<NoListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect(&self, _address: &str) -> io::Result<Self::Stream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
