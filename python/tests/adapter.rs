//! The Python store against a class of Python that behaves as each test needs.
//!
//! `ci/real` runs it: it embeds an interpreter, and takes `ReplicateConfig` from the real wheel.

use std::{net::TcpListener, sync::Arc, thread, time::Duration};

use pyo3::{prelude::*, types::PyModule};
use springtide::{
    backend::{MooncakeConfig, MooncakeError},
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store},
    pool::{Contiguity, Lease, Pool, PoolConfig},
    runtime::TokioClock,
};
use springtide_native::store::{PythonStore, PythonStoreError, WHEEL, adopt, check_wheel, connect};

const LEN: u64 = 3000;

/// A store in a dictionary, with what the tests need to know. Keys name misbehaviour.
const CLASS: &std::ffi::CStr = c"
import ctypes, threading

class Store:
    def __init__(self):
        self.objects, self.registered, self.buffers, self.closed = {}, [], [], 0
        self.entered, self.go_on = threading.Event(), threading.Event()

    def batch_put_from_multi_buffers(self, keys, addresses, sizes, config):
        self.buffers, self.replicas = sizes, config.replica_num
        if 'raise' in keys:
            raise RuntimeError('on purpose')
        if 'short' in keys:
            return []
        if 'hold' in keys:
            self.entered.set()
            self.go_on.wait()
        for key, parts, lengths in zip(keys, addresses, sizes):
            self.objects.setdefault(key, b''.join(map(ctypes.string_at, parts, lengths)))
        return [-800 if key == 'fail' else 0 for key in keys]

    def batch_get_into_multi_buffers(self, keys, addresses, sizes):
        return [self.get(*item) for item in zip(keys, addresses, sizes)]

    def get(self, key, parts, lengths):
        value = self.objects.get(key)
        if value is None:
            return -704
        if len(value) != sum(lengths):
            return -600 if sum(lengths) < len(value) else -800
        for part, length in zip(parts, lengths):
            ctypes.memmove(part, value[:length], length)
            value = value[length:]
        return sum(lengths)

    def batch_is_exist(self, keys):
        return [int(key in self.objects) for key in keys]

    def get_size(self, key):
        return len(self.objects[key]) if key in self.objects else -704

    def remove(self, key, force):
        return 0 if self.objects.pop(key, None) is not None else -704

    def register_buffer(self, address, size):
        self.registered.append((address, size))
        return 0

    def unregister_buffer(self, address):
        self.registered = [entry for entry in self.registered if entry[0] != address]
        return 0

    def close(self):
        self.closed += 1
        return 0
";

/// An object of the class above, and what it is told of the master.
struct Fake {
    object: Py<PyAny>,
    config: MooncakeConfig,
}

impl Fake {
    /// With a master that answers.
    fn new() -> Self {
        let master = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = master.local_addr().unwrap().to_string();
        thread::Builder::new().spawn(move || master.incoming().for_each(drop)).unwrap();
        let object = Python::attach(|py| {
            let module = PyModule::from_code(py, CLASS, c"fake.py", c"fake")?;
            Ok::<_, PyErr>(module.getattr("Store")?.call0()?.unbind())
        });
        Self { object: object.unwrap(), config: MooncakeConfig::new(address, "node:1") }
    }

    fn store(&self) -> PythonStore {
        Python::attach(|py| {
            adopt(self.object.bind(py).clone(), &self.config, TokioClock::new()).unwrap()
        })
    }

    /// An attribute, as Python writes it.
    fn get(&self, name: &str) -> String {
        Python::attach(|py| self.object.bind(py).getattr(name).unwrap().to_string())
    }

    fn call(&self, event: &str, method: &str) {
        Python::attach(|py| {
            self.object.bind(py).getattr(event).unwrap().call_method0(method).unwrap();
        });
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) }).unwrap()
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..LEN).map(|at| seed.wrapping_add((at / 7) as u8)).collect()
}

/// Memory in several pieces, filled.
fn lease(pool: &Pool, seed: u8) -> Lease {
    let mut lease = pool.allocate(LEN, Contiguity::Extents).unwrap();
    assert!(lease.extents().len() > 1, "the case is a scattered object");
    lease.write_at(0, &bytes(seed));
    lease
}

fn put(pool: &Pool, key: &str, seed: u8) -> PutItem {
    PutItem { key: Key::new(key), source: lease(pool, seed).into_transfer() }
}

fn ends<T>(outcomes: Vec<Outcome<T>>) -> Vec<Result<T, (&'static str, ErrorCode)>> {
    let end = |outcome: Outcome<T>| match outcome {
        Outcome::Ended { result, .. } => result.map_err(|error| ("ended", error.code)),
        Outcome::Uncertain { error, .. } => Err(("uncertain", error.code)),
    };
    outcomes.into_iter().map(end).collect()
}

