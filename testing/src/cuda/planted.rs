//! Devices with a known bug, as a driver that leaves out or changes one call: what a device would do that forgot
//! it. The model must report each.

use springtide::runtime::cuda::{Context, Driver, Event, Ordinal, Result, Stream};

use super::FakeCuda;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Nothing.
    None,
    /// Our streams wait for no event of the engine's.
    NoWaitBefore,
    /// The engine's streams do not wait for copies.
    NoWaitAfter,
    /// Every copy is taken for done at once.
    TakenForDone,
    /// Copies run on the default stream.
    DefaultStream,
    /// All devices are taken for device 0.
    FirstDevice,
}

/// A driver with a bug.
#[derive(Clone)]
pub struct Planted {
    cuda: FakeCuda,
    bug: Bug,
    engine: Stream,
}

impl Planted {
    /// `cuda` with a bug; `engine` is the engine's stream.
    pub fn new(cuda: FakeCuda, bug: Bug, engine: Stream) -> Self {
        Self { cuda, bug, engine }
    }

    fn device(&self, ordinal: Ordinal) -> Ordinal {
        if self.bug == Bug::FirstDevice { Ordinal(0) } else { ordinal }
    }
}

impl Driver for Planted {
    fn retain(&self, ordinal: Ordinal) -> Result<Context> {
        self.cuda.retain(self.device(ordinal))
    }

    fn release(&self, ordinal: Ordinal) -> Result<()> {
        self.cuda.release(self.device(ordinal))
    }

    fn create_stream(&self, context: Context) -> Result<Stream> {
        if self.bug == Bug::DefaultStream {
            Ok(Stream(0))
        } else {
            self.cuda.create_stream(context)
        }
    }

    fn destroy_stream(&self, context: Context, stream: Stream) -> Result<()> {
        if self.bug == Bug::DefaultStream {
            Ok(())
        } else {
            self.cuda.destroy_stream(context, stream)
        }
    }

    fn create_event(&self, context: Context) -> Result<Event> {
        self.cuda.create_event(context)
    }

    fn destroy_event(&self, context: Context, event: Event) -> Result<()> {
        self.cuda.destroy_event(context, event)
    }

    fn record(&self, context: Context, event: Event, stream: Stream) -> Result<()> {
        self.cuda.record(context, event, stream)
    }

    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<()> {
        let forgotten = match self.bug {
            Bug::NoWaitBefore => stream != self.engine,
            Bug::NoWaitAfter => stream == self.engine,
            _ => false,
        };
        if forgotten { Ok(()) } else { self.cuda.wait(context, stream, event) }
    }

    fn query(&self, context: Context, event: Event) -> Result<bool> {
        if self.bug == Bug::TakenForDone { Ok(true) } else { self.cuda.query(context, event) }
    }

    unsafe fn copy_out(
        &self,
        context: Context,
        stream: Stream,
        from: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<()> {
        // SAFETY: as for this call.
        unsafe { self.cuda.copy_out(context, stream, from, to, len) }
    }

    unsafe fn copy_in(
        &self,
        context: Context,
        stream: Stream,
        from: *const u8,
        to: u64,
        len: usize,
    ) -> Result<()> {
        // SAFETY: as for this call.
        unsafe { self.cuda.copy_in(context, stream, from, to, len) }
    }

    unsafe fn lock_pages(&self, context: Context, base: *mut u8, len: usize) -> Result<()> {
        // SAFETY: as for this call.
        unsafe { self.cuda.lock_pages(context, base, len) }
    }

    unsafe fn unlock_pages(&self, context: Context, base: *mut u8) -> Result<()> {
        // SAFETY: as for this call.
        unsafe { self.cuda.unlock_pages(context, base) }
    }
}
