//! TCP from tokio.

use std::{future::Future, io};

use tokio::net::{TcpListener, TcpStream};

use crate::env::{Listener, Network};

/// The operating system's TCP, without Nagle's delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioNetwork;

/// A listening TCP socket.
#[derive(Debug)]
pub struct TokioListener(TcpListener);

impl Listener for TokioListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, String)> {
        let (stream, peer) = self.0.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, peer.to_string()))
    }

    fn local_addr(&self) -> io::Result<String> {
        Ok(self.0.local_addr()?.to_string())
    }
}

impl Network for TokioNetwork {
    type Stream = TcpStream;
    type Listener = TokioListener;

    fn bind(&self, address: &str) -> impl Future<Output = io::Result<TokioListener>> + Send {
        let address = address.to_owned();
        async move { Ok(TokioListener(TcpListener::bind(address).await?)) }
    }

    fn connect(&self, address: &str) -> impl Future<Output = io::Result<TcpStream>> + Send {
        let address = address.to_owned();
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }
}
