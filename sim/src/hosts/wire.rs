//! What the client and the engines say to each other: one JSON frame each way over a fresh connection, as an
//! HTTP client would; closing it before the answer is the client's abort.

use std::io;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::plan::Item;

/// The port on which engines listen.
pub const ENGINE_PORT: u16 = 8000;
/// The longest frame.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// A request as an engine sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The client's number for it.
    pub request: u32,
    /// Which attempt of the client this is.
    pub attempt: u32,
    /// Its items.
    pub items: Vec<Item>,
    /// Steps to decode after the prefill.
    pub decode_steps: u32,
    /// Preempt it once.
    pub preempt: bool,
    /// Serve it without what the engine's own cache holds for nobody.
    pub fresh: bool,
}

impl Job {
    /// The engine's name for the request; each attempt is another request to it.
    pub fn name(&self) -> String {
        format!("r{}.{}", self.request, self.attempt)
    }
}

/// An engine's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The client's number for the request.
    pub request: u32,
}

/// Sends a frame.
///
/// # Errors
/// As the stream reports them.
pub async fn send<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend(body);
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Receives a frame.
///
/// # Errors
/// As the stream reports them; `InvalidData` for what is not a frame.
pub async fn receive<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let len = stream.read_u32().await?;
    if len > FRAME_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}
