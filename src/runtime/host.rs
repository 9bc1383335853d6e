//! Tensors in host memory: what a CPU instance has, and the device of tests.
//!
//! Copies are made by the CPU, in slices between which other tasks run, so that one large item delays
//! nothing else. They work on any [`HostMemory`]: a device whose tensors lie in memory of another kind, as
//! those of a Python library, has only to say where its bytes are.

use std::{
    future::Future,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::{
    env::{Device, DeviceError, Outcome, TensorSpec},
    pool::{Lease, Transfer, View},
};

/// Bytes copied between two points where other tasks may run.
const SLICE: usize = 1 << 20;

/// A dense tensor in host memory. Clones share it.
#[derive(Clone, Debug)]
pub struct HostTensor {
    spec: TensorSpec,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl HostTensor {
    /// A tensor with these bytes.
    ///
    /// # Errors
    /// [`DeviceError::Length`] when they are not as many as `spec` says.
    pub fn new(spec: TensorSpec, bytes: Vec<u8>) -> Result<Self, DeviceError> {
        check_length(spec.bytes(), bytes.len() as u64)?;
        Ok(Self { spec, bytes: Arc::new(Mutex::new(bytes)) })
    }

    /// A tensor of zeros.
    pub fn zeros(spec: TensorSpec) -> Self {
        let bytes = vec![0; usize::try_from(spec.bytes()).unwrap_or(usize::MAX)];
        Self { spec, bytes: Arc::new(Mutex::new(bytes)) }
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.with(|bytes| bytes.clone())
    }

    fn with<R>(&self, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        f(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A dense tensor whose bytes the CPU can reach. Clones share it.
pub trait HostMemory: Clone + Send + Sync + 'static {
    /// Type and shape.
    fn spec(&self) -> TensorSpec;

    /// Passes the bytes of a range of the tensor to be read.
    fn read(&self, range: Range<usize>, read: &mut dyn FnMut(&[u8]));

    /// Passes the bytes of a range of the tensor to be written.
    fn write(&self, range: Range<usize>, write: &mut dyn FnMut(&mut [u8]));
}

impl HostMemory for HostTensor {
    fn spec(&self) -> TensorSpec {
        self.spec
    }

    fn read(&self, range: Range<usize>, read: &mut dyn FnMut(&[u8])) {
        self.with(|bytes| read(&bytes[range]));
    }

    fn write(&self, range: Range<usize>, write: &mut dyn FnMut(&mut [u8])) {
        self.with(|bytes| write(&mut bytes[range]));
    }
}

/// A point in the host's work: come already, or to be signalled.
#[derive(Clone, Debug)]
pub struct HostEvent(Option<watch::Receiver<bool>>);

/// Signals a [`HostEvent`]. Dropping it signals too: whoever was to produce has gone.
#[derive(Debug)]
pub struct HostSignal(watch::Sender<bool>);

impl HostEvent {
    /// An event that has come.
    pub fn ready() -> Self {
        Self(None)
    }

    /// An event to come.
    pub fn pending() -> (Self, HostSignal) {
        let (sender, receiver) = watch::channel(false);
        (Self(Some(receiver)), HostSignal(sender))
    }

    async fn wait(self) {
        if let Some(mut receiver) = self.0 {
            // An error means that the signal was dropped.
            let _ = receiver.wait_for(|come| *come).await;
        }
    }
}

impl HostSignal {
    /// The event has come.
    pub fn signal(self) {
        self.0.send_replace(true);
    }
}

/// The host as a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDevice;

impl Device for HostDevice {
    type Tensor = HostTensor;
    type Event = HostEvent;

    fn spec(&self, tensor: &HostTensor) -> TensorSpec {
        tensor.spec
    }

    fn copy_out(
        &self,
        tensor: HostTensor,
        ready: HostEvent,
        dest: Transfer,
        offset: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        copy_out(tensor, ready, dest, offset)
    }

    fn copy_in(
        &self,
        source: View,
        offset: u64,
        tensor: HostTensor,
        free: HostEvent,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        copy_in(source, offset, tensor, free)
    }
}

/// [`Device::copy_out`] for a tensor in host memory.
pub fn copy_out(
    tensor: impl HostMemory,
    ready: HostEvent,
    dest: Transfer,
    offset: u64,
) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
    let mut dest = Idle(Some(dest));
    async move {
        ready.wait().await;
        let room = dest.transfer().len().saturating_sub(offset);
        if let Err(error) = check_length(tensor.spec().bytes(), room) {
            return Outcome::Ended { buffer: dest.finish(), result: Err(error) };
        }
        let (mut at, len) = (0, tensor.spec().bytes() as usize);
        while at < len {
            let end = (at + SLICE).min(len);
            tensor.read(at..end, &mut |bytes| {
                dest.transfer().write_at(offset + at as u64, bytes);
            });
            at = end;
            tokio::task::yield_now().await;
        }
        Outcome::Ended { buffer: dest.finish(), result: Ok(()) }
    }
}

/// [`Device::copy_in`] for a tensor in host memory.
pub async fn copy_in(
    source: View,
    offset: u64,
    tensor: impl HostMemory,
    free: HostEvent,
) -> Result<(), DeviceError> {
    free.wait().await;
    let room = source.len().saturating_sub(offset);
    check_length(tensor.spec().bytes(), room)?;
    let (mut at, len) = (0, tensor.spec().bytes() as usize);
    while at < len {
        let end = (at + SLICE).min(len);
        tensor.write(at..end, &mut |bytes| source.read_at(offset + at as u64, bytes));
        at = end;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Memory that only the future's own polls touch: when the future is dropped, nothing runs any more.
struct Idle(Option<Transfer>);

impl Idle {
    fn transfer(&mut self) -> &mut Transfer {
        self.0.as_mut().expect("present until finish")
    }

    fn finish(mut self) -> Lease {
        self.0.take().expect("present until finish").finish()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(transfer) = self.0.take() {
            drop(transfer.finish());
        }
    }
}

fn check_length(expected: u64, got: u64) -> Result<(), DeviceError> {
    if expected == got { Ok(()) } else { Err(DeviceError::Length { expected, got }) }
}
