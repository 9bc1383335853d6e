//! Tensors in host memory: what a CPU instance has, and the device of tests.

use std::{
    future::Future,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use super::copies::{copy_in, copy_out, copy_out_seen};
use crate::{
    env::{Device, DeviceError, Outcome, TensorSpec, Witness},
    pool::{Transfer, View},
};

/// Bytes copied between two points where other tasks may run.
pub(super) const SLICE: usize = 1 << 20;

/// A dense tensor in host memory. Clones share it.
#[derive(Clone, Debug)]
pub struct HostTensor {
    spec: TensorSpec,
    /// Its bytes in slices, each with a lock of its own, so that several threads can fill one tensor.
    slices: Arc<[Mutex<Box<[u8]>>]>,
}

impl HostTensor {
    /// A tensor with these bytes.
    ///
    /// # Errors
    /// [`DeviceError::Length`] when they are not as many as `spec` says.
    pub fn new(spec: TensorSpec, bytes: Vec<u8>) -> Result<Self, DeviceError> {
        check_length(spec.bytes(), bytes.len() as u64)?;
        let slices = bytes.chunks(SLICE).map(|slice| Mutex::new(slice.into())).collect();
        Ok(Self { spec, slices })
    }

    /// A tensor of zeros.
    pub fn zeros(spec: TensorSpec) -> Self {
        let len = usize::try_from(spec.bytes()).unwrap_or(usize::MAX);
        let zeros = |slice: Range<usize>| Mutex::new(vec![0; slice.len()].into_boxed_slice());
        Self { spec, slices: slices(0..len, SLICE).map(zeros).collect() }
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let len = self.spec.bytes() as usize;
        let mut all = Vec::with_capacity(len);
        self.read(0..len, &mut |bytes| all.extend_from_slice(bytes));
        all
    }

    /// Passes the parts of a range that lie in one slice each.
    fn with(&self, range: Range<usize>, mut pass: impl FnMut(&mut [u8])) {
        let mut at = range.start;
        while at < range.end {
            let (index, from) = (at / SLICE, at % SLICE);
            let to = SLICE.min(from + range.end - at);
            let mut slice = self.slices[index].lock().unwrap_or_else(PoisonError::into_inner);
            pass(&mut slice[from..to]);
            at += to - from;
        }
    }
}

/// A dense tensor whose bytes the CPU can reach. Clones share it.
pub trait HostMemory: Clone + Send + Sync + 'static {
    /// Type and shape.
    fn spec(&self) -> TensorSpec;

    /// Passes the bytes of a range of the tensor to be read, in order, in one piece or several.
    fn read(&self, range: Range<usize>, read: &mut dyn FnMut(&[u8]));

    /// Passes the bytes of a range of the tensor to be written, in order, in one piece or several.
    fn write(&self, range: Range<usize>, write: &mut dyn FnMut(&mut [u8]));
}

impl HostMemory for HostTensor {
    fn spec(&self) -> TensorSpec {
        self.spec
    }

    fn read(&self, range: Range<usize>, read: &mut dyn FnMut(&[u8])) {
        self.with(range, |bytes| read(bytes));
    }

    fn write(&self, range: Range<usize>, write: &mut dyn FnMut(&mut [u8])) {
        self.with(range, write);
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

    pub(super) async fn wait(self) {
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

    fn copy_out_seen<W: Witness>(
        &self,
        tensor: HostTensor,
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
        tensor: HostTensor,
        free: HostEvent,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        copy_in(source, offset, tensor, free)
    }
}

/// The parts of a range, `step` bytes each; the last may be shorter.
pub(super) fn slices(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(step).map(move |at| at..(at + step).min(end))
}

/// Whether a copy has as many bytes on both sides.
pub(super) fn check_length(expected: u64, got: u64) -> Result<(), DeviceError> {
    if expected == got { Ok(()) } else { Err(DeviceError::Length { expected, got }) }
}
