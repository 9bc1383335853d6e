//! A CUDA driver without a card: it models streams, events and late kernels, and reports what is out of order.
//!
//! | module | what it is |
//! |---|---|
//! | `model` | streams, events, memory, and what comes before what |
//! | `planted` | drivers that leave out a call: each must be reported |

#![expect(unsafe_code, reason = "copies to and from the memory that a copy names by its address")]

mod model;
mod planted;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use springtide::{
    env::TensorSpec,
    runtime::cuda::{Context, CudaTensor, Driver, Event, Ordinal, Result, Stream},
};

use self::model::{Access, FIRST_CONTEXT, Model, Move, Space, Work};
pub use self::planted::{Bug, Planted};

/// The driver. Clones share it.
#[derive(Clone, Default)]
pub struct FakeCuda(Arc<Mutex<Model>>);

/// Memory of a device; dropping it frees it.
pub struct Block {
    cuda: FakeCuda,
    address: u64,
}

impl Block {
    /// Where it is.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The tensor that it holds, whose readers run on `stream`.
    ///
    /// # Panics
    /// If it is of another length.
    pub fn tensor(self, spec: TensorSpec, stream: Stream) -> CudaTensor {
        let (address, cuda) = (self.address, self.cuda.clone());
        let (ordinal, len) = {
            let mut model = cuda.model();
            let (ordinal, bytes) = model.block(address);
            (*ordinal, bytes.len() as u64)
        };
        assert_eq!(len, spec.bytes());
        // SAFETY: the block is kept, and is that long; the driver of these addresses is a model.
        unsafe { CudaTensor::new(spec, address, ordinal, stream, self) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.cuda.model().free_block(self.address);
    }
}

/// A kernel that goes on until it is let go.
#[derive(Clone, Copy, Debug)]
pub struct LateKernel(u64);

impl FakeCuda {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of an engine, which has a share in the device's context, too.
    pub fn engine_stream(&self, ordinal: Ordinal) -> Stream {
        let mut model = self.model();
        *model.shares.entry(ordinal).or_default() += 1;
        model.add_stream(ordinal)
    }

    /// Memory of a device with these bytes.
    pub fn allocate(&self, ordinal: Ordinal, bytes: Vec<u8>) -> Block {
        Block { address: self.model().add_block(ordinal, bytes), cuda: self.clone() }
    }

    /// What a block holds now.
    pub fn bytes(&self, address: u64) -> Vec<u8> {
        self.model().block(address).1.clone()
    }

    /// Adds a late kernel that fills a whole block to an engine's stream.
    pub fn fill(&self, ordinal: Ordinal, stream: Stream, address: u64, byte: u8) -> LateKernel {
        self.kernel(ordinal, stream, address, Some(byte))
    }

    /// Adds a late kernel that reads a whole block.
    pub fn read(&self, ordinal: Ordinal, stream: Stream, address: u64) -> LateKernel {
        self.kernel(ordinal, stream, address, None)
    }

    fn kernel(&self, ordinal: Ordinal, stream: Stream, at: u64, fill: Option<u8>) -> LateKernel {
        let mut model = self.model();
        let (number, len) = (model.number(), model.block(at).1.len() as u64);
        let access = Access { space: Space::Device(ordinal), at, len, writes: fill.is_some() };
        let work = Work::Kernel { number, fill: fill.map(|byte| (at, len, byte)) };
        let what = if fill.is_some() { "a kernel that writes" } else { "a kernel that reads" };
        let added = model.add(what, context(ordinal), stream, work, vec![access]);
        added.expect("a stream of this driver");
        LateKernel(number)
    }

    /// Lets a kernel end when its turn comes.
    pub fn let_go(&self, kernel: LateKernel) {
        self.model().let_go(kernel.0);
    }

