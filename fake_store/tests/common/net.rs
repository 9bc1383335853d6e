//! Real TCP as [`springtide::env::Network`].

use std::io;

use springtide::env::{Listener, Network};
use tokio::net::{TcpListener, TcpStream};

/// Real TCP.
#[derive(Clone, Debug)]
pub(crate) struct TokioNetwork;

#[derive(Debug)]
pub(crate) struct TokioListener(TcpListener);

impl Network for TokioNetwork {
    type Stream = TcpStream;
    type Listener = TokioListener;

    async fn bind(&self, address: &str) -> io::Result<TokioListener> {
        TcpListener::bind(address).await.map(TokioListener)
    }

    async fn connect(&self, address: &str) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}

impl Listener for TokioListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, String)> {
        let (stream, peer) = self.0.accept().await?;
        Ok((stream, peer.to_string()))
    }

    fn local_addr(&self) -> io::Result<String> {
        self.0.local_addr().map(|address| address.to_string())
    }
}
