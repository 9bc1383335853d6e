//! A caller's memory, by address. The caller answers for its being there until the transfer has ended.

use std::{
    ffi::{CStr, c_char, c_void},
    slice,
    sync::Arc,
};

use fake_store::{
    CallerMemory,
    protocol::{ReplicaConfig, SoftPin},
};
use mooncake_sys::ReplicateConfig;

/// One piece of memory that a caller named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    address: usize,
    bytes: usize,
}

impl Piece {
    /// The memory at `buffer`; nothing if there should be some and it is null.
    pub(crate) fn new(buffer: *const c_void, bytes: usize) -> Option<Self> {
        (bytes == 0 || !buffer.is_null()).then_some(Self { address: buffer as usize, bytes })
    }

    pub(crate) fn len(self) -> usize {
        self.bytes
    }

    pub(crate) fn shared(self) -> Arc<dyn CallerMemory> {
        Arc::new(self)
    }

    /// A copy of its bytes.
    ///
    /// # Safety
    /// The memory is there.
    pub(crate) unsafe fn copy(self) -> Vec<u8> {
        if self.bytes == 0 {
            return Vec::new();
        }
        // SAFETY: the caller of the C function vouches for it.
        unsafe { slice::from_raw_parts(self.address as *const u8, self.bytes) }.to_vec()
    }
}

impl CallerMemory for Piece {
    fn parts(&self) -> Vec<(usize, u64)> {
        vec![(self.address, self.bytes as u64)]
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        let from = (self.address + offset as usize) as *const u8;
        // SAFETY: the range lies in the piece (the fake store checks it), for which the caller of the C
        // function vouches; `to` is memory of ours.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) }
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let to = (self.address + offset as usize) as *mut u8;
        // SAFETY: as above, the other way round.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }
}

/// A text from C; nothing if it is null. What is no UTF-8 is replaced.
///
/// # Safety
/// It is null or ends with a NUL.
pub(crate) unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller vouches for it.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// `count` values from C; nothing if the array is null.
///
/// # Safety
/// It is null or holds `count` values.
pub(crate) unsafe fn array<'a, T>(values: *const T, count: usize) -> Option<&'a [T]> {
    // SAFETY: the caller vouches for it.
    (!values.is_null()).then(|| unsafe { slice::from_raw_parts(values, count) })
}

/// What a put asks for; one replica without pins if it is null.
///
/// # Safety
/// It is null or valid, with as many preferred names as it says.
pub(crate) unsafe fn config(config: *const ReplicateConfig) -> ReplicaConfig {
    // SAFETY: the caller vouches for it.
    let Some(config) = (unsafe { config.as_ref() }) else { return ReplicaConfig::default() };
    // SAFETY: likewise.
    let names = unsafe { array(config.preferred_segments, config.preferred_segments_count) };
    // SAFETY: likewise; null entries are left out.
    let names = names.unwrap_or_default().iter().filter_map(|name| unsafe { text(*name) });
    ReplicaConfig {
        replica_num: config.replica_num as u64,
        soft_pin: if config.with_soft_pin != 0 { SoftPin::Enable } else { SoftPin::Preserve },
        hard_pin: config.with_hard_pin != 0,
        preferred_segments: names.collect(),
    }
}
