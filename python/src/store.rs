//! Mooncake Store through the class of its Python wheel, which is what most installations have.
//!
//! [`BlockingStore`] brings threads and the ownership of buffers. Each call attaches a thread to the
//! interpreter only to make the one method call, and the methods used here let go of the interpreter while
//! they block: no Python thread waits for a transfer. Two methods do not let go, `setup` and `close`, which
//! take seconds with a dead master and minutes with one that hangs; the master is therefore tried before
//! either.
//!
//! The class scatters and gathers, so an object may consist of many buffers. It differs from the C ABI: a
//! get wants exactly the object's length (a larger one is -800, at once), and lengths are 32-bit numbers.

use std::{
    io, mem,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use pyo3::prelude::*;
use springtide::{
    backend::{
        Blocking, BlockingConfig, BlockingStore, MOONCAKE_FRAGMENTS_MAX, MooncakeConfig,
        MooncakeError,
    },
    env::{Clock, ErrorCode, Fence, GetItem, Key, PutItem, StoreError, StoreLimits},
    pool::{Region, Transfer},
};
use tokio::sync::oneshot;

/// A Mooncake Store reached through Python.
pub type PythonStore = BlockingStore<PythonCalls>;

/// What Mooncake's Python class can take in one call.
pub const LIMITS: StoreLimits = StoreLimits {
    buffers_per_object: MOONCAKE_FRAGMENTS_MAX,
    fragments_per_batch: MOONCAKE_FRAGMENTS_MAX,
    // The lengths that a get reports are 32-bit numbers with a sign.
    object_bytes_max: Some(i32::MAX as u64),
};

/// The version of Mooncake's wheel that the adapter is tested with.
pub const WHEEL: &str = "0.3.13.post1";

/// What the adapter uses of `mooncake.store`: older wheels lack some of it, and would fail at the first put.
const USED: [(&str, &[&str]); 2] = [
    (
        "MooncakeDistributedStore",
        &[
            "setup",
            "close",
            "register_buffer",
            "unregister_buffer",
            "batch_put_from_multi_buffers",
            "batch_get_into_multi_buffers",
            "batch_is_exist",
            "get_size",
            "remove",
        ],
    ),
    ("ReplicateConfig", &[]),
];

/// The calls of a [`PythonStore`].
#[derive(Debug)]
pub struct PythonCalls {
    config: MooncakeConfig,
    /// A `MooncakeDistributedStore` that is set up. `None` only in `drop`.
    store: Option<Py<PyAny>>,
    /// The `ReplicateConfig` of its puts.
    replication: Py<PyAny>,
    is_closed: AtomicBool,
}

/// There is no store.
#[derive(Debug, thiserror::Error)]
pub enum PythonStoreError {
    /// Found before Mooncake was asked.
    #[error("{0}")]
    Preflight(#[from] MooncakeError),
    /// `mooncake.store` could not be imported.
    #[error("cannot import mooncake.store ({0}): is the wheel mooncake-transfer-engine installed?")]
    Import(PyErr),
    /// The wheel is one that this adapter cannot use.
    #[error(
        "mooncake.store of {found} has no {missing}: expected Mooncake {WHEEL} or a later version, which \
         `pip install --upgrade` of the same wheel brings"
    )]
    Wheel {
        /// The installed wheels, with their versions.
        found: String,
        /// What they lack.
        missing: String,
    },
    /// Mooncake refused the setup.
    #[error("setup failed with Mooncake's code {code} (tried {config:?}); its own log says why")]
    Refused {
        /// Its code.
        code: i64,
        /// What was tried.
        config: Box<MooncakeConfig>,
    },
    /// A call of Python raised an exception.
    #[error("Python: {0}")]
    Python(#[from] PyErr),
    /// The interpreter is not there, or is on its way down.
    #[error("there is no Python interpreter to attach to")]
    NoInterpreter,
    /// The operating system refused a thread.
    #[error("threads for the store's calls: {0}")]
    Thread(io::Error),
}

/// Joins a store: makes a `MooncakeDistributedStore` and sets it up, on a thread of its own. `region_bytes`
/// is what will be registered.
///
/// # Errors
/// [`PythonStoreError`].
pub async fn connect(
    config: &MooncakeConfig,
    region_bytes: u64,
    clock: impl Clock,
) -> Result<PythonStore, PythonStoreError> {
    let (sender, receiver) = oneshot::channel();
    let config = config.clone();
    let connect = move || {
        drop(sender.send(join(&config, region_bytes, clock)));
    };
    let thread = thread::Builder::new().name("springtide-python-connect".into());
    thread.spawn(connect).map_err(PythonStoreError::Thread)?;
    let lost = |_| PythonStoreError::Thread(io::Error::other("the thread ended early"));
    receiver.await.map_err(lost)?
}

fn join(
    config: &MooncakeConfig,
    region_bytes: u64,
    clock: impl Clock,
) -> Result<PythonStore, PythonStoreError> {
    let config = config.with_port()?;
    config.preflight(region_bytes)?;
    Python::try_attach(|py| adopt(set_up(py, &config)?, &config, clock))
        .unwrap_or(Err(PythonStoreError::NoInterpreter))
}

/// A store over a `MooncakeDistributedStore` that is set up (or anything with its methods) and that nobody
/// else closes. `config` says what it was set up with.
///
/// # Errors
/// [`PythonStoreError`].
pub fn adopt(
    store: Bound<'_, PyAny>,
    config: &MooncakeConfig,
    clock: impl Clock,
) -> Result<PythonStore, PythonStoreError> {
    let replication = replication(store.py(), config)?;
    let calls = PythonCalls {
        config: config.clone(),
        store: Some(store.unbind()),
        replication,
        is_closed: AtomicBool::new(false),
    };
    let threads = BlockingConfig {
        name: "springtide-python",
        data_threads: config.data_threads,
        lookup_threads: config.lookup_threads,
        transfer_limit: StoreError::MOONCAKE_TRANSFER_LIMIT,
    };
    BlockingStore::new(calls, threads, clock).map_err(PythonStoreError::Thread)
}

/// A `MooncakeDistributedStore` that is set up. The strings have been checked by
/// [`MooncakeConfig::preflight`], for Mooncake ends the process on bad ones here, too, and
/// [`MooncakeConfig::with_port`] has given the host name a port.
///
/// # Errors
/// [`PythonStoreError`].
pub fn set_up<'py>(
    py: Python<'py>,
    config: &MooncakeConfig,
) -> Result<Bound<'py, PyAny>, PythonStoreError> {
    let module = py.import("mooncake.store").map_err(PythonStoreError::Import)?;
    check_wheel(&module)?;
    let store = module.getattr("MooncakeDistributedStore")?.call0()?;
    let arguments = (
        &config.local_hostname,
        &config.metadata_server,
        config.segment_bytes,
        config.local_buffer_bytes,
        config.protocol.name(),
        &config.device,
        &config.master,
    );
    match store.call_method1("setup", arguments)?.extract()? {
        0 => Ok(store),
        code => Err(PythonStoreError::Refused { code, config: Box::new(config.clone()) }),
    }
}

