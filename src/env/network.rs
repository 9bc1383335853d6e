//! Byte streams between hosts.

use std::{future::Future, io};

use tokio::io::{AsyncRead, AsyncWrite};

/// A connected, reliable, ordered byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A bound address that accepts streams.
pub trait Listener: Send + 'static {
    /// What it accepts.
    type Stream: Stream;

    /// The next peer that connects, with its address for messages.
    ///
    /// # Errors
    /// As the operating system reports them; the listener stays usable.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, String)>> + Send;

    /// The address it is bound to, with the port that was chosen.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn local_addr(&self) -> io::Result<String>;
}

/// Where streams come from. Addresses are `host:port`.
pub trait Network: Clone + Send + Sync + 'static {
    /// A stream of this network.
    type Stream: Stream;
    /// A listener of this network.
    type Listener: Listener<Stream = Self::Stream>;

    /// Listens on `address`; port 0 asks for a free one.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn bind(&self, address: &str) -> impl Future<Output = io::Result<Self::Listener>> + Send;

    /// Connects to `address`. Has no deadline of its own: callers put one around it.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn connect(&self, address: &str) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}
