//! How a client reaches the master and the nodes.
//!
//! A transport knows nothing of puts and gets: it carries one call, one write, one read. It keeps the
//! timeouts of the data plane that end a transfer for good (no sign from the peer); the one that does *not*
//! end it, the limit for an object's transfer, is the client's.

mod local;
mod net;
pub(crate) mod wire;

use std::{future::Future, time::Duration};

use springtide::env::ErrorCode;

pub use self::{
    local::LocalTransport,
    net::{NetConfig, NetTransport},
};
use crate::{
    faults::Point,
    memory::Buffer,
    protocol::{ClientId, Replica, Reply, Request, SegmentId},
    service::Tag,
};

/// A call that brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No connection: it was not executed.
    Refused,
    /// The connection ended: it may have been executed.
    Broken,
}

/// The move of one replica's bytes between a caller's memory and a segment.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) client: ClientId,
    pub(crate) key: String,
    /// Which of the object's replicas it is.
    pub(crate) number: usize,
    pub(crate) replica: Replica,
    pub(crate) buffer: Buffer,
}

impl Job {
    pub(crate) fn tag(&self, point: Point) -> Tag {
        Tag {
            point,
            client: self.client,
            key: self.key.clone(),
            replica: self.number,
            segment: self.replica.segment,
            offset: self.replica.offset,
            bytes: self.replica.bytes,
        }
    }
}

/// A way to the master and the nodes.
pub trait Transport: Clone + Send + Sync + 'static {
    /// Calls the master. Dropping the future does not stop a call that has been sent.
    ///
    /// # Errors
    /// [`CallError`] when there is no connection or it ends.
    fn call(&self, request: Request) -> impl Future<Output = Result<Reply, CallError>> + Send;

    /// Writes a replica, reading the caller's memory while it goes; the bytes written.
    ///
    /// # Errors
    /// The store's code; nothing moves any more then.
    fn write(&self, job: Job) -> impl Future<Output = Result<u64, ErrorCode>> + Send;

    /// Reads a replica into the caller's memory; the bytes read.
    ///
    /// # Errors
    /// The store's code; nothing moves any more then.
    fn read(&self, job: Job) -> impl Future<Output = Result<u64, ErrorCode>> + Send;

    /// Whether a segment is the client's own: reads prefer it, and it is reached by copying memory.
    fn owns(&self, segment: SegmentId) -> bool;

    /// Whether the last ping of every own segment was answered.
    fn pings_ok(&self) -> bool;
}

/// When a transport gives up on a silent peer, in Mooncake.
pub(crate) const STATUS_TIMEOUT: Duration = Duration::from_secs(30);
