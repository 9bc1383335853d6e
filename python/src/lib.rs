//! The extension module `springtide._native`: the connector as vLLM's plug-in, and the store that is
//! reached through Python.
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the command line, with that store in it |
//! | [`scheduler`], [`worker`] | the two classes that Python sees |
//! | [`side`] | what they have in common |
//! | [`process`] | the runtime that both run on, with the store behind a link |
//! | [`settings`] | what the user and the engine say, from JSON |
//! | [`tensor`] | tensors of PyTorch as an [`env::Device`](springtide::env::Device) |
//! | [`backend`] | the stores that can be configured, as one type |
//! | [`store`] | [`Store`](springtide::env::Store) over `mooncake.store.MooncakeDistributedStore` objects |
//! | [`counters`], [`log`] | numbers and words for Python |
//! | [`metrics`] | numbers for Prometheus, through vLLM and on an endpoint |
//!
//! As an extension module it links no libpython: the interpreter that imports it has the symbols. Programs
//! that hold an interpreter (the tests of this crate) are built with the feature `embed` and without the
//! default ones.

pub mod backend;
pub mod cli;
pub mod counters;
pub mod log;
pub mod metrics;
pub mod process;
pub mod scheduler;
pub mod settings;
pub mod side;
pub mod store;
pub mod tensor;
pub mod worker;

/// What Python sees.
#[pyo3::pymodule]
mod _native {
    use std::ffi::OsString;

    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{scheduler::SchedulerSide, side::Side, worker::WorkerSide};

    /// Does what a command line says; the first argument is the program's name. Returns the exit code.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| springtide_cli::run(arguments, &crate::cli::InPython))
    }

    /// Every metric: name, kind, labels and meaning.
    #[pyfunction]
    fn metrics() -> Vec<(&'static str, &'static str, Vec<&'static str>, &'static str)> {
        crate::metrics::described()
    }

    /// Whether a line of a message's kind may be logged now: how many were suppressed before it, or `None`.
    #[pyfunction]
    fn admit(message: &str) -> Option<u64> {
        crate::log::admit(message)
    }

    /// A text from outside, fit for a line of a log: on one line, of at most so many characters.
    #[pyfunction]
    fn shown(text: &str, characters: usize) -> String {
        springtide::log::shown_within(text, characters)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::process::remember_processors();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
