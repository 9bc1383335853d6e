//! The plug-in in a worker process.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use pyo3::prelude::*;
use springtide::{
    connector::{
        DropReason, LoadOrder, LoadTarget, Namespace, OrderId, SaveOutcome, StepPlan, StepWork,
        Worker,
    },
    pool::{Backing, Mapper},
    runtime::HostEvent,
};

use crate::{
    counters::{Counts, flatten},
    log,
    metrics::Metrics,
    process::{PluginEnv, Process, failed, seconds},
    settings::Instance,
    tensor::TorchTensor,
};

/// An order as Python sees it: its number, the item, the element type and the shape.
type Load = (u64, String, String, Vec<u64>);

/// The connector's worker, for Python. Only [`WorkerSide::wait_for_save`] waits for a store.
#[pyclass(frozen)]
pub struct WorkerSide {
    process: Process,
    worker: Worker<PluginEnv>,
    metrics: Metrics,
    fingerprint: String,
    namespace: String,
    wait_for_save: Duration,
    /// The step's orders, between [`WorkerSide::due`] and [`WorkerSide::load`].
    orders: Mutex<BTreeMap<u64, LoadOrder>>,
}

#[pymethods]
impl WorkerSide {
    /// Starts the worker's side of an instance, described in JSON. Where it copies what the scheduler loads,
    /// it maps the region that both share, and makes it if no other rank has.
    #[new]
    fn new(py: Python<'_>, instance: &str) -> PyResult<Self> {
        log::start();
        let instance = Instance::parse(instance).map_err(failed)?;
        let config = instance.config(Backing::Anonymous).map_err(failed)?;
        let parts = config.namespace.clone();
        let fingerprint = Namespace::new(&parts).fingerprint().to_owned();
        let namespace = serde_json::to_string(&parts).map_err(failed)?;
        let mapper = match config.copies() {
            true => Some(Mapper::prepare(&instance.region, &config.pool).map_err(failed)?),
            false => None,
        };
        let saves = instance.role.saves() && instance.rank == 0;
        let process = Process::start(&instance, saves).map_err(failed)?;
        let start = Worker::start(process.env().clone(), config, mapper);
        let worker = process.block_on(py, start).map_err(failed)?;
        let metrics = Metrics::of_worker(&worker, &process, &instance, &parts);
        let wait_for_save = Duration::from_millis(instance.settings.wait_for_save_ms);
        Ok(Self {
            process,
            worker,
            metrics,
            fingerprint,
            namespace,
            wait_for_save,
            orders: Mutex::default(),
        })
    }

    /// The namespace's fingerprint: equal on two instances exactly when they can share items.
    #[getter]
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What the fingerprint stands for, as JSON.
    #[getter]
    fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where metrics are served, if they are.
    #[getter]
    fn metrics_address(&self) -> Option<String> {
        self.metrics.address().map(|address| address.to_string())
    }

    /// Counts a hook of the engine that has failed.
    fn hook_failed(&self, hook: &str) {
        self.metrics.hook_failed(hook);
    }

    /// Whether calls reach the store.
    #[getter]
    fn store_is_up(&self) -> bool {
        self.process.store_is_up()
    }

    /// Waits until the store is up; whether it is.
    fn wait_for_store(&self, py: Python<'_>, duration: f64) -> bool {
        self.process.wait_for_store(py, seconds(duration))
    }

    /// What a step's plan asks of this rank: loads, orders to acknowledge again, items to save once more.
    fn due(&self, py: Python<'_>, plan: &str) -> PyResult<(Vec<Load>, Vec<u64>, Vec<String>)> {
        py.detach(|| {
            let plan =
                if plan.is_empty() { Ok(StepPlan::default()) } else { serde_json::from_str(plan) };
            let StepWork { load, done, save_again } = self.worker.due(&plan.map_err(failed)?);
            let done = done.into_iter().map(|id| id.0).collect();
            let loads = load.iter().map(|order| {
                let shape = order.spec.shape.dims().to_vec();
                (order.id.0, order.identifier.clone(), order.spec.dtype.name().to_owned(), shape)
            });
            let loads = loads.collect();
            let orders = load.into_iter().map(|order| (order.id.0, order)).collect();
            *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = orders;
            Ok((loads, done, save_again))
        })
    }

    /// Copies orders of the step into tensors; for each the number, and why it failed if it did.
    fn load(
        &self,
        py: Python<'_>,
        targets: Vec<(u64, Bound<'_, PyAny>)>,
    ) -> PyResult<Vec<(u64, Option<String>)>> {
        let mut loads = Vec::with_capacity(targets.len());
        for (id, tensor) in targets {
            let orders = &self.orders;
            let order = orders.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            let Some(order) = order else {
                return Err(failed(format!("order {id} is not one of this step")));
            };
            let tensor = TorchTensor::new(&tensor)?;
            loads.push(LoadTarget { order, tensor, free: HostEvent::ready() });
        }
        let deliveries = self.process.block_on(py, self.worker.load(loads));
        let told = deliveries.into_iter().map(|delivery| {
            let OrderId(id) = delivery.order;
            (id, delivery.result.err().map(|error| error.to_string()))
        });
        Ok(told.collect())
    }

    /// Begins to save a tensor in host memory; whether this worker saves at all. Never waits.
    fn save(&self, py: Python<'_>, identifier: &str, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let tensor = TorchTensor::new(tensor)?;
        let save = || self.worker.save(identifier, tensor, HostEvent::ready());
        Ok(py.detach(save).is_some())
    }

    /// Waits for the saves begun before, at most as long as is configured. The report in words (empty if
    /// nothing was saved), and each item that is not readable with the reason. One without bytes is no loss.
    fn wait_for_save(&self, py: Python<'_>) -> (String, Vec<(String, String)>) {
        let deadline = self.process.deadline(self.wait_for_save);
        let report = self.process.block_on(py, self.worker.wait_for_save(deadline));
        if report.entries.is_empty() {
            return Default::default();
        }
        let empty = SaveOutcome::Dropped(DropReason::Empty);
        let missing = report.entries.iter();
        let missing =
            missing.filter(|entry| !entry.outcome.is_readable() && entry.outcome != empty);
        let missing = missing.map(|entry| (entry.key.to_string(), entry.outcome.to_string()));
        (report.to_string(), missing.collect())
    }

    /// All counters.
    fn counters(&self, py: Python<'_>) -> Counts {
        py.detach(|| flatten(&self.worker.counters()))
    }

    /// Closes the store and the pool within `duration`, and says how that went.
    fn close(&self, py: Python<'_>, duration: f64) -> String {
        let limit = seconds(duration).min(Duration::from_secs(3600));
        let deadline = self.process.deadline(limit);
        let report = self.process.block_on(py, self.worker.close(deadline));
        py.detach(|| {
            self.metrics.close();
            self.process.stop();
        });
        format!("{report:?}")
    }
}
