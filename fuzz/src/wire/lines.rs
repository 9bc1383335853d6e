//! A network without a network: pairs of pipes, by address.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use fake_store::Spawner;
use springtide::env::{Listener, Network};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::mpsc,
};

/// Bytes that a pipe holds: fewer than some messages have, so that writers wait for readers, too.
pub(super) const PIPE_BYTES: usize = 4 << 10;

/// One end of a connection.
pub(super) type Line = DuplexStream;

/// Everything that listens.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<BTreeMap<String, mpsc::UnboundedSender<Line>>>>);

/// Something that listens.
pub(super) struct Receiver {
    address: String,
    calls: mpsc::UnboundedReceiver<Line>,
}

impl Lines {
    /// Connects to `address`.
    pub(super) fn dial(&self, address: &str) -> io::Result<Line> {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (here, there) = tokio::io::duplex(PIPE_BYTES);
        let sent = listeners.get(address).map(|calls| calls.send(there).is_ok());
        if sent == Some(true) { Ok(here) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }

    fn listen(&self, address: &str) -> Receiver {
        let (sender, calls) = mpsc::unbounded_channel();
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.insert(address.to_owned(), sender);
        Receiver { address: address.to_owned(), calls }
    }

    /// Listens on `address` and sends `answer` to everybody, whatever they ask.
    pub(super) fn answer(&self, address: &str, answer: Vec<u8>, spawner: &Spawner) {
        let mut receiver = self.listen(address);
        let each = spawner.clone();
        spawner(Box::pin(async move {
            while let Ok((mut line, _)) = receiver.accept().await {
                let answer = answer.clone();
                each(Box::pin(async move {
                    let _ended = line.write_all(&answer).await;
                    let _ended = line.shutdown().await;
                    let mut ignored = [0; 1024];
                    while let Ok(1..) = line.read(&mut ignored).await {}
                }));
            }
        }));
    }
}

impl Listener for Receiver {
    type Stream = Line;

    async fn accept(&mut self) -> io::Result<(Line, String)> {
        let line = self.calls.recv().await.ok_or(io::ErrorKind::NotConnected)?;
        Ok((line, "peer".to_owned()))
    }

    fn local_addr(&self) -> io::Result<String> {
        Ok(self.address.clone())
    }
}

impl Network for Lines {
    type Stream = Line;
    type Listener = Receiver;

    async fn bind(&self, address: &str) -> io::Result<Receiver> {
        Ok(self.listen(address))
    }

    async fn connect(&self, address: &str) -> io::Result<Line> {
        self.dial(address)
    }
}
