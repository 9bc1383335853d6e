//! What both sides of the plug-in have in common.

use std::{sync::Arc, time::Duration};

use pyo3::prelude::*;
use springtide::{
    connector::{CloseReport, Namespace, NamespaceParts},
    env::Time,
    log::ItemId,
};

use crate::{
    metrics::Metrics,
    process::{Process, failed, seconds},
};

/// The most seconds that a shutdown may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(3600);

/// The parts of a side, whichever it is.
pub struct Parts {
    /// What it runs on.
    pub process: Process,
    /// What it counts.
    pub metrics: Metrics,
    namespace: Namespace,
    described: String,
}

impl Parts {
    /// The parts of a side with this configuration.
    ///
    /// # Errors
    /// None that a namespace of text can cause.
    pub fn new(process: Process, metrics: Metrics, config: &NamespaceParts) -> PyResult<Arc<Self>> {
        let described = serde_json::to_string(config).map_err(failed)?;
        let namespace = Namespace::new(config);
        Ok(Arc::new(Self { process, metrics, namespace, described }))
    }

    /// Closes a side within `duration` by what `close` makes of the deadline; how that went.
    pub fn close<F>(&self, py: Python<'_>, duration: f64, close: impl FnOnce(Time) -> F) -> String
    where
        F: Future<Output = CloseReport> + Send,
    {
        let deadline = self.process.deadline(seconds(duration).min(CLOSE_LIMIT));
        let report = self.process.block_on(py, close(deadline));
        py.detach(|| {
            self.metrics.close();
            self.process.stop();
        });
        format!("{report:?}")
    }
}

/// What Python sees of either side.
#[pyclass(frozen, subclass)]
pub struct Side(Arc<Parts>);

impl Side {
    /// The side with these parts.
    pub fn new(parts: &Arc<Parts>) -> Self {
        Self(Arc::clone(parts))
    }
}

#[pymethods]
impl Side {
    /// The namespace's fingerprint: equal on two instances exactly when they can share items.
    #[getter]
    fn fingerprint(&self) -> &str {
        self.0.namespace.fingerprint()
    }

    /// What the fingerprint stands for, as JSON.
    #[getter]
    fn namespace(&self) -> &str {
        &self.0.described
    }

    /// The item's name in logs.
    fn item(&self, identifier: &str) -> String {
        ItemId::of(&self.0.namespace.key(identifier)).to_string()
    }

    /// Where metrics are served, if they are.
    #[getter]
    fn metrics_address(&self) -> Option<String> {
        self.0.metrics.address().map(|address| address.to_string())
    }

    /// Counts a hook of the engine that has failed.
    fn hook_failed(&self, hook: &str) {
        self.0.metrics.hook_failed(hook);
    }

    /// Whether calls reach the store.
    #[getter]
    fn store_is_up(&self) -> bool {
        self.0.process.store_is_up()
    }

    /// Waits until the store is up; whether it is.
    fn wait_for_store(&self, py: Python<'_>, duration: f64) -> bool {
        self.0.process.wait_for_store(py, seconds(duration))
    }
}