#[test]
fn scattered_objects_go_through_python_byte_by_byte() {
    let (fake, pool) = (Fake::new(), pool());
    let store = fake.store();
    runtime().block_on(async {
        assert_eq!(store.register(Arc::clone(pool.region())).await, Ok(()));
        let region = format!("[({}, {})]", pool.region().base() as usize, pool.region().len());
        assert_eq!(fake.get("registered"), region);
        assert_eq!(
            ends(store.put(vec![put(&pool, "a", 1), put(&pool, "b", 2)]).await),
            [Ok(()); 2]
        );
        assert_eq!(fake.get("replicas"), "1");
        let dest = lease(&pool, 0).into_transfer();
        let outcome = store.get(vec![GetItem { key: Key::new("b"), dest }]).await.remove(0);
        let Outcome::Ended { buffer, result } = outcome else { panic!("{outcome:?}") };
        assert_eq!(result, Ok(LEN));
        let mut found = vec![0; LEN as usize];
        buffer.read_at(0, &mut found);
        assert!(found == bytes(2));
        let found = store.exists(["a", "x"].map(Key::new).to_vec()).await;
        assert_eq!(found, [Ok(true), Ok(false)]);
        assert_eq!(store.size(Key::new("a")).await, Ok(LEN));
        assert_eq!(store.remove(Key::new("a"), true).await, Ok(()));
        let gone = store.size(Key::new("a")).await.unwrap_err();
        assert_eq!(gone.code, ErrorCode::ObjectNotFound);
        assert_eq!(store.unregister(Arc::clone(pool.region())).await, Ok(()));
        assert_eq!(fake.get("registered"), "[]");
    });
}

#[test]
fn an_exception_or_too_few_answers_leave_every_end_unknown() {
    let (fake, pool) = (Fake::new(), pool());
    let store = fake.store();
    runtime().block_on(async {
        let unknown = Err(("uncertain", ErrorCode::Internal));
        for key in ["raise", "short"] {
            assert_eq!(ends(store.put(vec![put(&pool, key, 1)]).await), [unknown], "{key}");
        }
        // Told within a moment, so the transfer has ended.
        let failed = Err(("ended", ErrorCode::TransferFail));
        assert_eq!(ends(store.put(vec![put(&pool, "fail", 1)]).await), [failed]);
        assert_eq!(store.close().await, Fence::Fenced);
        assert!(pool.release_quarantine() > 0);
        assert_eq!(pool.usage().free, pool.usage().total);
    });
}

#[test]
fn no_thread_of_python_waits_for_a_transfer() {
    let (fake, pool) = (Fake::new(), pool());
    let store = fake.store();
    runtime().block_on(async {
        let held = store.put(vec![put(&pool, "hold", 1)]);
        // Both attach while the put is inside.
        fake.call("entered", "wait");
        assert_eq!(store.exists(vec![Key::new("hold")]).await, [Ok(false)]);
        fake.call("go_on", "set");
        assert_eq!(ends(held.await), [Ok(())]);
    });
}

#[test]
fn a_store_whose_master_is_dead_is_not_closed() {
    let mut fake = Fake::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fake.config.master = free.to_string();
    runtime().block_on(async {
        let store = fake.store();
        assert_eq!(store.close().await, Fence::Unknown);
        assert_eq!(fake.get("closed"), "0");
    });
}

#[test]
fn a_close_is_made_once_and_fences() {
    let fake = Fake::new();
    let store = fake.store();
    runtime().block_on(async {
        assert_eq!((store.close().await, store.close().await), (Fence::Fenced, Fence::Fenced));
    });
    assert_eq!(fake.get("closed"), "1");
}

#[test]
fn there_is_no_store_without_a_master() {
    Python::initialize();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = MooncakeConfig {
        probe_timeout_ms: 50,
        ..MooncakeConfig::new(silent.local_addr().unwrap().to_string(), "node")
    };
    let connecting = connect(&config, 0, TokioClock::new());
    let refused = runtime().block_on(async {
        tokio::time::timeout_at(tokio::time::Instant::now() + Duration::from_secs(60), connecting)
            .await
            .expect("a silent master is found out at once")
    });
    let Err(PythonStoreError::Preflight(MooncakeError::Master { address, error })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(address, config.master);
    assert_eq!(error.to_string(), "it accepts connections but says nothing for 50ms");
}

#[test]
fn an_old_wheel_is_told_with_its_version_and_what_it_lacks() {
    const OLD: &std::ffi::CStr = c"
class MooncakeDistributedStore:
    def setup(self): pass
    close = register_buffer = unregister_buffer = batch_put_from_multi_buffers = setup

class ReplicateConfig: pass
";
    Python::initialize();
    let error = Python::attach(|py| {
        check_wheel(&py.import("mooncake.store").unwrap()).expect("the installed wheel has all");
        let old = PyModule::from_code(py, OLD, c"old.py", c"old").unwrap();
        check_wheel(&old).unwrap_err().to_string()
    });
    // The version is that of the wheel which is installed here.
    let told = format!("mooncake.store of mooncake-transfer-engine-non-cuda {WHEEL} has no ");
    assert!(error.starts_with(&told), "{error}");
    assert!(error.contains("MooncakeDistributedStore.batch_get_into_multi_buffers: "), "{error}");
    assert!(error.contains("pip install --upgrade"), "{error}");
}
