//! Tensors and points in streams, as they come from outside: an address, a device, a stream's handle.

#![expect(unsafe_code, reason = "a tensor is made of an address that somebody has to vouch for")]

use std::{any::Any, fmt, sync::Arc};

use super::{
    driver::{Driver, Ordinal, Stream},
    lane::Mark,
};
use crate::env::TensorSpec;

/// A dense, row-major tensor in the memory of a device. Clones share it.
#[derive(Clone)]
pub struct CudaTensor {
    pub(super) spec: TensorSpec,
    pub(super) address: u64,
    pub(super) ordinal: Ordinal,
    pub(super) stream: Stream,
    /// Keeps the memory: the framework's own tensor.
    _keep: Arc<dyn Any + Send + Sync>,
}

impl CudaTensor {
    /// The tensor of this type and shape at `address` in the memory of device `ordinal`. `stream` is where its
    /// readers will run: what is copied into it is there before work that this stream gets later. `keep` is
    /// dropped with the last copy and clone, on any thread.
    ///
    /// # Safety
    /// While `keep` lives, `spec.bytes()` bytes at `address` are memory of that device, and `stream` is a
    /// stream of its primary context.
    pub unsafe fn new(
        spec: TensorSpec,
        address: u64,
        ordinal: Ordinal,
        stream: Stream,
        keep: impl Any + Send + Sync,
    ) -> Self {
        Self { spec, address, ordinal, stream, _keep: Arc::new(keep) }
    }

    /// The device that holds it.
    pub fn ordinal(&self) -> Ordinal {
        self.ordinal
    }
}

impl fmt::Debug for CudaTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No address: it differs from run to run.
        let (spec, ordinal) = (&self.spec, self.ordinal.0);
        f.debug_struct("CudaTensor").field("spec", spec).field("ordinal", &ordinal).finish()
    }
}

/// A point in the work of a stream.
pub struct CudaEvent<D: Driver>(pub(super) Option<Arc<Mark<D>>>);

impl<D: Driver> CudaEvent<D> {
    /// One that has come: nothing on any device is to be waited for.
    pub fn ready() -> Self {
        Self(None)
    }
}

impl<D: Driver> Clone for CudaEvent<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: Driver> fmt::Debug for CudaEvent<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaEvent").field("is_ready", &self.0.is_none()).finish()
    }
}