/// Whether a module has all of `mooncake.store` that the adapter uses.
///
/// # Errors
/// [`PythonStoreError::Wheel`], with the first thing that is missing.
pub fn check_wheel(module: &Bound<'_, PyModule>) -> Result<(), PythonStoreError> {
    let missing = USED.iter().find_map(|(class, methods)| match module.getattr(*class) {
        Err(_) => Some((*class).to_owned()),
        Ok(found) => {
            let lacking = methods.iter().find(|method| !found.hasattr(**method).unwrap_or(false));
            lacking.map(|method| format!("{class}.{method}"))
        }
    });
    match missing {
        None => Ok(()),
        Some(missing) => {
            let found = wheels(module.py()).unwrap_or_default();
            let found = if found.is_empty() { "an unknown wheel".into() } else { found.join(", ") };
            Err(PythonStoreError::Wheel { found, missing })
        }
    }
}

/// The installed wheels of Mooncake: there is one for each kind of transport.
fn wheels(py: Python<'_>) -> PyResult<Vec<String>> {
    let mut wheels = Vec::new();
    for wheel in py.import("importlib.metadata")?.call_method0("distributions")?.try_iter()? {
        let wheel = wheel?;
        let name: String = wheel.getattr("name")?.extract()?;
        if name.replace('_', "-").starts_with("mooncake-transfer-engine") {
            wheels.push(format!("{name} {}", wheel.getattr("version")?.str()?));
        }
    }
    Ok(wheels)
}

fn replication(py: Python<'_>, config: &MooncakeConfig) -> Result<Py<PyAny>, PythonStoreError> {
    let module = py.import("mooncake.store").map_err(PythonStoreError::Import)?;
    let replication = module.getattr("ReplicateConfig")?.call0()?;
    replication.setattr("replica_num", config.replicas.get())?;
    if config.soft_pin {
        let enable = module.getattr("SoftPinAction")?.getattr("ENABLE")?;
        replication.setattr("soft_pin_action", enable)?;
    }
    Ok(replication.unbind())
}

