//! Where a transfer's bytes come from and go to.

use std::{future::Future, io};

use crate::memory::{Buffer, SegmentMemory};

/// Gives bytes.
pub(crate) trait Source: Send {
    /// Fills `to` with the bytes from `offset` of the transfer on.
    fn fill(&mut self, offset: u64, to: &mut [u8]) -> impl Future<Output = io::Result<()>> + Send;
}

/// Takes bytes.
pub(crate) trait Sink: Send {
    /// Takes the bytes from `offset` of the transfer on.
    fn store(&mut self, offset: u64, from: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

/// A stretch of a segment.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) memory: &'a SegmentMemory,
    pub(crate) start: u64,
}

impl Source for Place<'_> {
    async fn fill(&mut self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.memory.read(self.start + offset, to)
    }
}

impl Sink for Place<'_> {
    async fn store(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.memory.write(self.start + offset, from)
    }
}

/// Part of a caller's memory.
#[derive(Debug)]
pub(crate) struct Memory<'a>(pub(crate) &'a Buffer);

impl Source for Memory<'_> {
    async fn fill(&mut self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, to)
    }
}

impl Sink for Memory<'_> {
    async fn store(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.0.write(offset, from)
    }
}
