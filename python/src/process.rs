//! What both sides of the plug-in run on: a tokio runtime, its clock, and the store behind a link.

use std::{
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use springtide::{
    backend::{Link, LinkConfig, LinkState},
    env::{Clock, Env, Time},
    runtime::{Runtime, TokioClock},
};

use crate::{
    backend::{self, Backend},
    settings::Instance,
    tensor::TorchDevice,
};

/// The injected world of the plug-in.
pub type PluginEnv = Runtime<Link<Backend>, TorchDevice>;

/// Threads of the runtime: they only hash, copy and start calls.
const THREADS: usize = 2;

/// The processors that this process was given, before the engine bound its threads.
static PROCESSORS: OnceLock<Option<CpuSet>> = OnceLock::new();

/// Remembers the processors of the process. Called when the module is imported, which is early.
pub fn remember_processors() {
    PROCESSORS.get_or_init(|| sched_getaffinity(None).ok());
}

/// A runtime and its environment.
pub struct Process {
    env: PluginEnv,
    link: Link<Backend>,
    /// `None` once it is stopped.
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    handle: tokio::runtime::Handle,
}

impl Process {
    /// Starts the threads, and to connect if this process moves data.
    ///
    /// # Errors
    /// As the operating system refuses threads.
    pub fn start(instance: &Instance, needs_store: bool) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("springtide")
            .on_thread_start(|| {
                // The engine binds its model thread to few processors; what is started there inherits that.
                if let Some(Some(processors)) = PROCESSORS.get() {
                    let _ = sched_setaffinity(None, processors);
                }
            })
            .enable_all()
            .build()?;
        let (clock, handle) = (TokioClock::new(), runtime.handle().clone());
        let (store, bytes) = (instance.settings.store.clone(), instance.settings.pool_bytes);
        let connect = move || {
            let store = store.clone();
            async move {
                match needs_store {
                    true => Backend::connect(store, bytes, clock).await,
                    false => Ok(Backend::Nothing),
                }
            }
        };
        let spawner = handle.clone();
        let config = LinkConfig::new(backend::limits(&instance.settings.store));
        let link = Link::start(config, clock, |task| drop(spawner.spawn(task)), connect);
        let env = Runtime::new(handle.clone(), clock, link.clone(), TorchDevice);
        Ok(Self { env, link, runtime: Mutex::new(Some(runtime)), handle })
    }

    /// The environment.
    pub fn env(&self) -> &PluginEnv {
        &self.env
    }

    /// The link to the store.
    pub fn link(&self) -> &Link<Backend> {
        &self.link
    }

    /// The runtime's threads.
    pub fn handle(&self) -> &tokio::runtime::Handle {
        &self.handle
    }

    /// Whether calls reach the store.
    pub fn store_is_up(&self) -> bool {
        self.link.state() == LinkState::Up
    }

    /// Runs a future to its end on the calling thread, without the interpreter.
    pub fn block_on<T: Send>(&self, py: Python<'_>, future: impl Future<Output = T> + Send) -> T {
        py.detach(|| self.handle.block_on(future))
    }

    /// The time `duration` from now.
    pub fn deadline(&self, duration: Duration) -> Time {
        self.env.clock().now() + duration
    }

    /// Waits until the store is up; whether it is.
    pub fn wait_for_store(&self, py: Python<'_>, duration: Duration) -> bool {
        let deadline = self.deadline(duration);
        self.block_on(py, async {
            // Its end is asked for below.
            let _ = self.env.clock().timeout_at(deadline, self.link.ready()).await;
        });
        self.store_is_up()
    }

    /// Ends the threads, without waiting for what they do.
    pub fn stop(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An error of the connector as an exception.
pub fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("springtide: {error}"))
}

/// Seconds of Python as a duration.
pub fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
