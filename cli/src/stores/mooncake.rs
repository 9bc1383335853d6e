//! Mooncake Store, through its C library or through Python.

use springtide::{
    backend::{Blocking, MooncakeConfig, MooncakeStore},
    runtime::TokioClock,
};

use super::{Interpreter, Joining, Target};
use crate::{args::BenchArgs, failure::Failure};

/// Where Mooncake's master listens unless told otherwise.
const MASTER: &str = "127.0.0.1:50051";

/// What the arguments say of a Mooncake Store.
fn config(arguments: &BenchArgs) -> MooncakeConfig {
    MooncakeConfig {
        protocol: arguments.protocol.into(),
        device: arguments.device.clone(),
        segment_bytes: arguments.segment,
        library: arguments.library.clone(),
        ..MooncakeConfig::new(arguments.master.as_deref().unwrap_or(MASTER), &arguments.hostname)
    }
}

/// The same for one instance.
fn joined(config: &MooncakeConfig, joining: Joining) -> MooncakeConfig {
    MooncakeConfig { data_threads: joining.data_threads, ..config.clone() }
}

fn no_room(config: &MooncakeConfig) -> String {
    format!(
        "the store at {} has no room: does an instance lend it memory (segment_bytes), or this one with \
         --segment?",
        config.master
    )
}

/// Mooncake Store through its C library.
#[derive(Debug)]
pub struct Mooncake {
    config: MooncakeConfig,
}

impl Mooncake {
    /// The store that the arguments name.
    pub fn new(arguments: &BenchArgs) -> Self {
        Self::with(config(arguments))
    }

    /// The store of these settings.
    pub fn with(config: MooncakeConfig) -> Self {
        Self { config }
    }
}

impl Target for Mooncake {
    type Store = MooncakeStore;

    fn name(&self) -> String {
        format!("mooncake {} {}", self.config.protocol.name(), self.config.master)
    }

    async fn join(&self, joining: Joining, clock: TokioClock) -> Result<MooncakeStore, Failure> {
        let config = joined(&self.config, joining);
        MooncakeStore::connect(&config, joining.region_bytes, clock).await.map_err(Failure::failed)
    }

    fn blocking<'a>(&self, store: &'a MooncakeStore) -> Option<&'a dyn Blocking> {
        Some(store.calls())
    }

    fn no_room(&self) -> String {
        no_room(&self.config)
    }
}

/// Mooncake Store through Python.
#[derive(Debug)]
pub struct Python<'a, I> {
    config: MooncakeConfig,
    interpreter: &'a I,
}

impl<'a, I: Interpreter> Python<'a, I> {
    /// The store that the arguments name.
    pub fn new(arguments: &BenchArgs, interpreter: &'a I) -> Self {
        Self::with(config(arguments), interpreter)
    }

    /// The store of these settings.
    pub fn with(config: MooncakeConfig, interpreter: &'a I) -> Self {
        Self { config, interpreter }
    }
}

impl<I: Interpreter> Target for Python<'_, I> {
    type Store = I::Store;

    fn name(&self) -> String {
        format!("mooncake through Python, {} {}", self.config.protocol.name(), self.config.master)
    }

    async fn join(&self, joining: Joining, clock: TokioClock) -> Result<I::Store, Failure> {
        let config = joined(&self.config, joining);
        self.interpreter.join(&config, joining.region_bytes, clock).await.map_err(Failure::failed)
    }

    fn blocking<'a>(&self, store: &'a I::Store) -> Option<&'a dyn Blocking> {
        self.interpreter.blocking(store)
    }

    fn no_room(&self) -> String {
        no_room(&self.config)
    }
}
