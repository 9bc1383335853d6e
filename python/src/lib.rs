//! The extension module `springtide._native`, and the store that is reached through Python.
//!
//! | module | what it is |
//! |---|---|
//! | [`store`] | [`Store`](springtide::env::Store) over `mooncake.store.MooncakeDistributedStore` objects |
//!
//! As an extension module it links no libpython: the interpreter that imports it has the symbols. Programs
//! that hold an interpreter (the tests of this crate) are built with the feature `embed` and without the
//! default ones.

pub mod store;

/// What Python sees.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
