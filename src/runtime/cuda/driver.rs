//! The calls of CUDA's driver that the device makes, as a trait: [`Libcuda`](super::Libcuda) makes them for real,
//! a fake that models streams, events and late kernels stands in for it in tests.
//!
//! Handles are plain numbers, as they come from outside (PyTorch hands out streams as integers). No call relies
//! on a current context, of this thread or another: each says which it is for.

#![expect(unsafe_code, reason = "declares the calls that take memory by its address")]

/// A CUDA device, by the driver's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub i32);

/// A device's primary context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Context(pub u64);

/// A stream: work of a device in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream(pub u64);

/// An event: a point in a stream's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event(pub u64);

/// What the driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number.
    pub ordinal: Ordinal,
    /// Its name, such as `NVIDIA A100-SXM4-80GB`.
    pub name: String,
    /// Bytes of its memory.
    pub bytes: u64,
    /// Its place on the PCI bus as sysfs names it, such as `0000:3b:00.0`.
    pub pci: String,
}

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no driver library.
    #[error("libcuda.so.1 cannot be loaded: this machine or container has no NVIDIA driver")]
    Absent,
    /// The driver refused.
    #[error("{call}: {name} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// The driver's number.
        code: i32,
        /// The driver's name for it.
        name: String,
    },
}

impl CudaError {
    /// The driver's number; 0 without a driver.
    pub fn code(&self) -> i32 {
        match self {
            Self::Absent => 0,
            Self::Call { code, .. } => *code,
        }
    }
}

/// What a call of the driver gives.
pub type Result<T> = std::result::Result<T, CudaError>;

/// The calls. None of them blocks until work of a device is done.
pub trait Driver: Clone + Send + Sync + 'static {
    /// Takes a share in the device's primary context, the one that PyTorch uses, too.
    ///
    /// # Errors
    /// The driver's, as with every call here.
    fn retain(&self, ordinal: Ordinal) -> Result<Context>;

    /// Gives the share back.
    ///
    /// # Errors
    /// The driver's.
    fn release(&self, ordinal: Ordinal) -> Result<()>;

    /// A stream that does not wait for the default stream, nor that for it.
    ///
    /// # Errors
    /// The driver's.
    fn create_stream(&self, context: Context) -> Result<Stream>;

    /// Ends a stream. Its work must be over.
    ///
    /// # Errors
    /// The driver's.
    fn destroy_stream(&self, context: Context, stream: Stream) -> Result<()>;

    /// An event that nothing was recorded in: it has come.
    ///
    /// # Errors
    /// The driver's.
    fn create_event(&self, context: Context) -> Result<Event>;

    /// Ends an event. What waits for it goes on waiting for what was recorded.
    ///
    /// # Errors
    /// The driver's.
    fn destroy_event(&self, context: Context, event: Event) -> Result<()>;

    /// The event comes when all work that `stream` has so far is done.
    ///
    /// # Errors
    /// The driver's.
    fn record(&self, context: Context, event: Event, stream: Stream) -> Result<()>;

    /// Work that `stream` gets from now on begins after the event.
    ///
    /// # Errors
    /// The driver's.
    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<()>;

    /// Whether the event has come.
    ///
    /// # Errors
    /// The driver's: also that of work before the event, after which the context is of no use.
    fn query(&self, context: Context, event: Event) -> Result<bool>;

    /// Adds to `stream` a copy of `len` bytes of device memory at `from` to host memory.
    ///
    /// # Errors
    /// The driver's; nothing is copied then.
    ///
    /// # Safety
    /// Until the stream has done it, both ranges must stay allocated, and nothing else may use the host's.
    unsafe fn copy_out(
        &self,
        context: Context,
        stream: Stream,
        from: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<()>;

    /// Adds to `stream` a copy of `len` bytes of host memory at `from` to device memory.
    ///
    /// # Errors
    /// The driver's; nothing is copied then.
    ///
    /// # Safety
    /// Until the stream has done it, both ranges must stay allocated, and nothing may write the host's.
    unsafe fn copy_in(
        &self,
        context: Context,
        stream: Stream,
        from: *const u8,
        to: u64,
        len: usize,
    ) -> Result<()>;

    /// Locks pages of existing memory for the copies of every context of the process.
    ///
    /// # Errors
    /// The driver's; nothing is locked then.
    ///
    /// # Safety
    /// The range must be whole pages of one mapping, which stays until [`Driver::unlock_pages`].
    unsafe fn lock_pages(&self, context: Context, base: *mut u8, len: usize) -> Result<()>;

    /// Undoes [`Driver::lock_pages`].
    ///
    /// # Errors
    /// The driver's; the mapping must stay then.
    ///
    /// # Safety
    /// `base` was locked, and no copy uses the range.
    unsafe fn unlock_pages(&self, context: Context, base: *mut u8) -> Result<()>;
}
