//! Within one process: calls and copies, with the timing of a network and none of its sockets.

use std::{future::pending, sync::Arc, time::Duration};

use springtide::env::{Clock, ErrorCode};
use tokio::sync::oneshot;

use super::{CallError, Job, Transport};
use crate::{
    cluster::Shared,
    faults::Point,
    protocol::{Reply, Request, SegmentId},
    service::{Answer, Broken, Memory, NodeService},
};

/// The transport of a [`crate::FakeCluster`]'s clients.
#[derive(Clone, Debug)]
pub struct LocalTransport<C> {
    cluster: Arc<Shared<C>>,
    own: Arc<[SegmentId]>,
}

impl<C: Clock> LocalTransport<C> {
    pub(crate) fn new(cluster: Arc<Shared<C>>, own: Vec<SegmentId>) -> Self {
        Self { cluster, own: own.into() }
    }

    /// The node of a segment and how long it may stay silent: for ever when it is this very process.
    fn node(
        &self,
        segment: SegmentId,
    ) -> Result<(Arc<NodeService<C>>, Option<Duration>), ErrorCode> {
        let node = self.cluster.node_of(segment).ok_or(ErrorCode::TransferFail)?;
        Ok((node, (!self.owns(segment)).then_some(self.cluster.status_timeout)))
    }
}

impl<C: Clock> Transport for LocalTransport<C> {
    async fn call(&self, request: Request) -> Result<Reply, CallError> {
        if !self.cluster.can_connect() {
            return Err(CallError::Refused);
        }
        // In a task of its own: whoever waits may give up, the master does not.
        let (sender, answer) = oneshot::channel();
        let cluster = self.cluster.clone();
        self.cluster.spawn(async move {
            // Nobody may be waiting any more.
            let _unheard = sender.send(cluster.call(request).await);
        });
        match answer.await {
            Ok(Answer::Reply(reply)) => Ok(reply),
            Ok(Answer::Silent) => pending().await,
            Ok(Answer::Disconnected) | Err(_) => Err(CallError::Broken),
        }
    }

    async fn write(&self, job: Job) -> Result<u64, ErrorCode> {
        let (node, patience) = self.node(job.replica.segment)?;
        write(&node, &self.cluster.clock, job, patience).await
    }

    async fn read(&self, job: Job) -> Result<u64, ErrorCode> {
        let (node, patience) = self.node(job.replica.segment)?;
        read(&node, &self.cluster.clock, job, patience).await
    }

    fn owns(&self, segment: SegmentId) -> bool {
        self.own.contains(&segment)
    }

    fn pings_ok(&self) -> bool {
        let mut own = self.own.iter().filter_map(|segment| self.cluster.node_of(*segment));
        own.all(|node| node.pings_ok())
    }
}

/// Writes to a node of this process that may stay silent for `patience`.
pub(super) async fn write<C: Clock>(
    node: &NodeService<C>,
    clock: &C,
    job: Job,
    patience: Option<Duration>,
) -> Result<u64, ErrorCode> {
    let tag = job.tag(Point::Write);
    let moved = async {
        let opened = patient(clock, patience, node.open(tag.clone())).await?;
        let (mut source, mut sink) = (Memory(&job.buffer), node.place(&tag));
        node.carry(opened, &mut source, &mut sink, true).await
    };
    end(clock, patience, moved.await).await
}

/// Reads from a node of this process that may stay silent for `patience`.
pub(super) async fn read<C: Clock>(
    node: &NodeService<C>,
    clock: &C,
    job: Job,
    patience: Option<Duration>,
) -> Result<u64, ErrorCode> {
    let tag = job.tag(Point::Read);
    let moved = async {
        let opened = patient(clock, patience, node.open(tag.clone())).await?;
        let (mut source, mut sink) = (node.place(&tag), Memory(&job.buffer));
        node.carry(opened, &mut source, &mut sink, true).await
    };
    end(clock, patience, moved.await).await
}

async fn patient<C: Clock, T: Send>(
    clock: &C,
    patience: Option<Duration>,
    opening: impl Future<Output = Result<T, Broken>> + Send,
) -> Result<T, Broken> {
    match patience {
        None => opening.await,
        Some(patience) => clock
            .timeout_at(clock.now() + patience, opening)
            .await
            .unwrap_or(Err(Broken::Code(ErrorCode::TransferFail))),
    }
}

/// What the caller sees of a transfer's end.
async fn end<C: Clock>(
    clock: &C,
    patience: Option<Duration>,
    moved: Result<u64, Broken>,
) -> Result<u64, ErrorCode> {
    match (moved, patience) {
        (Ok(bytes), _) => Ok(bytes),
        (Err(Broken::Code(code)), _) => Err(code),
        (Err(Broken::Disconnected), _) => Err(ErrorCode::TransferFail),
        (Err(Broken::Silent), Some(patience)) => {
            clock.sleep(patience).await;
            Err(ErrorCode::TransferFail)
        }
        (Err(Broken::Silent), None) => pending().await,
    }
}
