//! The simulated network as an [`env::Network`](trait@springtide::env::Network).
//!
//! Streams are the engine's, with two rules on top. A dead process gets errors. And neither engine's TCP
//! retransmits, so a stream that lived through a partition has a hole in it and would hang for ever where real
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

use super::{
    memory::{HostNet, MemoryListener, MemoryStream},
    process::Process,
};

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

/// A host's way to the others.
#[derive(Clone, Debug)]
pub enum Wire {
    /// Turmoil's network, of the host that runs.
    Turmoil,
    /// The network in memory.
    Memory(HostNet),
}

/// The network as one process sees it.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    process: Process,
    links: Links,
    wire: Wire,
}

impl SimNetwork {
    /// The network of `process`.
    pub fn new(process: Process, links: Links, wire: Wire) -> Self {
        Self { process, links, wire }
    }

    fn stream(&self, inner: Raw, peer: &str) -> SimStream {
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
        let inner = match &self.wire {
            Wire::Turmoil => {
                RawListener::Turmoil(turmoil::net::TcpListener::bind(("0.0.0.0", port)).await?)
            }
            Wire::Memory(net) => RawListener::Memory(net.bind(port)?),
        };
        Ok(SimListener { inner, network: self.clone() })
    }

    async fn connect(&self, address: &str) -> io::Result<SimStream> {
        self.refuse_the_dead()?;
        let (peer, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let inner = match &self.wire {
            Wire::Turmoil => Raw::Turmoil(turmoil::net::TcpStream::connect(address).await?),
            Wire::Memory(net) => {
                let port =
                    port.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                Raw::Memory(net.connect(peer, port).await?)
            }
        };
        Ok(self.stream(inner, peer))
    }
}

enum RawListener {
    Turmoil(turmoil::net::TcpListener),
    Memory(MemoryListener),
}

/// A bound port.
pub struct SimListener {
    inner: RawListener,
    network: SimNetwork,
}

impl env::Listener for SimListener {
    type Stream = SimStream;

    async fn accept(&mut self) -> io::Result<(SimStream, String)> {
        let (inner, peer, port) = match &self.inner {
            RawListener::Turmoil(listener) => {
                let (inner, address) = listener.accept().await?;
                let peer = turmoil::reverse_lookup(address.ip());
                let peer = peer.unwrap_or_else(|| address.ip().to_string());
                (Raw::Turmoil(inner), peer, address.port().into())
            }
            RawListener::Memory(listener) => {
                let (inner, peer, number) = listener.accept().await;
                (Raw::Memory(inner), peer, number)
            }
        };
        Ok((self.network.stream(inner, &peer), format!("{peer}:{port}")))
    }

    fn local_addr(&self) -> io::Result<String> {
        let port = match &self.inner {
            RawListener::Turmoil(listener) => listener.local_addr()?.port(),
            RawListener::Memory(listener) => listener.port(),
        };
        Ok(format!("{}:{port}", self.network.process.host()))
    }
}

#[derive(Debug)]
enum Raw {
    Turmoil(turmoil::net::TcpStream),
    Memory(MemoryStream),
}

/// Calls a method of the engine's stream.
macro_rules! on_wire {
    ($stream:ident, $method:ident($($argument:ident),*)) => {
        match &mut $stream.inner {
            Raw::Turmoil(inner) => Pin::new(inner).$method($($argument),*),
            Raw::Memory(inner) => Pin::new(inner).$method($($argument),*),
        }
    };
}

/// A connection between two hosts.
#[derive(Debug)]
pub struct SimStream {
    id: u64,
    inner: Raw,
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
        let poll = on_wire!(self, poll_read(cx, buf));
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
        let poll = on_wire!(self, poll_write(cx, buf));
        self.watch(Half::Write, poll, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        on_wire!(self, poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        on_wire!(self, poll_shutdown(cx))
    }
}
