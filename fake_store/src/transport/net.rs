//! Over a network: a connection a call or transfer, kept and used again.
//!
//! | what happens | what the caller sees |
//! |---|---|
//! | the master refuses the connection, or none is made in time | -900, not executed |
//! | the connection ends before the reply | -900, perhaps executed |
//! | no reply | -901 (the client's timeout), perhaps executed, or later |
//! | a node refuses, or ends the connection in the middle | -800, nothing moves any more |
//! | a node gives no first sign, or no final one | -800 after the status timeout, likewise |
//! | a node is silent in the middle | -800 at the client's transfer limit, **and bytes still move** |

use std::{
    collections::BTreeMap,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use springtide::env::{Clock, ErrorCode, Network};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

use super::{
    CallError, Job, STATUS_TIMEOUT, Transport, local,
    wire::{self, Ack, NodeRequest, ReadHead},
};
use crate::{
    faults::Point,
    memory::{Buffer, lock},
    protocol::{Reply, Request, SegmentId},
    service::{NodeService, Pacing, pause},
};

/// Idle connections kept for each address.
const IDLE_MAX: usize = 4;

/// How a network transport behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetConfig {
    /// The master's address.
    pub master: String,
    /// How fast a put sends; a get is paced by the node.
    pub pacing: Pacing,
    /// Chunks that a put sends ahead of the node's acknowledgement.
    pub window_chunks: u32,
    /// How long a connection may take to come about.
    #[serde(rename = "connect_timeout_ms", with = "crate::millis")]
    pub connect_timeout: Duration,
    /// How long a node may take for the first sign of a read and the final one of a write.
    #[serde(rename = "status_timeout_ms", with = "crate::millis")]
    pub status_timeout: Duration,
    /// How long a node may be silent in the middle before the connection is given up. Without it (as in
    /// Mooncake built from source) only the client's transfer limit ends the wait, and not the transfer.
    #[serde(rename = "progress_timeout_ms", with = "crate::millis::option")]
    pub progress_timeout: Option<Duration>,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            master: "127.0.0.1:50051".into(),
            pacing: Pacing::default(),
            window_chunks: 4,
            connect_timeout: Duration::from_secs(30),
            status_timeout: STATUS_TIMEOUT,
            progress_timeout: None,
        }
    }
}

/// The transport of a client that reaches the store over a network.
pub struct NetTransport<N: Network, C>(Arc<Inner<N, C>>);

impl<N: Network, C> Clone for NetTransport<N, C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<N: Network, C> fmt::Debug for NetTransport<N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetTransport").field("config", &self.0.config).finish_non_exhaustive()
    }
}

struct Inner<N: Network, C> {
    network: N,
    clock: C,
    config: NetConfig,
    /// The nodes in this very process.
    own: Vec<Arc<NodeService<C>>>,
    /// Kept connections on which nothing is under way, by address.
    idle: Mutex<BTreeMap<String, Vec<N::Stream>>>,
}

impl<N: Network, C: Clock> NetTransport<N, C> {
    /// A transport for a process that owns the nodes `own`.
    pub fn new(network: N, clock: C, config: NetConfig, own: Vec<Arc<NodeService<C>>>) -> Self {
        Self(Arc::new(Inner { network, clock, config, own, idle: Mutex::default() }))
    }

    fn own(&self, segment: SegmentId) -> Option<&Arc<NodeService<C>>> {
        self.0.own.iter().find(|node| node.segment().id == segment)
    }

