//! An instance with the connector over the Python store, told what to do line by line.
//!
//! The Mooncake object is wrapped in a class that counts registrations; everything else goes straight to it.

use std::{
    env,
    io::{BufRead, Write, stdin, stdout},
    time::Duration,
};

use pyo3::{prelude::*, types::PyModule};
use springtide::{
    backend::MooncakeConfig,
    connector::{
        Availability, Config, ItemRequest, LoadConfig, LoadTarget, Namespace, NamespaceParts, Role,
        Scheduler, Worker,
    },
    env::{Clock, DType, Env, Fence, TensorSpec, Time},
    pool::PoolConfig,
    runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
};
use springtide_native::store::{PythonStore, adopt, set_up};

use crate::protocol::{
    CONFIG_VARIABLE, Closed, Command, Item, Loaded, PREFIX, PeerConfig, Reply, State,
};

/// Width of a 7B model's encoder outputs.
const WIDTH: u64 = 3584;

const COUNTING: &std::ffi::CStr = c"
class Counting:
    def __init__(self, store):
        self.store = store
        self.registrations = 0
    def register_buffer(self, address, size):
        code = self.store.register_buffer(address, size)
        self.registrations += code == 0
        return code
    def unregister_buffer(self, address):
        code = self.store.unregister_buffer(address)
        self.registrations -= code == 0
        return code
    def __getattr__(self, name):
        return getattr(self.store, name)
";

type PeerEnv = Runtime<PythonStore>;

/// Serves until it is closed or its input ends.
pub(crate) fn run() {
    let config = env::var(CONFIG_VARIABLE).expect("peers are started by tests");
    let config: PeerConfig = serde_json::from_str(&config).expect("plain data");
    Python::initialize();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (store, counting) = join(&config);
    let mut peer = runtime.block_on(Instance::start(runtime.handle(), &config, store, counting));
    say(&Reply::Ready);
    for line in stdin().lock().lines() {
        let line = line.expect("tests write UTF-8");
        let command = serde_json::from_str(&line).expect("tests speak the protocol");
        let is_last = matches!(command, Command::Close { .. });
        say(&runtime.block_on(peer.perform(command)));
        if is_last {
            return;
        }
    }
}

fn say(reply: &Reply) {
    let mut output = stdout().lock();
    let reply = serde_json::to_string(reply).expect("plain data");
    // The runner's own output may end in the middle of a line.
    writeln!(output, "\n{PREFIX}{reply}").expect("the test reads it");
    output.flush().expect("the test reads it");
}

fn join(config: &PeerConfig) -> (PythonStore, Py<PyAny>) {
    let mooncake = MooncakeConfig {
        segment_bytes: config.segment_bytes,
        ..MooncakeConfig::new(&config.master, "127.0.0.1")
    };
    let mooncake = mooncake.with_port().expect("a free port");
    mooncake.preflight(config.pool_bytes).expect("the master answers");
    Python::attach(|py| {
        let module = PyModule::from_code(py, COUNTING, c"counting.py", c"counting")?;
        let store = set_up(py, &mooncake).expect("the master accepts us");
        let counting = module.getattr("Counting")?.call1((store,))?;
        let store = adopt(counting.clone(), &mooncake, TokioClock::new()).expect("threads");
        PyResult::Ok((store, counting.unbind()))
    })
    .expect("Python runs the class above")
}

struct Instance {
    env: PeerEnv,
    worker: Worker<PeerEnv>,
    /// On a consumer.
    scheduler: Option<Scheduler<PeerEnv>>,
    counting: Py<PyAny>,
    requests: u64,
}

impl Instance {
    async fn start(
        handle: &tokio::runtime::Handle,
        config: &PeerConfig,
        store: PythonStore,
        counting: Py<PyAny>,
    ) -> Self {
        let env = Runtime::new(handle.clone(), TokioClock::new(), store, HostDevice);
        let connector = Config {
            role: config.role,
            namespace: parts(),
            pool: PoolConfig::with_bytes(config.pool_bytes),
            // A busy machine is no reason for a miss here.
            loads: LoadConfig { deadline: Duration::from_secs(30), ..LoadConfig::default() },
            ..Config::default()
        };
        let scheduler = match config.role {
            Role::Consumer => {
                Some(Scheduler::start(env.clone(), connector.clone()).await.expect("a scheduler"))
            }
            _ => None,
        };
        let mapper = scheduler.as_ref().and_then(Scheduler::mapper);
        let worker = Worker::start(env.clone(), connector, mapper).await.expect("a worker");
        Self { env, worker, scheduler, counting, requests: 0 }
    }

    async fn perform(&mut self, command: Command) -> Reply {
        match command {
            Command::Save { items, wait_ms } => Reply::Saved(self.save(&items, wait_ms).await),
            Command::Load { items } => Reply::Loaded(self.load(&items).await),
            Command::State => Reply::State(Box::new(self.state())),
            Command::Close { wait_ms } => Reply::Closed(self.close(wait_ms).await),
        }
    }

