//! One end of a connection: what it has received and what it has sent.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    task::{Context, Poll, Waker},
};

use tokio::io::ReadBuf;

/// Segments of one direction that the other end has not read yet, at most: room for a host that stands still.
const UNREAD_MAX: usize = 1 << 16;

/// The number of an end of a connection; never given out twice.
pub(super) type SocketId = u64;

/// What an end sends to the other.
#[derive(Debug)]
pub(super) enum Segment {
    /// Bytes.
    Data(Vec<u8>),
    /// There is nothing more.
    End,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not accepted yet.
    Asking,
    /// There was nobody to accept it.
    Refused,
    /// Open, at least one way.
    Open,
    /// Broken by the other end.
    Reset,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Socket {
    /// The host that has it.
    pub(super) host: usize,
    /// The host of the other end.
    pub(super) peer_host: usize,
    /// The other end, once there is one.
    pub(super) peer: Option<SocketId>,
    pub(super) phase: Phase,
    /// Received and not read, in order.
    inbox: VecDeque<Segment>,
    /// Bytes of the first segment that were read.
    read: usize,
    /// Received ahead of one that is missing.
    ahead: BTreeMap<u64, Segment>,
    received: u64,
    /// The end was read.
    ended: bool,
    sent: u64,
    /// Sent and not read by the other end.
    pub(super) unread: usize,
    /// The end was sent.
    pub(super) shut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Socket {
    /// An end on `host` towards `peer_host`.
    pub(super) fn new(host: usize, peer_host: usize, peer: Option<SocketId>) -> Self {
        Self {
            host,
            peer_host,
            peer,
            phase: if peer.is_some() { Phase::Open } else { Phase::Asking },
            inbox: VecDeque::new(),
            read: 0,
            ahead: BTreeMap::new(),
            received: 0,
            ended: false,
            sent: 0,
            unread: 0,
            shut: false,
            reader: None,
            writer: None,
        }
    }

    /// Takes a segment from the network, which may come before an earlier one.
    pub(super) fn receive(&mut self, number: u64, segment: Segment) {
        self.ahead.insert(number, segment);
        while let Some(segment) = self.ahead.remove(&(self.received + 1)) {
            self.received += 1;
            self.inbox.push_back(segment);
        }
        wake(&mut self.reader);
    }

    /// Changes the phase; whoever waits looks again.
    pub(super) fn turn(&mut self, phase: Phase) {
        self.phase = phase;
        wake(&mut self.reader);
        wake(&mut self.writer);
    }

    /// Waits for the connection to be accepted.
    pub(super) fn poll_accepted(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.phase {
            Phase::Asking => {
                self.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Phase::Refused => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            Phase::Open | Phase::Reset => Poll::Ready(Ok(())),
        }
    }

    /// Reads from the first segment; tells whether that was all of it.
    pub(super) fn poll_read(
        &mut self,
        cx: &Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        if self.ended || buf.remaining() == 0 {
            return Poll::Ready(Ok(false));
        }
        match self.inbox.front() {
            Some(Segment::Data(bytes)) => {
                let rest = &bytes[self.read..];
                let taken = rest.len().min(buf.remaining());
                buf.put_slice(&rest[..taken]);
                self.read += taken;
                let whole = self.read == bytes.len();
                if whole {
                    self.inbox.pop_front();
                    self.read = 0;
                }
                Poll::Ready(Ok(whole))
            }
            Some(Segment::End) => {
                self.inbox.pop_front();
                self.ended = true;
                Poll::Ready(Ok(false))
            }
            None if self.phase == Phase::Reset => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            None => {
                self.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits until something may be sent; gives the number of the segment.
    pub(super) fn poll_send(&mut self, cx: &Context<'_>) -> Poll<io::Result<u64>> {
        if self.shut || self.phase != Phase::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.unread >= UNREAD_MAX {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.unread += 1;
        Poll::Ready(Ok(self.next_number()))
    }

    /// The number of the next segment.
    pub(super) fn next_number(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// The other end has read a segment.
    pub(super) fn was_read(&mut self) {
        self.unread = self.unread.saturating_sub(1);
        wake(&mut self.writer);
    }

    /// Whether it has received bytes that nobody has read.
    pub(super) fn has_unread(&self) -> bool {
        let is_data = |segment: &Segment| matches!(segment, Segment::Data(_));
        !self.ended && (self.inbox.front().is_some_and(is_data) || self.ahead.values().any(is_data))
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