    /// Does all work that waits for nothing late.
    pub fn run(&self) {
        let mut model = self.model();
        while let Some(done) = model.step() {
            match done {
                Some(Move::Out { bytes, to }) => {
                    let to = to as *mut u8;
                    // SAFETY: whoever added the copy keeps the range until it is done, and lets nobody else use
                    // it.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
                }
                Some(Move::In { from, to, len }) => {
                    let Some((_, bytes)) = model.place(to) else { continue };
                    let bytes = &mut bytes[..len];
                    // SAFETY: as above; the model's memory is no part of the range.
                    unsafe {
                        std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), len)
                    }
                }
                None => {}
            }
        }
    }

    /// Makes a call fail with `code`, after `before` others of its kind.
    pub fn fail(&self, call: &'static str, before: u32, code: i32) {
        self.model().failures.insert(call, (before, code));
    }

    /// What was out of order so far.
    pub fn violations(&self) -> Vec<String> {
        self.model().violations.clone()
    }

    /// Lengths of the locked ranges, by their addresses.
    pub fn locked(&self) -> Vec<u64> {
        self.model().locked()
    }

    /// Shares that anybody has in the device's context.
    pub fn shares(&self, ordinal: Ordinal) -> u32 {
        self.model().shares.get(&ordinal).copied().unwrap_or(0)
    }
}

fn context(ordinal: Ordinal) -> Context {
    Context((FIRST_CONTEXT + ordinal.0) as u64)
}

fn device_access(model: &mut Model, at: u64, len: usize, writes: bool) -> Access {
    let ordinal = model.place(at).map_or(Ordinal(-1), |(ordinal, _)| ordinal);
    Access { space: Space::Device(ordinal), at, len: len as u64, writes }
}

fn host_access(at: usize, len: usize, writes: bool) -> Access {
    Access { space: Space::Host, at: at as u64, len: len as u64, writes }
}

impl Driver for FakeCuda {
    fn retain(&self, ordinal: Ordinal) -> Result<Context> {
        let mut model = self.model();
        model.fails("retain")?;
        *model.shares.entry(ordinal).or_default() += 1;
        Ok(context(ordinal))
    }

    fn release(&self, ordinal: Ordinal) -> Result<()> {
        self.model().release(ordinal)
    }

    fn create_stream(&self, context: Context) -> Result<Stream> {
        let mut model = self.model();
        model.fails("create_stream")?;
        let ordinal = model.current("cuStreamCreate", context)?;
        Ok(model.add_stream(ordinal))
    }

    fn destroy_stream(&self, context: Context, stream: Stream) -> Result<()> {
        self.model().end_stream(context, stream)
    }

    fn create_event(&self, context: Context) -> Result<Event> {
        let mut model = self.model();
        model.fails("create_event")?;
        model.current("cuEventCreate", context)?;
        Ok(model.add_event())
    }

    fn destroy_event(&self, context: Context, event: Event) -> Result<()> {
        let mut model = self.model();
        model.current("cuEventDestroy", context)?;
        model.end_event(event)
    }

    fn record(&self, context: Context, event: Event, stream: Stream) -> Result<()> {
        let mut model = self.model();
        model.fails("record")?;
        model.record(context, event, stream)
    }

    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<()> {
        let mut model = self.model();
        model.fails("wait")?;
        model.wait(context, stream, event)
    }

    fn query(&self, context: Context, event: Event) -> Result<bool> {
        let mut model = self.model();
        model.fails("query")?;
        model.current("cuEventQuery", context)?;
        model.query(event)
    }

    unsafe fn copy_out(
        &self,
        context: Context,
        stream: Stream,
        from: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<()> {
        let mut model = self.model();
        let (call, to) = ("copy out", to as usize);
        model.fails("copy_out")?;
        model.check_crossing(call, to as u64, len as u64)?;
        let accesses =
            vec![device_access(&mut model, from, len, false), host_access(to, len, true)];
        model.add(call, context, stream, Work::CopyOut { from, to, len }, accesses)
    }

    unsafe fn copy_in(
        &self,
        context: Context,
        stream: Stream,
        from: *const u8,
        to: u64,
        len: usize,
    ) -> Result<()> {
        let mut model = self.model();
        let (call, from) = ("copy in", from as usize);
        model.fails("copy_in")?;
        model.check_crossing(call, from as u64, len as u64)?;
        let accesses =
            vec![host_access(from, len, false), device_access(&mut model, to, len, true)];
        model.add(call, context, stream, Work::CopyIn { from, to, len }, accesses)
    }

    unsafe fn lock_pages(&self, context: Context, base: *mut u8, len: usize) -> Result<()> {
        let mut model = self.model();
        model.fails("lock_pages")?;
        model.current("cuMemHostRegister", context)?;
        model.lock(base as u64, len as u64)
    }

    unsafe fn unlock_pages(&self, context: Context, base: *mut u8) -> Result<()> {
        let mut model = self.model();
        model.current("cuMemHostUnregister", context)?;
        model.unlock(base as u64)
    }
}
