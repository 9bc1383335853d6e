//! One connection: calls or transfers, one after the other, until the peer goes or sends nonsense.

use std::io;

use springtide::env::{Clock, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    faults::Point,
    protocol::{Code, Request},
    service::{Answer, Broken, MasterService, NodeService, Sink, Source, Tag},
    transport::wire::{self, Ack, NodeRequest, ReadHead},
};

/// Answers a client's calls, one after the other.
pub(super) async fn serve_master<C: Clock>(
    master: &MasterService<C>,
    mut stream: impl Stream,
) -> io::Result<()> {
    while let Some(request) = wire::receive::<Request>(&mut stream).await? {
        match master.call(request).await {
            Answer::Reply(reply) => wire::send(&mut stream, &reply).await?,
            Answer::Disconnected => return Ok(()),
            Answer::Silent => return until_closed(&mut stream).await,
        }
    }
    Ok(())
}

/// Gives and takes the bytes of a client's transfers, one after the other.
pub(super) async fn serve_node<C: Clock>(
    node: &NodeService<C>,
    mut stream: impl Stream,
) -> io::Result<()> {
    while let Some(request) = wire::receive::<NodeRequest>(&mut stream).await? {
        let (tag, chunk) = request.tag()?;
        let ended = if tag.point == Point::Write {
            take(node, &mut stream, tag, chunk).await
        } else {
            give(node, &mut stream, tag).await
        };
        match ended {
            Ok(()) => {}
            Err(Broken::Silent) => return until_closed(&mut stream).await,
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Takes a put's bytes. The connection cannot go on after a failure: its bytes are still under way.
async fn take<C: Clock>(
    node: &NodeService<C>,
    stream: &mut impl Stream,
    tag: Tag,
    chunk: usize,
) -> Result<(), Broken> {
    let moved = match node.open(tag.clone()).await {
        Ok(opened) => {
            let mut source = Chunks { stream, chunk, bytes: tag.bytes };
            node.carry(opened, &mut source, &mut node.place(&tag), false).await
        }
        Err(broken) => Err(broken),
    };
    let (ack, ended) = match moved {
        Ok(_) => (Ack::Done, Ok(())),
        Err(Broken::Code(code)) => (Ack::Failed(code), Err(Broken::Code(code))),
        Err(broken) => return Err(broken),
    };
    ack.send(stream).await.map_err(|_| Broken::Disconnected)?;
    ended
}

/// Gives a get's bytes.
async fn give<C: Clock>(
    node: &NodeService<C>,
    stream: &mut impl Stream,
    tag: Tag,
) -> Result<(), Broken> {
    let gone = |_| Broken::Disconnected;
    match node.open(tag.clone()).await {
        Ok(opened) => {
            let head: ReadHead = Ok(opened.bytes);
            wire::send(stream, &head).await.map_err(gone)?;
            let bytes = opened.bytes;
            let mut sink = Outgoing { stream, done: 0 };
            let moved = node.carry(opened, &mut node.place(&tag), &mut sink, true).await;
            let ack = match moved {
                Ok(_) => Ack::Done,
                Err(Broken::Code(code)) if sink.done == bytes => Ack::Failed(code),
                // In the middle a failure can only be told by ending the connection.
                Err(broken) => return Err(broken),
            };
            ack.send(stream).await.map_err(gone)
        }
        Err(Broken::Code(code)) => {
            let head: ReadHead = Err(Code(code));
            wire::send(stream, &head).await.map_err(gone)
        }
        Err(broken) => Err(broken),
    }
}

/// A writer's chunks, acknowledged one by one.
#[derive(Debug)]
struct Chunks<'a, S> {
    stream: &'a mut S,
    chunk: usize,
    bytes: u64,
}

impl<S: Stream> Source for Chunks<'_, S> {
    async fn fill(&mut self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        // Acknowledged as they come: a writer's window may be shorter than what is asked for here.
        let (chunk, mut at, mut rest) = (self.chunk as u64, offset, to);
        while !rest.is_empty() {
            let boundary = ((at / chunk + 1) * chunk).min(self.bytes);
            let (part, after) = rest.split_at_mut(rest.len().min((boundary - at) as usize));
            self.stream.read_exact(part).await?;
            at += part.len() as u64;
            rest = after;
            if at == boundary {
                Ack::Chunk.send(self.stream).await?;
            }
        }
        Ok(())
    }
}

/// A reader's connection.
#[derive(Debug)]
struct Outgoing<'a, S> {
    stream: &'a mut S,
    done: u64,
}

impl<S: Stream> Sink for Outgoing<'_, S> {
    async fn store(&mut self, _offset: u64, from: &[u8]) -> io::Result<()> {
        self.stream.write_all(from).await?;
        self.done += from.len() as u64;
        self.stream.flush().await
    }
}

/// Says nothing and waits until the peer gives up.
async fn until_closed(stream: &mut impl Stream) -> io::Result<()> {
    let mut ignored = [0; 1024];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
