//! A device's primary context, and our streams in it: one for copies out, one for copies in, so that neither
//! waits for the other.

use std::sync::Arc;

use super::driver::{Context, Driver, Event, Ordinal, Result, Stream};

/// A share in a context. It ends with the last copy, event and locked region of the device.
#[derive(Debug)]
pub(super) struct Lane<D: Driver> {
    pub(super) driver: D,
    pub(super) ordinal: Ordinal,
    pub(super) context: Context,
    /// Device to host.
    pub(super) out: Stream,
    /// Host to device.
    pub(super) back: Stream,
}

impl<D: Driver> Lane<D> {
    pub(super) fn open(driver: D, ordinal: Ordinal) -> Result<Self> {
        let context = driver.retain(ordinal)?;
        let streams = driver.create_stream(context).and_then(|out| {
            let back = driver.create_stream(context);
            back.map(|back| (out, back)).inspect_err(|_| {
                told("cuStreamDestroy", driver.destroy_stream(context, out));
            })
        });
        match streams {
            Ok((out, back)) => Ok(Self { driver, ordinal, context, out, back }),
            Err(error) => {
                told("cuDevicePrimaryCtxRelease", driver.release(ordinal));
                Err(error)
            }
        }
    }
}

impl<D: Driver> Drop for Lane<D> {
    fn drop(&mut self) {
        for stream in [self.out, self.back] {
            told("cuStreamDestroy", self.driver.destroy_stream(self.context, stream));
        }
        told("cuDevicePrimaryCtxRelease", self.driver.release(self.ordinal));
    }
}

/// An event of ours.
#[derive(Debug)]
pub(super) struct Mark<D: Driver> {
    pub(super) lane: Arc<Lane<D>>,
    pub(super) event: Event,
}

impl<D: Driver> Mark<D> {
    pub(super) fn new(lane: &Arc<Lane<D>>) -> Result<Self> {
        Ok(Self { event: lane.driver.create_event(lane.context)?, lane: lane.clone() })
    }

    /// The event comes when what `stream` has so far is done.
    pub(super) fn record(&self, stream: Stream) -> Result<()> {
        self.lane.driver.record(self.lane.context, self.event, stream)
    }

    /// Work that `stream`, of this device, gets from now on begins after the event.
    pub(super) fn hold(&self, lane: &Lane<D>, stream: Stream) -> Result<()> {
        lane.driver.wait(lane.context, stream, self.event)
    }

    /// Whether it has come.
    pub(super) fn has_come(&self) -> Result<bool> {
        self.lane.driver.query(self.lane.context, self.event)
    }
}

impl<D: Driver> Drop for Mark<D> {
    fn drop(&mut self) {
        told("cuEventDestroy", self.lane.driver.destroy_event(self.lane.context, self.event));
    }
}

/// What fails while something is given back can only be told.
pub(super) fn told(call: &'static str, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, call, "CUDA could not give something back: it stays until the process ends");
    }
}
