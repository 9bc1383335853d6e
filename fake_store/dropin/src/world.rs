//! What all handles of a process share: the runtime, the faults, the masters within the process.

use std::{
    collections::BTreeMap,
    env, fs,
    future::Future,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use fake_store::{FaultPlan, Faults, Knobs, Spawner, server::MasterServer};
use springtide::runtime::{TokioClock, TokioNetwork};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
};

/// Names a file with a fault plan.
const FAULT_PLAN: &str = "FAKE_MOONCAKE_FAULT_PLAN";

/// Names a file with the knobs of masters within the process.
const KNOBS: &str = "FAKE_MOONCAKE_KNOBS";

/// Before the number of a master within the process.
const IN_PROCESS: &str = "inproc:";

/// What a process has.
pub(crate) struct World {
    runtime: Runtime,
    pub(crate) clock: TokioClock,
    pub(crate) faults: Faults,
    knobs: Knobs,
    masters: Mutex<BTreeMap<u16, Weak<InProcess>>>,
}

/// A master within the process. It ends with the last handle that uses it.
pub(crate) struct InProcess {
    address: String,
    _tasks: Tasks,
}

/// The process's world, made at its first use.
///
/// # Errors
/// What is wrong with the environment, in words; the same each time.
pub(crate) fn world() -> Result<&'static World, String> {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    WORLD.get_or_init(World::new).as_ref().map_err(Clone::clone)
}

impl World {
    fn new() -> Result<Self, String> {
        let faults = match read(FAULT_PLAN)? {
            Some((path, text)) => {
                let wrong = |error: &dyn std::fmt::Display| format!("{FAULT_PLAN}={path}: {error}");
                let plan = FaultPlan::from_json(&text).map_err(|error| wrong(&error))?;
                Faults::new(plan).map_err(|error| wrong(&error))?
            }
            None => Faults::default(),
        };
        let knobs = match read(KNOBS)? {
            Some((path, text)) => {
                let wrong = |error: &dyn std::fmt::Display| format!("{KNOBS}={path}: {error}");
                let knobs: Knobs = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
                knobs.validate().map_err(|error| wrong(&error))?;
                knobs
            }
            None => Knobs::default(),
        };
        let builder = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = builder.map_err(|error| format!("cannot start threads: {error}"))?;
        let clock = runtime.block_on(async { TokioClock::new() });
        Ok(Self { runtime, clock, faults, knobs, masters: Mutex::default() })
    }

    /// Runs a call to its end.
    pub(crate) fn run<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }

    /// A group of tasks.
    pub(crate) fn tasks(&self) -> Tasks {
        Tasks { handle: self.runtime.handle().clone(), ended: watch::Sender::new(false) }
    }

    /// The address of a master, and what keeps it alive if it lives here.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn master(&self, address: &str) -> Result<(String, Option<Arc<InProcess>>), String> {
        let Some(number) = address.strip_prefix(IN_PROCESS) else {
            return Ok((address.to_owned(), None));
        };
        let number: u16 =
            number.parse().map_err(|_| format!("expected {IN_PROCESS}N, got {address:?}"))?;
        let mut masters = lock(&self.masters);
        if let Some(master) = masters.get(&number).and_then(Weak::upgrade) {
            return Ok((master.address.clone(), Some(master)));
        }
        let tasks = self.tasks();
        let (spawner, knobs, faults) = (tasks.spawner(), self.knobs.clone(), self.faults.clone());
        let start = async {
            let address = "127.0.0.1:0";
            MasterServer::start(&TokioNetwork, self.clock, &spawner, faults, address, knobs, 0)
                .await
        };
        let server = self.run(start).map_err(|error| error.to_string())?;
        let master = Arc::new(InProcess { address: server.address, _tasks: tasks });
        masters.insert(number, Arc::downgrade(&master));
        Ok((master.address.clone(), Some(master)))
    }
}

/// Tasks that end together.
pub(crate) struct Tasks {
    handle: Handle,
    ended: watch::Sender<bool>,
}

impl Tasks {
    /// Runs tasks in this group.
    pub(crate) fn spawner(&self) -> Spawner {
        let (handle, ended) = (self.handle.clone(), self.ended.subscribe());
        Arc::new(move |task| {
            let mut ended = ended.clone();
            drop(handle.spawn(async move {
                tokio::select! {
                    biased;
                    // Also when the group itself is gone.
                    _ = ended.wait_for(|ended| *ended) => {}
                    () = task => {}
                }
            }));
        })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.ended.send_replace(true);
    }
}

/// A number that no other client of any process has.
pub(crate) fn unique() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that a variable names, with its path; nothing if it is not set or empty.
fn read(variable: &str) -> Result<Option<(String, String)>, String> {
    let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) else { return Ok(None) };
    let text = fs::read_to_string(&path);
    let path = path.to_string_lossy().into_owned();
    match text {
        Ok(text) => Ok(Some((path, text))),
        Err(error) => Err(format!("{variable}={path}: {error}")),
    }
}