impl PythonCalls {
    /// Calls with the interpreter. Without one nothing has been started; an exception may have come at any
    /// point of the call.
    fn attached<R>(
        &self,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, ErrorCode> {
        let store = self.store.as_ref().ok_or(ErrorCode::UnavailableInCurrentStatus)?;
        match Python::try_attach(|py| call(py, store.bind(py))) {
            Some(result) => result.map_err(|exception| {
                tracing::warn!(%exception, "a call of mooncake.store raised");
                ErrorCode::Internal
            }),
            None => Err(ErrorCode::UnavailableInCurrentStatus),
        }
    }

    /// A method that returns 0 or a code.
    fn status<A>(&self, method: &str, arguments: A) -> Result<(), ErrorCode>
    where
        A: for<'py> pyo3::call::PyCallArgs<'py>,
    {
        let status = self.attached(|_, store| store.call_method1(method, arguments)?.extract());
        checked(status?).map(drop)
    }

    /// A method that returns a list of numbers, one an item; as many answers as it gave.
    fn numbers<A, T>(
        &self,
        count: usize,
        method: &str,
        arguments: impl FnOnce(Python<'_>) -> A,
        typed: impl Fn(u64) -> T,
    ) -> Vec<Result<T, ErrorCode>>
    where
        A: for<'py> pyo3::call::PyCallArgs<'py>,
    {
        let numbers: Result<Vec<i64>, ErrorCode> =
            self.attached(|py, store| store.call_method1(method, arguments(py))?.extract());
        match numbers {
            Ok(numbers) => numbers.into_iter().map(|number| checked(number).map(&typed)).collect(),
            Err(code) => (0..count).map(|_| Err(code)).collect(),
        }
    }
}

impl Blocking for PythonCalls {
    fn limits(&self) -> StoreLimits {
        LIMITS
    }

    fn register(&self, region: &Region) -> Result<(), ErrorCode> {
        self.status("register_buffer", (address(region, 0), region.len()))
    }

    fn unregister(&self, region: &Region) -> Result<(), ErrorCode> {
        self.status("unregister_buffer", (address(region, 0),))
    }

    fn put(&self, items: &[PutItem]) -> Vec<Result<(), ErrorCode>> {
        let (keys, addresses, sizes) = lists(items.iter().map(|item| (&item.key, &item.source)));
        let arguments = |py: Python<'_>| (keys, addresses, sizes, self.replication.clone_ref(py));
        self.numbers(items.len(), "batch_put_from_multi_buffers", arguments, drop)
    }

    fn get(&self, items: &[GetItem]) -> Vec<Result<u64, ErrorCode>> {
        let lists = lists(items.iter().map(|item| (&item.key, &item.dest)));
        self.numbers(items.len(), "batch_get_into_multi_buffers", |_| lists, |length| length)
    }

    fn exists(&self, keys: &[Key]) -> Vec<Result<bool, ErrorCode>> {
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        self.numbers(keys.len(), "batch_is_exist", |_| (names,), |found| found > 0)
    }

    fn size(&self, key: &Key) -> Result<u64, ErrorCode> {
        let key = key.as_str();
        checked(self.attached(|_, store| store.call_method1("get_size", (key,))?.extract())?)
    }

    fn remove(&self, key: &Key, force: bool) -> Result<(), ErrorCode> {
        self.status("remove", (key.as_str(), force))
    }

    /// With a dead master a close would stop every thread of Python for more than ten seconds, so the store
    /// is left as it is then.
    fn close(&self) -> Fence {
        if self.config.probe_master().is_err() {
            return Fence::Unknown;
        }
        match self.status("close", ()) {
            Ok(()) => {
                self.is_closed.store(true, Ordering::Release);
                Fence::Fenced
            }
            Err(_) => Fence::Unknown,
        }
    }
}

impl Drop for PythonCalls {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut() {
            // Its destructor closes, with the interpreter held, on whichever thread attaches next: the
            // object stays.
            mem::forget(self.store.take());
        }
    }
}

type Lists<'a> = (Vec<&'a str>, Vec<Vec<usize>>, Vec<Vec<u64>>);

/// Keys, addresses and lengths as the multi-buffer calls take them.
fn lists<'a>(items: impl Iterator<Item = (&'a Key, &'a Transfer)>) -> Lists<'a> {
    let (mut keys, mut addresses, mut sizes) = Lists::default();
    for (key, transfer) in items {
        let at = |offset| address(transfer.region(), offset);
        keys.push(key.as_str());
        addresses.push(transfer.extents().iter().map(|extent| at(extent.offset)).collect());
        sizes.push(transfer.extents().iter().map(|extent| extent.len).collect());
    }
    (keys, addresses, sizes)
}

/// An address for Python, which passes it on as a number.
fn address(region: &Region, offset: u64) -> usize {
    region.base().expose_provenance() + usize::try_from(offset).unwrap_or(usize::MAX)
}

/// A result that is zero or positive, or a code.
fn checked(number: i64) -> Result<u64, ErrorCode> {
    u64::try_from(number)
        .map_err(|_| i32::try_from(number).map_or(ErrorCode::Internal, ErrorCode::from_number))
}
