//! Tensors of PyTorch in host memory, and the device that copies them.
//!
//! This is the only file of the extension module with unsafe code. Its argument is Python's: whoever holds
//! the tensor object keeps its memory alive and in place, and the engine neither writes to an encoder output
//! nor reads one that it has not been given yet.

#![expect(unsafe_code, reason = "PyTorch lends memory by address")]

use std::{future::Future, ops::Range, ptr, slice, sync::Arc};

use pyo3::{exceptions::PyValueError, prelude::*};
use springtide::{
    env::{Device, DeviceError, Outcome, Shape, TensorSpec, Witness},
    pool::{Transfer, View},
    runtime::{HostEvent, HostMemory, copy_in, copy_out, copy_out_seen},
};

use crate::settings::dtype;

/// A contiguous tensor of PyTorch in host memory, kept alive. Clones share it.
#[derive(Clone, Debug)]
pub struct TorchTensor {
    spec: TensorSpec,
    /// What `data_ptr()` said.
    address: usize,
    /// Keeps the memory.
    _tensor: Arc<Py<PyAny>>,
}

impl TorchTensor {
    /// Asks a tensor where its bytes are.
    ///
    /// # Errors
    /// `ValueError` for a tensor that is not contiguous, not in host memory, or of a type or shape that no
    /// object can carry; whatever the tensor's methods raise.
    pub fn new(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let refuse = |what: &str, got: String| {
            Err(PyValueError::new_err(format!("expected a tensor {what}, got {got}")))
        };
        let kind: String = tensor.getattr("device")?.getattr("type")?.extract()?;
        if kind != "cpu" {
            return refuse("in host memory", format!("one on {kind}"));
        }
        if !tensor.call_method0("is_contiguous")?.extract::<bool>()? {
            return refuse("that is contiguous", "one that is not".to_owned());
        }
        let name = tensor.getattr("dtype")?.str()?.to_string();
        let Some(dtype) = dtype(&name) else {
            return refuse("of a known element type", name);
        };
        let dims: Vec<u64> = tensor.getattr("shape")?.extract()?;
        let spec = Shape::new(&dims).and_then(|shape| TensorSpec::new(dtype, shape));
        let spec = spec.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let bytes: u64 = tensor.getattr("nbytes")?.extract()?;
        if bytes != spec.bytes() {
            return refuse(&format!("of {} bytes", spec.bytes()), format!("{bytes} bytes"));
        }
        let address = tensor.call_method0("data_ptr")?.extract()?;
        Ok(Self { spec, address, _tensor: Arc::new(tensor.clone().unbind()) })
    }

    /// The address of a range's first byte.
    fn at(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end as u64 <= self.spec.bytes(), "{range:?}");
        ptr::with_exposed_provenance_mut::<u8>(self.address).wrapping_add(range.start)
    }
}

impl HostMemory for TorchTensor {
    fn spec(&self) -> TensorSpec {
        self.spec
    }

    fn read(&self, range: Range<usize>, read: &mut dyn FnMut(&[u8])) {
        if range.is_empty() {
            return read(&[]);
        }
        // SAFETY: the tensor is contiguous, has `spec.bytes()` bytes from `address` on (checked in `new`)
        // and lives as long as `self`; the range lies within (checked in `at`). The engine does not write to
        // an output of its encoder.
        read(unsafe { slice::from_raw_parts(self.at(&range), range.len()) });
    }

    fn write(&self, range: Range<usize>, write: &mut dyn FnMut(&mut [u8])) {
        if range.is_empty() {
            return write(&mut []);
        }
        // SAFETY: as in `read`; the tensor was made to receive these bytes, and nobody else has it before
        // the load is over.
        write(unsafe { slice::from_raw_parts_mut(self.at(&range), range.len()) });
    }
}

/// The host, with the tensors of PyTorch.
#[derive(Clone, Copy, Debug, Default)]
pub struct TorchDevice;

impl Device for TorchDevice {
    type Tensor = TorchTensor;
    type Event = HostEvent;

    fn spec(&self, tensor: &TorchTensor) -> TensorSpec {
        tensor.spec
    }

    fn copy_out(
        &self,
        tensor: TorchTensor,
        ready: HostEvent,
        dest: Transfer,
        offset: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        copy_out(tensor, ready, dest, offset)
    }

    fn copy_out_seen<W: Witness>(
        &self,
        tensor: TorchTensor,
        ready: HostEvent,
        dest: Transfer,
        offset: u64,
        witness: W,
    ) -> impl Future<Output = (Outcome<(), DeviceError>, Option<W>)> + Send + 'static {
        copy_out_seen(tensor, ready, dest, offset, witness)
    }

    fn copy_in(
        &self,
        source: View,
        offset: u64,
        tensor: TorchTensor,
        free: HostEvent,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        copy_in(source, offset, tensor, free)
    }
}