    /// A connection to `address`: a kept one that is still open, or a new one.
    async fn connect(&self, address: &str) -> io::Result<N::Stream> {
        let kept = {
            let mut idle = lock(&self.0.idle);
            let kept = idle.get_mut(address);
            kept.and_then(|kept| std::iter::from_fn(|| kept.pop()).find_map(still_open))
        };
        if let Some(stream) = kept {
            return Ok(stream);
        }
        let deadline = self.0.clock.now() + self.0.config.connect_timeout;
        let connected = self.0.clock.timeout_at(deadline, self.0.network.connect(address)).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Keeps a connection on which nothing is under way.
    fn keep(&self, address: &str, stream: N::Stream) {
        let mut idle = lock(&self.0.idle);
        let kept = idle.entry(address.to_owned()).or_default();
        if kept.len() < IDLE_MAX {
            kept.push(stream);
        }
    }

    /// Waits for a peer, for as long as this stage of a transfer may take.
    async fn patient<T: Send>(
        &self,
        patience: Option<Duration>,
        io: impl Future<Output = io::Result<T>> + Send,
    ) -> io::Result<T> {
        match patience {
            None => io.await,
            Some(patience) => {
                let deadline = self.0.clock.now() + patience;
                let ended = self.0.clock.timeout_at(deadline, io).await;
                ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    async fn write_remote(&self, job: &Job) -> io::Result<Result<u64, ErrorCode>> {
        let endpoint = &job.replica.endpoint;
        let NetConfig { pacing, window_chunks, status_timeout, progress_timeout, .. } =
            &self.0.config;
        let window = (*window_chunks).clamp(1, wire::WINDOW_MAX);
        let mut stream = self.connect(endpoint).await?;
        wire::send(&mut stream, &NodeRequest::new(&job.tag(Point::Write), pacing.chunk())).await?;
        pause(&self.0.clock, pacing.latency).await;

        let bytes = job.replica.bytes;
        let mut chunk = vec![0; pacing.chunk().min(bytes.max(1) as usize)];
        let (mut sent, mut unacknowledged) = (0, 0);
        loop {
            while sent < bytes && unacknowledged < window {
                let step = (bytes - sent).min(chunk.len() as u64) as usize;
                pause(&self.0.clock, pacing.time(step)).await;
                job.buffer.read(sent, &mut chunk[..step])?;
                self.patient(*progress_timeout, stream.write_all(&chunk[..step])).await?;
                sent += step as u64;
                unacknowledged += 1;
            }
            stream.flush().await?;
            // Once everything is sent only the node's answer is missing, and that has its own limit.
            let all_sent = sent == bytes;
            let patience = if all_sent { Some(*status_timeout) } else { *progress_timeout };
            match self.patient(patience, Ack::receive(&mut stream)).await? {
                Ack::Chunk if unacknowledged > 0 => unacknowledged -= 1,
                Ack::Done if all_sent && unacknowledged == 0 => break,
                Ack::Failed(code) => return Ok(Err(code)),
                Ack::Chunk | Ack::Done => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        self.keep(endpoint, stream);
        Ok(Ok(bytes))
    }

    async fn read_remote(&self, job: &Job) -> io::Result<Result<u64, ErrorCode>> {
        let endpoint = &job.replica.endpoint;
        let NetConfig { pacing, status_timeout, progress_timeout, .. } = &self.0.config;
        let mut stream = self.connect(endpoint).await?;
        wire::send(&mut stream, &NodeRequest::new(&job.tag(Point::Read), pacing.chunk())).await?;
        let head = wire::receive::<ReadHead>(&mut stream);
        let head = self.patient(Some(*status_timeout), head).await?;
        let bytes = match head.ok_or(io::ErrorKind::UnexpectedEof)? {
            Ok(bytes) if bytes <= job.replica.bytes => bytes,
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(code) => return Ok(Err(code.0)),
        };
        self.fill(&mut stream, &job.buffer, bytes, *progress_timeout).await?;
        match self.patient(Some(*status_timeout), Ack::receive(&mut stream)).await? {
            Ack::Done => {
                self.keep(endpoint, stream);
                Ok(Ok(bytes))
            }
            Ack::Failed(code) => Ok(Err(code)),
            Ack::Chunk => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Writes `bytes` bytes into the caller's memory as they arrive.
    async fn fill(
        &self,
        stream: &mut N::Stream,
        buffer: &Buffer,
        bytes: u64,
        progress_timeout: Option<Duration>,
    ) -> io::Result<()> {
        let mut chunk = vec![0; self.0.config.pacing.chunk().min(bytes.max(1) as usize)];
        let mut done = 0;
        while done < bytes {
            let most = (bytes - done).min(chunk.len() as u64) as usize;
            let step = self.patient(progress_timeout, stream.read(&mut chunk[..most])).await?;
            if step == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer.write(done, &chunk[..step])?;
            done += step as u64;
        }
        Ok(())
    }
}

impl<N: Network, C: Clock> Transport for NetTransport<N, C> {
    async fn call(&self, request: Request) -> Result<Reply, CallError> {
        let master = &self.0.config.master;
        let mut stream = self.connect(master).await.map_err(|_| CallError::Refused)?;
        let answered = async {
            wire::send(&mut stream, &request).await?;
            wire::receive::<Reply>(&mut stream).await
        };
        match answered.await {
            Ok(Some(reply)) => {
                self.keep(master, stream);
                Ok(reply)
            }
            Ok(None) | Err(_) => Err(CallError::Broken),
        }
    }

    async fn write(&self, job: Job) -> Result<u64, ErrorCode> {
        match self.own(job.replica.segment) {
            Some(node) => local::write(node, &self.0.clock, job, None).await,
            None => self.write_remote(&job).await.unwrap_or(Err(ErrorCode::TransferFail)),
        }
    }

    async fn read(&self, job: Job) -> Result<u64, ErrorCode> {
        match self.own(job.replica.segment) {
            Some(node) => local::read(node, &self.0.clock, job, None).await,
            None => self.read_remote(&job).await.unwrap_or(Err(ErrorCode::TransferFail)),
        }
    }

    fn owns(&self, segment: SegmentId) -> bool {
        self.own(segment).is_some()
    }

    fn pings_ok(&self) -> bool {
        self.0.own.iter().all(|node| node.pings_ok())
    }
}

/// A kept stream, unless the peer has closed it, or said something out of turn.
fn still_open<S: AsyncRead + Unpin>(mut stream: S) -> Option<S> {
    let mut byte = [0; 1];
    let mut unread = ReadBuf::new(&mut byte);
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut stream).poll_read(&mut context, &mut unread) {
        Poll::Pending => Some(stream),
        Poll::Ready(_) => None,
    }
}
