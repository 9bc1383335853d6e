//! The command line's store that is reached through Python.

use springtide::{
    backend::{Blocking, MooncakeConfig},
    runtime::TokioClock,
};
use springtide_cli::Interpreter;

use crate::store::{PythonStore, connect};

/// This program has an interpreter inside.
#[derive(Clone, Copy, Debug)]
pub struct InPython;

impl Interpreter for InPython {
    type Store = PythonStore;

    async fn join(
        &self,
        config: &MooncakeConfig,
        region_bytes: u64,
        clock: TokioClock,
    ) -> Result<PythonStore, String> {
        connect(config, region_bytes, clock).await.map_err(|error| error.to_string())
    }

    fn blocking<'a>(&self, store: &'a PythonStore) -> Option<&'a dyn Blocking> {
        Some(store.calls())
    }
}
