//! A store client's way to the store: the fake's own transport, on which the injector can have calls to the
//! master arrive twice.
//!
//! Loss and delay are faults of the servers; a duplicate has to come from the sending side. It arrives after
//! the original has been answered, at a time when the caller has long gone on: what a retransmission that was
//! stuck somewhere does.

use std::time::Duration;

use fake_store::{
    faults::Point,
    protocol::{Reply, Request, SegmentId},
    transport::{CallError, Job, NetTransport, Transport},
};
use springtide::env::{Clock, ErrorCode};

use super::{
    clock::SimClock,
    desk::{Ambush, Desk},
    network::SimNetwork,
    process::Process,
};

/// The transport of a client in the simulation.
#[derive(Clone, Debug)]
pub struct SimTransport {
    inner: NetTransport<SimNetwork, SimClock>,
    process: Process,
    desk: Desk,
}

impl SimTransport {
    /// The transport of a client of `process`.
    pub fn new(inner: NetTransport<SimNetwork, SimClock>, process: Process, desk: Desk) -> Self {
        Self { inner, process, desk }
    }

    /// How long after its answer a call is to arrive again, if it is.
    fn duplicate(&self, request: &Request) -> Option<Duration> {
        let point = Point::of(&request.call);
        let keys = request.call.keys();
        self.desk.hit(self.process.host(), self.process.clock().now(), |ambush| match ambush {
            Ambush::Duplicate { point: which, item, after_ms } if *which == point => {
                let named = |item: &String| keys.iter().any(|key| key.ends_with(item.as_str()));
                item.as_ref().is_none_or(named).then(|| Duration::from_millis(*after_ms))
            }
            _ => None,
        })
    }
}

impl Transport for SimTransport {
    async fn call(&self, request: Request) -> Result<Reply, CallError> {
        let Some(after) = self.duplicate(&request) else {
            return self.inner.call(request).await;
        };
        let answered = self.inner.call(request.clone()).await;
        let (inner, clock) = (self.inner.clone(), self.process.clock());
        self.process.spawn(Box::pin(async move {
            clock.sleep(after).await;
            // Nobody waits for the second answer.
            let _ = inner.call(request).await;
        }));
        answered
    }

    async fn write(&self, job: Job) -> Result<u64, ErrorCode> {
        self.inner.write(job).await
    }

    async fn read(&self, job: Job) -> Result<u64, ErrorCode> {
        self.inner.read(job).await
    }

    fn owns(&self, segment: SegmentId) -> bool {
        self.inner.owns(segment)
    }

    fn pings_ok(&self) -> bool {
        self.inner.pings_ok()
    }
}
