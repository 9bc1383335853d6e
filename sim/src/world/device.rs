//! A simulated accelerator as an [`env::Device`](springtide::env::Device).
//!
//! Kernels and copies take simulated time and run beside the process: they go on while it stands still, and
//! when the future that waits for them is dropped. The bytes of a tensor are junk until the kernel that makes
//! them has finished, so a copy that does not wait for its event takes junk along, as on a real stream.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use springtide::{
    env::{Clock, Device, DeviceError, Outcome, TensorSpec, Time},
    pool::{Transfer, View},
};
use tokio::sync::oneshot;

use super::{
    desk::{Ambush, Desk},
    process::Process,
};
use crate::plan::Direction;

/// Bytes that a copy moves in a microsecond: 25 GB/s, scaled down like the items.
const COPY_BYTES_PER_US: u64 = 25_000 / crate::plan::SCALE;
/// What memory holds before its kernel has written it.
const JUNK: u8 = 0xA5;

/// A tensor in device memory. Clones share it.
#[derive(Clone, Debug)]
pub struct SimTensor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    spec: TensorSpec,
    bytes: Mutex<Arc<[u8]>>,
    /// When the kernel that writes it finishes.
    written_at: Time,
}

impl SimTensor {
    /// A tensor whose kernel finishes at `written_at`.
    pub fn new(spec: TensorSpec, bytes: Arc<[u8]>, written_at: Time) -> Self {
        assert_eq!(bytes.len() as u64, spec.bytes(), "a tensor has the bytes of its shape");
        Self(Arc::new(Inner { spec, bytes: Mutex::new(bytes), written_at }))
    }

    /// Memory to load into.
    pub fn empty(spec: TensorSpec) -> Self {
        Self::new(spec, filled(JUNK, spec.bytes()), Time::ZERO)
    }

    /// Its type and shape.
    pub fn spec(&self) -> TensorSpec {
        self.0.spec
    }

    /// When the kernel that writes it finishes.
    pub fn written_at(&self) -> Time {
        self.0.written_at
    }

    /// Its bytes at `now`.
    pub fn bytes(&self, now: Time) -> Arc<[u8]> {
        if now < self.0.written_at {
            return filled(JUNK, self.0.spec.bytes());
        }
        Arc::clone(&self.0.bytes.lock().expect("no panic while held"))
    }

    fn set(&self, bytes: Arc<[u8]>) {
        *self.0.bytes.lock().expect("no panic while held") = bytes;
    }
}

/// A point in the device's work, by the time at which it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimEvent(pub Time);

/// The device of one process.
#[derive(Clone, Debug)]
pub struct SimDevice {
    process: Process,
    desk: Desk,
}

impl SimDevice {
    /// The device of `process`.
    pub fn new(process: Process, desk: Desk) -> Self {
        Self { process, desk }
    }

    /// Launches the kernels that make a tensor, to finish after `duration`; returns when they really do.
    pub fn launch(&self, now: Time, duration: Duration) -> Time {
        let late = self.desk.hit(self.process.host(), now, |ambush| match ambush {
            Ambush::LateKernel(ms) => Some(Duration::from_millis(*ms)),
            _ => None,
        });
        now + duration + late.unwrap_or_default()
    }

    /// When a copy of `bytes` that may start at `start` is done.
    pub fn copied_at(&self, direction: Direction, start: Time, bytes: u64) -> Time {
        let now = self.process.clock().now();
        let slow = self.desk.hit(self.process.host(), now, |ambush| match ambush {
            Ambush::SlowCopy(which, ms) if *which == direction => Some(Duration::from_millis(*ms)),
            _ => None,
        });
        let duration = Duration::from_micros(bytes.div_ceil(COPY_BYTES_PER_US));
        start.max(now) + duration + slow.unwrap_or_default()
    }
}

/// That many bytes, all the same.
fn filled(byte: u8, bytes: u64) -> Arc<[u8]> {
    vec![byte; bytes as usize].into()
}

fn lengths(expected: u64, room: u64) -> Result<(), DeviceError> {
    if expected == room { Ok(()) } else { Err(DeviceError::Length { expected, got: room }) }
}

fn failed() -> DeviceError {
    DeviceError::Device { code: 700, message: "illegal address (injected)".to_owned() }
}

impl Device for SimDevice {
    type Tensor = SimTensor;
    type Event = SimEvent;

    fn spec(&self, tensor: &SimTensor) -> TensorSpec {
        tensor.spec()
    }

    fn copy_out(
        &self,
        tensor: SimTensor,
        ready: SimEvent,
        mut dest: Transfer,
        offset: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        let bytes = tensor.spec().bytes();
        let done_at = self.copied_at(Direction::Out, ready.0, bytes);
        let fails = self.desk.hit(self.process.host(), self.process.clock().now(), |ambush| {
            matches!(ambush, Ambush::FailCopy).then_some(())
        });
        let (done, result) = oneshot::channel();
        let clock = self.process.clock();
        self.process.spawn_hardware(Box::pin(async move {
            clock.sleep_until(done_at).await;
            let result = match fails {
                Some(()) => Err(failed()),
                None => lengths(bytes, dest.len().saturating_sub(offset)),
            };
            if result.is_ok() {
                dest.write_at(offset, &tensor.bytes(done_at));
            }
            // Whoever waited may have let go: then the memory goes back to the pool here.
            drop(done.send(Outcome::Ended { buffer: dest.finish(), result }));
        }));
        async move {
            match result.await {
                Ok(outcome) => outcome,
                // Only the end of the host ends its hardware.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn copy_in(
        &self,
        source: View,
        offset: u64,
        tensor: SimTensor,
        free: SimEvent,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        let bytes = tensor.spec().bytes();
        let done_at = self.copied_at(Direction::In, free.0, bytes);
        let (done, result) = oneshot::channel();
        let clock = self.process.clock();
        self.process.spawn_hardware(Box::pin(async move {
            clock.sleep_until(done_at).await;
            let result = lengths(bytes, source.len().saturating_sub(offset));
            if result.is_ok() {
                let mut copied = filled(0, bytes);
                let place = Arc::get_mut(&mut copied).expect("nobody else has it yet");
                source.read_at(offset, place);
                tensor.set(copied);
            }
            drop(done.send(result));
        }));
        async move {
            match result.await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        }
    }
}
