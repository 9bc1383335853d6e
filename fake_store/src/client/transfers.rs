//! Transfers under way: their limit, their late life, their end when the client is closed.

use std::sync::Arc;

use springtide::env::{Clock, ErrorCode, Time};
use tokio::sync::{oneshot, watch};

use super::{Client, Protocol};
use crate::{
    faults::Point,
    memory::{Buffer, lock},
    transport::{Job, Transport},
};

/// What all transfers of a client share.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    active: Arc<watch::Sender<usize>>,
    fenced: Arc<watch::Sender<bool>>,
}

/// A transfer that was submitted.
#[derive(Debug)]
pub(super) struct Running {
    end: oneshot::Receiver<Result<u64, ErrorCode>>,
    deadline: Time,
}

/// How a transfer ended, as far as its waiter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) result: Result<u64, ErrorCode>,
    /// It goes on.
    pub(super) late: bool,
}

impl Ended {
    pub(super) fn with(result: Result<u64, ErrorCode>) -> Self {
        Self { result, late: false }
    }
}

/// Counts a transfer while it lives.
#[derive(Debug)]
struct Active(Arc<watch::Sender<usize>>);

impl Active {
    fn new(count: Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|active| *active += 1);
        Self(count)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.send_modify(|active| *active -= 1);
    }
}

impl Transfers {
    /// Stops every transfer and waits until none is left.
    pub(super) async fn fence(&self) {
        self.fenced.send_replace(true);
        self.settle().await;
    }

    /// Waits until no transfer is left.
    pub(super) async fn settle(&self) {
        let mut active = self.active.subscribe();
        // The sender lives as long as `self`.
        let _none_left = active.wait_for(|active| *active == 0).await;
    }

    /// Transfers under way, late ones included.
    pub(super) fn active(&self) -> usize {
        *self.active.borrow()
    }
}

impl<T: Transport, C: Clock> Client<T, C> {
    /// Starts a transfer in a task of its own.
    pub(super) fn submit(&self, point: Point, job: Job) -> Running {
        let inner = &self.0;
        let (sender, end) = oneshot::channel();
        let own = inner.transport.owns(job.replica.segment);
        let limit = inner.config.transfer_limit;
        // A copy within the process has no limit in Mooncake.
        let deadline = if own { Time::NEVER } else { self.now() + limit };
        let active = Active::new(inner.transfers.active.clone());
        let mut fenced = inner.transfers.fenced.subscribe();
        let transport = inner.transport.clone();
        (inner.spawner)(Box::pin(async move {
            let moved = async {
                match point {
                    Point::Write => transport.write(job).await,
                    _ => transport.read(job).await,
                }
            };
            let end = tokio::select! {
                biased;
                _ = fenced.wait_for(|fenced| *fenced) => Err(ErrorCode::TransferFail),
                end = moved => end,
            };
            drop(active);
            // A late transfer has nobody to tell.
            let _unheard = sender.send(end);
        }));
        Running { end, deadline }
    }

    /// Waits for a transfer, up to its limit.
    pub(super) async fn wait(&self, running: Running) -> Ended {
        let Running { end, deadline } = running;
        // A task that was dropped moves no bytes any more.
        let end = async { end.await.unwrap_or(Err(ErrorCode::TransferFail)) };
        if deadline == Time::NEVER {
            return Ended::with(end.await);
        }
        match self.0.clock.timeout_at(deadline, end).await {
            Ok(result) => Ended::with(result),
            Err(_) => Ended { result: Err(ErrorCode::TransferFail), late: true },
        }
    }

    /// Whether the data plane may touch a buffer.
    pub(super) fn may_transfer(&self, buffer: &Buffer) -> bool {
        if self.0.config.protocol == Protocol::Tcp {
            return true;
        }
        let registered = lock(&self.0.registered);
        match buffer {
            Buffer::Owned { .. } => true,
            Buffer::Region { region, .. } => {
                registered.get(&(region.base() as usize)) == Some(&(region.len() as usize))
            }
            Buffer::Caller(memory) => memory.parts().into_iter().all(|(start, len)| {
                let before = registered.range(..=start).next_back();
                before.is_some_and(|(base, bytes)| start - base + len as usize <= *bytes)
            }),
        }
    }

    /// Whether pool memory lies in more pieces than the store says it takes.
    pub(super) fn is_too_scattered(&self, buffer: &Buffer) -> bool {
        matches!(buffer, Buffer::Region { pieces, .. } if pieces.len() > self.0.config.buffers_per_object)
    }

    /// Fragments that a buffer means on the wire.
    pub(super) fn fragments(&self, buffer: &Buffer) -> usize {
        let fragment = self.0.config.fragment_bytes.max(1);
        buffer.parts().into_iter().map(|part| part.div_ceil(fragment) as usize).sum()
    }
}
