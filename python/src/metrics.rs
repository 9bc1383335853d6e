//! What this process has counted, for vLLM's `/metrics` and for an endpoint of its own.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use springtide::{
    backend::Link,
    connector::{Namespace, NamespaceParts, Role, Scheduler, Worker},
    env::Env,
};
use springtide_metrics::{
    Endpoint, Info, Kind, Log, Sample, Serving, Snapshot, Store, Value, catalogue,
    exposition::{Look, registry},
};

use crate::{
    backend::Backend,
    counters::Counts,
    log,
    process::{PluginEnv, Process},
    settings::Instance,
};

/// Which process of the instance it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The scheduler's.
    Scheduler,
    /// The worker's of a rank.
    Worker(u32),
}

/// Everything that this process counts.
pub struct Metrics {
    look: Look,
    hook_errors: Arc<Mutex<BTreeMap<String, u64>>>,
    endpoint: Mutex<Option<Endpoint>>,
}

impl Metrics {
    /// Of a scheduler's process.
    pub fn of_scheduler(
        scheduler: &Scheduler<PluginEnv>,
        process: &Process,
        instance: &Instance,
        namespace: &NamespaceParts,
    ) -> Self {
        let scheduler = scheduler.clone();
        let look = move || Snapshot::of_scheduler(&scheduler);
        Self::start(Side::Scheduler, look, process, instance, namespace)
    }

    /// Of a worker's process.
    pub fn of_worker(
        worker: &Worker<PluginEnv>,
        process: &Process,
        instance: &Instance,
        namespace: &NamespaceParts,
    ) -> Self {
        let worker = worker.clone();
        let look = move || Snapshot::of_worker(&worker);
        Self::start(Side::Worker(instance.rank), look, process, instance, namespace)
    }

    fn start(
        side: Side,
        look: impl Fn() -> Snapshot + Send + Sync + 'static,
        process: &Process,
        instance: &Instance,
        namespace: &NamespaceParts,
    ) -> Self {
        let hook_errors = Arc::new(Mutex::new(BTreeMap::new()));
        let (link, errors) = (process.link().clone(), Arc::clone(&hook_errors));
        let info = Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: role(instance.role).to_owned(),
            namespace: Namespace::new(namespace).fingerprint().to_owned(),
        };
        let look: Look = Arc::new(move || Snapshot {
            info: Some(info.clone()),
            store: Some(store(&link)),
            log: Some(Log { suppressed: log::suppressed(), lost: log::lost() }),
            hook_errors: errors.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            ..look()
        });
        let endpoint = listen(side, &look, process, instance);
        Self { look, hook_errors, endpoint: Mutex::new(endpoint) }
    }

    /// A hook of the engine has failed.
    pub fn hook_failed(&self, hook: &str) {
        let mut errors = self.hook_errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(hook.to_owned()).or_default() += 1;
    }

    /// Counters and gauges now, by their names with the values of their labels: `springtide_lookups{miss,absent}`.
    pub fn numbers(&self) -> (Counts, Counts) {
        let (mut counters, mut gauges) = (Counts::new(), Counts::new());
        for sample in (self.look)().samples() {
            let Sample { metric, label_values, value } = sample;
            let name = match label_values.is_empty() {
                true => metric.name.to_owned(),
                false => format!("{}{{{}}}", metric.name, label_values.join(",")),
            };
            let of = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            match value {
                Value::Count(count) => _ = counters.insert(name, of(count)),
                Value::Level(level) => _ = gauges.insert(name, of(level)),
                // vLLM's histograms take single observations.
                Value::Times(_) => {}
            }
        }
        (counters, gauges)
    }

    /// Where the endpoint listens, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        let endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        endpoint.as_ref().map(Endpoint::address)
    }

    /// Ends the endpoint.
    pub fn close(&self) {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Every metric for Python: name, kind, labels and meaning.
pub fn described() -> Vec<(&'static str, &'static str, Vec<&'static str>, &'static str)> {
    let describe = |metric: &&'static catalogue::Metric| {
        (metric.name, metric.kind.name(), metric.labels.to_vec(), metric.help())
    };
    catalogue::ALL.iter().filter(|metric| metric.kind != Kind::Histogram).map(describe).collect()
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Producer => "producer",
        Role::Consumer => "consumer",
        Role::Both => "both",
    }
}

fn store(link: &Link<Backend>) -> Store {
    Store { state: link.state(), counters: link.counters() }
}

/// Starts the endpoint, if one is configured. What keeps it from listening is told, and keeps nothing else
/// from working.
fn listen(side: Side, look: &Look, process: &Process, instance: &Instance) -> Option<Endpoint> {
    // The settings have been checked.
    let mut address = instance.settings.metrics.address().ok().flatten()?;
    let (name, rank) = match side {
        Side::Scheduler => ("scheduler", 0),
        Side::Worker(rank) => ("worker", rank),
    };
    if let (Side::Worker(rank), 1..) = (side, address.port()) {
        let port = u32::from(address.port()) + 1 + rank;
        let Ok(port) = u16::try_from(port) else {
            tracing::warn!(port, "no metrics endpoint: there is no such port");
            return None;
        };
        address.set_port(port);
    }
    let labels = [("process", name.to_owned()), ("rank", rank.to_string())];
    let link = process.link().clone();
    let serving = Serving {
        registry: registry(Arc::clone(look), &labels),
        health: Box::new(move || format!("store {}", link.state().name())),
    };
    match Endpoint::start(address, serving, *process.env().clock(), process.handle()) {
        Ok(endpoint) => {
            tracing::info!(address = %endpoint.address(), process = name, rank, "serving /metrics");
            Some(endpoint)
        }
        Err(error) => {
            tracing::warn!(%address, %error, "no metrics endpoint: set metrics.listen to a free port");
            None
        }
    }
}
