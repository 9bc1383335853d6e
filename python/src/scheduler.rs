//! The plug-in in the scheduler process.

use std::sync::Arc;

use pyo3::prelude::*;
use springtide::connector::{
    Availability, ItemDecision, ItemRequest, OrderId, Scheduler, SchedulerGauges,
};
use springtide::pool::Backing;

use crate::{
    counters::{Counts, Told, flatten},
    log,
    metrics::Metrics,
    process::{PluginEnv, Process, failed},
    settings::Instance,
    side::{Parts, Side},
};

/// The connector's scheduler, for Python. No method waits for a store.
#[pyclass(frozen, extends = Side)]
pub struct SchedulerSide {
    parts: Arc<Parts>,
    scheduler: Scheduler<PluginEnv>,
    told: Told,
}

#[pymethods]
impl SchedulerSide {
    /// Starts the scheduler's side of an instance, described in JSON.
    #[new]
    fn new(py: Python<'_>, instance: &str) -> PyResult<PyClassInitializer<Self>> {
        log::start(py);
        let instance = Instance::parse(instance).map_err(failed)?;
        let mut config = instance.config(Backing::Anonymous).map_err(failed)?;
        let loads = config.loads();
        if loads {
            config.pool.backing = instance.shared();
        }
        let namespace = config.namespace.clone();
        let process = Process::start(&instance, loads).map_err(failed)?;
        let start = Scheduler::start(process.env().clone(), config);
        let scheduler = process.block_on(py, start).map_err(failed)?;
        let metrics = Metrics::of_scheduler(&scheduler, &process, &instance, &namespace);
        let parts = Parts::new(process, metrics, &namespace)?;
        let side = Side::new(&parts);
        let this = Self { parts, scheduler, told: Told::default() };
        Ok(PyClassInitializer::from(side).add_subclass(this))
    }

    /// Whether the request, with these items (identifier, rows) in its window, can be scheduled.
    fn ensure_available(&self, py: Python<'_>, request: &str, items: Vec<(String, u64)>) -> bool {
        let item = |(identifier, rows)| ItemRequest { identifier, rows };
        let items: Vec<ItemRequest> = items.into_iter().map(item).collect();
        py.detach(|| self.scheduler.ensure_available(request, &items) == Availability::Ready)
    }

    /// Whether the workers will deliver the item in this step.
    fn has_item(&self, py: Python<'_>, identifier: &str) -> bool {
        py.detach(|| self.scheduler.has_item(identifier))
    }

    /// Why the request's item is not loaded; `None` if it is, or is not known.
    fn why_local(&self, py: Python<'_>, request: &str, identifier: &str) -> Option<String> {
        match py.detach(|| self.scheduler.decision(request, identifier)) {
            Some(ItemDecision::Local(reason)) => Some(reason.to_string()),
            _ => None,
        }
    }

    /// The engine has allocated its own cache for the item.
    fn allocated(&self, py: Python<'_>, request: &str, identifier: &str) {
        py.detach(|| self.scheduler.allocated(request, identifier));
    }

    /// Ends a scheduling pass; what the step asks of the workers, empty if nothing.
    fn build_step(&self, py: Python<'_>, freed: Vec<String>) -> PyResult<String> {
        let plan = py.detach(|| self.scheduler.build_step(&freed));
        if plan.is_empty() {
            return Ok(String::new());
        }
        serde_json::to_string(&plan).map_err(failed)
    }

    /// A rank has copied these orders.
    fn acknowledge(&self, py: Python<'_>, rank: u32, orders: Vec<u64>) {
        let orders: Vec<OrderId> = orders.into_iter().map(OrderId).collect();
        py.detach(|| self.scheduler.acknowledge(rank, &orders));
    }

    /// The oldest step that had not come back has ended on every rank.
    fn step_ended(&self, py: Python<'_>) {
        py.detach(|| self.scheduler.step_ended());
    }

    /// The request has ended or was aborted.
    fn request_finished(&self, py: Python<'_>, request: &str) {
        py.detach(|| self.scheduler.request_finished(request));
    }

    /// All counters.
    fn counters(&self, py: Python<'_>) -> Counts {
        py.detach(|| flatten(&self.scheduler.counters()))
    }

    /// What has changed since the last call, for vLLM's metrics: how much each counter grew, and if one did,
    /// the gauges as they are now.
    fn changes(&self, py: Python<'_>) -> (Counts, Counts) {
        py.detach(|| {
            let (counters, gauges) = self.parts.metrics.numbers();
            let grown = self.told.changes(counters);
            let gauges = if grown.is_empty() { Counts::new() } else { gauges };
            (grown, gauges)
        })
    }

    /// What is open now: requests, orders, keys, residents, bytes in flight.
    fn gauges(&self, py: Python<'_>) -> (usize, usize, usize, usize, u64) {
        let SchedulerGauges { requests, orders, keys, residents, in_flight_bytes } =
            py.detach(|| self.scheduler.gauges());
        (requests, orders, keys, residents, in_flight_bytes)
    }

    /// Closes the store and the pool within `duration`, and says how that went.
    fn close(&self, py: Python<'_>, duration: f64) -> String {
        self.parts.close(py, duration, |deadline| self.scheduler.close(deadline))
    }
}
