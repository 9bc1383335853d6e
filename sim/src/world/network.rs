//! The simulated network as an [`env::Network`](trait@springtide::env::Network).
//!
//! Streams are turmoil's, with two rules on top. A dead process gets errors. And turmoil's TCP does not
//! retransmit, so a stream that lived through a partition has a hole in it and would hang for ever where real
//! TCP would recover or reset: [`Links::reset`] breaks the streams of a link when its partition ends.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use springtide::env;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::process::Process;

/// What is known of the links between hosts. Shared by all hosts of a world.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<LinksInner>>);

#[derive(Debug, Default)]
struct LinksInner {
    /// How often the link between two hosts, in the order of their names, was reset.
    resets: BTreeMap<(String, String), u64>,
    streams: u64,
    /// Halves of streams that wait, to be woken by a reset.
    waiting: BTreeMap<(u64, Half), Waker>,
}

/// The two halves of a stream may wait in different tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Half {
    Read,
    Write,
}

impl Links {
    /// Breaks every stream that now exists between two hosts.
    pub fn reset(&self, a: &str, b: &str) {
        let waiting = {
            let mut links = self.lock();
            *links.resets.entry(pair(a, b)).or_default() += 1;
            std::mem::take(&mut links.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    fn resets(&self, pair: &(String, String)) -> u64 {
        self.lock().resets.get(pair).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, LinksInner> {
        self.0.lock().expect("no panic while held")
    }
}

fn pair(a: &str, b: &str) -> (String, String) {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    (low.to_owned(), high.to_owned())
}

/// The network as one process sees it.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    process: Process,
    links: Links,
}

impl SimNetwork {
    /// The network of `process`.
    pub fn new(process: Process, links: Links) -> Self {
        Self { process, links }
    }

    fn stream(&self, inner: turmoil::net::TcpStream, peer: &str) -> SimStream {
        let pair = pair(self.process.host(), peer);
        let resets = self.links.resets(&pair);
        let id = {
            let mut links = self.links.lock();
            links.streams += 1;
            links.streams
        };
        SimStream {
            id,
            inner,
            process: self.process.clone(),
            links: self.links.clone(),
            pair,
            resets,
        }
    }

    fn refuse_the_dead(&self) -> io::Result<()> {
        if self.process.is_dead() { Err(dead()) } else { Ok(()) }
    }
}

fn dead() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the process is dead")
}

impl env::Network for SimNetwork {
    type Stream = SimStream;
    type Listener = SimListener;

    /// Binds the port on the process's own host, whatever host the address names.
    async fn bind(&self, address: &str) -> io::Result<SimListener> {
        self.refuse_the_dead()?;
        let port = address.rsplit(':').next().unwrap_or_default();
        let port: u16 = port.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let inner = turmoil::net::TcpListener::bind(("0.0.0.0", port)).await?;
        Ok(SimListener { inner, network: self.clone() })
    }

    async fn connect(&self, address: &str) -> io::Result<SimStream> {
        self.refuse_the_dead()?;
        let inner = turmoil::net::TcpStream::connect(address).await?;
        let peer = address.rsplit_once(':').map_or(address, |(host, _)| host);
        Ok(self.stream(inner, peer))
    }
}

/// A bound port.
pub struct SimListener {
    inner: turmoil::net::TcpListener,
    network: SimNetwork,
}

impl env::Listener for SimListener {
    type Stream = SimStream;

    async fn accept(&mut self) -> io::Result<(SimStream, String)> {
        let (inner, address) = self.inner.accept().await?;
        let peer =
            turmoil::reverse_lookup(address.ip()).unwrap_or_else(|| address.ip().to_string());
        Ok((self.network.stream(inner, &peer), format!("{peer}:{}", address.port())))
    }

    fn local_addr(&self) -> io::Result<String> {
        let port = self.inner.local_addr()?.port();
        Ok(format!("{}:{port}", self.network.process.host()))
    }
}

/// A connection between two hosts.
#[derive(Debug)]
pub struct SimStream {
    id: u64,
    inner: turmoil::net::TcpStream,
    process: Process,
    links: Links,
    pair: (String, String),
    resets: u64,
}

impl SimStream {
    /// Refuses the dead and streams whose link was reset.
    fn check(&self) -> io::Result<()> {
        if self.process.is_dead() {
            return Err(dead());
        }
        if self.links.resets(&self.pair) != self.resets {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the link was reset"));
        }
        Ok(())
    }

    /// Notes who waits, so that a reset is noticed.
    fn watch<T>(&self, half: Half, poll: Poll<T>, cx: &Context<'_>) -> Poll<T> {
        if poll.is_pending() {
            self.links.lock().waiting.insert((self.id, half), cx.waker().clone());
        }
        poll
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut links = self.links.lock();
        links.waiting.remove(&(self.id, Half::Read));
        links.waiting.remove(&(self.id, Half::Write));
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.watch(Half::Read, poll, cx)
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(Half::Write, poll, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
