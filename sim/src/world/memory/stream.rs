//! Streams and listeners over the network in memory.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    Net, What,
    socket::{Segment, SocketId},
};

/// The network as one host sees it.
#[derive(Clone, Debug)]
pub struct HostNet {
    net: Net,
    host: usize,
}

impl HostNet {
    pub(super) fn new(net: Net, host: usize) -> Self {
        Self { net, host }
    }

    /// Listens on a port of the host; 0 stands for a free one.
    ///
    /// # Errors
    /// `AddrInUse`.
    pub fn bind(&self, port: u16) -> io::Result<MemoryListener> {
        let port = self.net.lock().bind(self.host, port)?;
        Ok(MemoryListener { net: self.net.clone(), host: self.host, port })
    }

    /// Connects to a port of a host.
    ///
    /// # Errors
    /// `NotFound` for a host that there is not, `ConnectionRefused` where nobody listens.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<MemoryStream> {
        let stream = {
            let mut state = self.net.lock();
            let to = state.find(host).ok_or(io::ErrorKind::NotFound)?;
            let client = state.open(self.host, to, None);
            state.send(self.host, to, What::Ask { client, port });
            MemoryStream { net: self.net.clone(), id: client }
        };
        poll_fn(|cx| {
            let mut state = self.net.lock();
            let socket = state.sockets.get_mut(&stream.id).expect("its stream is here");
            socket.poll_accepted(cx)
        })
        .await?;
        Ok(stream)
    }
}

/// A bound port.
#[derive(Debug)]
pub struct MemoryListener {
    net: Net,
    host: usize,
    port: u16,
}

impl MemoryListener {
    /// The next connection, with the host it comes from and its number.
    pub async fn accept(&self) -> (MemoryStream, String, u64) {
        poll_fn(|cx| {
            let mut state = self.net.lock();
            if let Some((id, client)) = state.accept(self.host, self.port) {
                let peer = state.names[state.sockets[&id].peer_host].clone();
                return Poll::Ready((MemoryStream { net: self.net.clone(), id }, peer, client));
            }
            if let Some(listening) = state.hosts[self.host].listeners.get_mut(&self.port) {
                listening.acceptor = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// The port that was chosen.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        self.net.lock().unbind(self.host, self.port);
    }
}

/// A connection between two hosts.
#[derive(Debug)]
pub struct MemoryStream {
    net: Net,
    id: SocketId,
}

impl MemoryStream {
    /// Sends a segment to the other end.
    fn send(&self, cx: &Context<'_>, segment: impl FnOnce() -> Segment) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        let socket = state.sockets.get_mut(&self.id).expect("its stream is here");
        let number = std::task::ready!(socket.poll_send(cx))?;
        let segment = segment();
        socket.shut = matches!(segment, Segment::End);
        let (host, peer_host) = (socket.host, socket.peer_host);
        let to = socket.peer.expect("a connection that is open has two ends");
        let from = self.id;
        state.send(host, peer_host, What::Segment { from, to, number, segment });
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.net.lock().drop_socket(self.id);
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        let socket = state.sockets.get_mut(&self.id).expect("its stream is here");
        let read = socket.poll_read(cx, buf);
        if let (Poll::Ready(Ok(true)), Some(peer)) = (&read, socket.peer)
            && let Some(peer) = state.sockets.get_mut(&peer)
        {
            peer.was_read();
        }
        read.map_ok(|_| ())
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send(cx, || Segment::Data(buf.to_vec())).map_ok(|()| buf.len())
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send(cx, || Segment::End)
    }
}
