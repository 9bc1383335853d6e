//! The plug-in in a worker process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pyo3::prelude::*;
use springtide::{
    connector::{
        DropReason, LoadOrder, LoadTarget, OrderId, SaveOutcome, StepPlan, StepWork, Worker,
    },
    log::{ItemId, shown},
    pool::{Backing, Mapper},
    runtime::HostEvent,
};

use crate::{
    counters::{Counts, flatten},
    log,
    metrics::Metrics,
    process::{PluginEnv, Process, failed},
    settings::Instance,
    side::{Parts, Side},
    tensor::TorchTensor,
};

/// An order as Python sees it: its number, the item, the element type and the shape.
type Load = (u64, String, String, Vec<u64>);

/// The connector's worker, for Python. Only [`WorkerSide::wait_for_save`] waits for a store.
#[pyclass(frozen, extends = Side)]
pub struct WorkerSide {
    parts: Arc<Parts>,
    worker: Worker<PluginEnv>,
    wait_for_save: Duration,
    /// The step's orders, between [`WorkerSide::due`] and [`WorkerSide::load`].
    orders: Mutex<BTreeMap<u64, LoadOrder>>,
}

#[pymethods]
impl WorkerSide {
    /// Starts the worker's side of an instance, described in JSON. Where it copies what the scheduler loads,
    /// it maps the region that both share, and makes it if no other rank has.
    #[new]
    fn new(py: Python<'_>, instance: &str) -> PyResult<PyClassInitializer<Self>> {
        log::start(py);
        let instance = Instance::parse(instance).map_err(failed)?;
        let config = instance.config(Backing::Anonymous).map_err(failed)?;
        let namespace = config.namespace.clone();
        let mapper = match config.copies() {
            true => Some(Mapper::prepare(&instance.region, &config.pool).map_err(failed)?),
            false => None,
        };
        let saves = instance.role.saves() && instance.rank == 0;
        let process = Process::start(&instance, saves).map_err(failed)?;
        let start = Worker::start(process.env().clone(), config, mapper);
        let worker = process.block_on(py, start).map_err(failed)?;
        let metrics = Metrics::of_worker(&worker, &process, &instance, &namespace);
        let wait_for_save = Duration::from_millis(instance.settings.wait_for_save_ms);
        let parts = Parts::new(process, metrics, &namespace)?;
        let side = Side::new(&parts);
        let this = Self { parts, worker, wait_for_save, orders: Mutex::default() };
        Ok(PyClassInitializer::from(side).add_subclass(this))
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
        let deliveries = self.parts.process.block_on(py, self.worker.load(loads));
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
    /// nothing was saved), and each item that is not readable: key, name in logs, and the reason. One without
    /// bytes is no loss.
    fn wait_for_save(&self, py: Python<'_>) -> (String, Vec<(String, String, String)>) {
        let deadline = self.parts.process.deadline(self.wait_for_save);
        let report = self.parts.process.block_on(py, self.worker.wait_for_save(deadline));
        if report.entries.is_empty() {
            return Default::default();
        }
        let empty = SaveOutcome::Dropped(DropReason::Empty);
        let missing = report.entries.iter();
        let missing =
            missing.filter(|entry| !entry.outcome.is_readable() && entry.outcome != empty);
        let missing = missing.map(|entry| {
            let (key, item) = (shown(entry.key.as_str()), ItemId::of(&entry.key).to_string());
            (key, item, entry.outcome.to_string())
        });
        (report.to_string(), missing.collect())
    }

    /// All counters.
    fn counters(&self, py: Python<'_>) -> Counts {
        py.detach(|| flatten(&self.worker.counters()))
    }

    /// Closes the store and the pool within `duration`, and says how that went.
    fn close(&self, py: Python<'_>, duration: f64) -> String {
        self.parts.close(py, duration, |deadline| self.worker.close(deadline))
    }
}
