//! Memory that the library reads and writes, and items made of it.

use std::{ffi::c_void, fmt, ptr::NonNull};

/// A range of memory lent to the library: the one thing that the caller has to vouch for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; whoever made it vouches for what they stand for on any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The `len` bytes at `address`.
    ///
    /// # Safety
    ///
    /// From the first call that gets the buffer until I/O in it is over, the range is mapped, readable and
    /// writable, no Rust reference covers it, and nobody else writes to it. I/O is over when
    ///
    /// * the call has returned, and for a registered range the registration was taken back or the client
    ///   closed ([`Closing`](crate::Closing)); **except** that
    /// * after [`Code::TRANSFER_FAIL`](crate::Code::TRANSFER_FAIL) from a call that ran for 60 s or more
    ///   (Mooncake's own limit) it goes on until the client is closed.
    pub unsafe fn new(address: NonNull<u8>, len: usize) -> Self {
        Self { address, len }
    }

    /// Start of the range.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.address.as_ptr().cast()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No address: it differs from run to run.
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

/// One object and the memory that it comes from or goes to.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Name of the object.
    pub key: &'a str,
    /// For a put its bytes; for a get at least as many bytes as it has.
    pub buffer: Buffer,
}