    async fn save(&self, items: &[Item], wait_ms: u64) -> Vec<String> {
        for item in items {
            let saved = self.worker.save(&item.identifier, tensor(item), HostEvent::ready());
            saved.expect("a producer saves");
        }
        let report = self.worker.wait_for_save(self.in_ms(wait_ms)).await;
        assert_eq!(self.worker.counters().check(), Ok(()));
        assert_eq!(report.entries.len(), items.len(), "every save is reported once");
        report.entries.iter().map(|entry| entry.outcome.to_string()).collect()
    }

    /// One request, from its first scheduling pass to its end, in the order in which an engine calls.
    async fn load(&mut self, items: &[Item]) -> Loaded {
        let scheduler = self.scheduler.clone().expect("a consumer loads");
        self.requests += 1;
        let request = format!("request-{}", self.requests);
        let identifiers: Vec<String> = items.iter().map(|item| item.identifier.clone()).collect();
        let wanted: Vec<ItemRequest> = items
            .iter()
            .map(|item| ItemRequest { identifier: item.identifier.clone(), rows: item.rows })
            .collect();
        while scheduler.ensure_available(&request, &wanted) == Availability::Wait {
            self.env.clock().sleep(Duration::from_millis(1)).await;
        }
        let mut missed = Vec::new();
        for identifier in &identifiers {
            if !scheduler.has_item(identifier) {
                missed.push(identifier.clone());
            }
            scheduler.allocated(&request, identifier);
        }
        let orders = scheduler.build_step(&[]).orders;
        let mut wrong: Vec<String> = Vec::new();
        let (mut targets, mut tensors) = (Vec::new(), Vec::new());
        for order in orders {
            let tensor = HostTensor::zeros(order.spec);
            tensors.push((order.identifier.clone(), tensor.clone()));
            targets.push(LoadTarget { order, tensor, free: HostEvent::ready() });
        }
        let deliveries = self.worker.load(targets).await;
        for (delivery, (identifier, tensor)) in deliveries.iter().zip(&tensors) {
            let item = items.iter().find(|item| item.identifier == *identifier);
            let expected = item.map(|item| bytes(&item.identifier, spec(item.rows)));
            if delivery.result != Ok(()) || Some(tensor.to_vec()) != expected {
                wrong.push(format!("{identifier}: {:?}", delivery.result));
            }
        }
        let delivered: Vec<_> = deliveries.iter().map(|delivery| delivery.order).collect();
        scheduler.acknowledge(0, &delivered);
        scheduler.request_finished(&request);
        // They leave the engine's own cache at once, so that the next request loads them again.
        scheduler.build_step(&identifiers);
        let counters = scheduler.counters();
        assert_eq!(counters.check(), Ok(()));
        assert_eq!(delivered.len() + missed.len(), items.len(), "promised and not ordered");
        let delivered = delivered.len() - wrong.len();
        Loaded { delivered, wrong, missed, reasons: counters.misses }
    }

    fn state(&self) -> State {
        let pool = self.scheduler.as_ref().map_or(self.worker.pool(), Scheduler::pool);
        let pool = pool.expect("both roles have a pool");
        assert_eq!(pool.verify(), Ok(()));
        let loads = self.scheduler.as_ref().map(Scheduler::counters).unwrap_or_default();
        let residents = self
            .scheduler
            .as_ref()
            .map_or(self.worker.residents(), |scheduler| scheduler.gauges().residents);
        let registrations =
            Python::attach(|py| self.counting.bind(py).getattr("registrations")?.extract::<u64>());
        State {
            usage: pool.usage(),
            residents,
            registrations: registrations.expect("the class above counts"),
            threads: threads(),
            stored: self.worker.counters().stored,
            loaded: loads.loaded,
            gets: loads.gets,
        }
    }

    async fn close(&self, wait_ms: u64) -> Closed {
        let deadline = self.in_ms(wait_ms);
        let report = match &self.scheduler {
            Some(scheduler) => scheduler.close(deadline).await,
            None => self.worker.close(deadline).await,
        };
        Closed {
            fenced: report.fence == Fence::Fenced,
            abandoned: report.abandoned,
            leaked_bytes: report.leaked_bytes,
        }
    }

    fn in_ms(&self, wait_ms: u64) -> Time {
        self.env.clock().now() + Duration::from_millis(wait_ms)
    }
}

fn parts() -> NamespaceParts {
    let model = "real-store-test".into();
    NamespaceParts { model, dtype: DType::Bf16, width: WIDTH, ..NamespaceParts::default() }
}

fn spec(rows: u64) -> TensorSpec {
    Namespace::new(&parts()).spec(rows).expect("a few thousand rows")
}

fn tensor(item: &Item) -> HostTensor {
    let spec = spec(item.rows);
    HostTensor::new(spec, bytes(&item.identifier, spec)).expect("as many bytes as the shape has")
}

/// The bytes of an item: a sequence that begins with its name and never repeats.
fn bytes(identifier: &str, spec: TensorSpec) -> Vec<u8> {
    let mut state = identifier.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let words = spec.bytes().div_ceil(8);
    let mut bytes = Vec::with_capacity(words as usize * 8);
    for _ in 0..words {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes.extend((mixed ^ (mixed >> 27)).to_le_bytes());
    }
    bytes.truncate(spec.bytes() as usize);
    bytes
}

fn threads() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    line.and_then(|count| count.trim().parse().ok()).expect("it counts threads")
}
