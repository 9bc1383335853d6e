//! The data types of `store_c.h`.
//!
//! Their layout is the contract: it is asserted at compile time below, and against a C compiler's view
//! of the same declarations in `tests/echo.rs`.

use std::{
    ffi::{c_char, c_int},
    marker::{PhantomData, PhantomPinned},
    ptr,
};

/// What a store handle points to. Only the library looks inside, so it exists behind `*mut Store` only.
#[repr(C)]
pub struct Store {
    _opaque: [u8; 0],
    // Neither `Send`, `Sync` nor `Unpin` by itself: what may be shared is for the safe layer to say.
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// How a put is replicated (`mooncake_replicate_config`).
///
/// A null pointer in its place means one replica without pins, the same as [`Default`]. All zeros is
/// **not** a default: a `replica_num` of 0 is refused with -600.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReplicateConfig {
    /// Number of copies. The store keeps fewer if there are fewer segments; 0 is refused with -600.
    pub replica_num: usize,
    /// Non-zero: evicted only when nothing without a pin is left (the master's soft pin time applies).
    pub with_soft_pin: c_int,
    /// Non-zero: never evicted.
    pub with_hard_pin: c_int,
    /// `preferred_segments_count` names of segments to place copies on first; null entries are skipped,
    /// unknown names ignored. May be null when the count is 0.
    pub preferred_segments: *const *const c_char,
    /// Number of entries in `preferred_segments`.
    pub preferred_segments_count: usize,
}

impl Default for ReplicateConfig {
    /// One replica, no pins, no preference.
    fn default() -> Self {
        Self {
            replica_num: 1,
            with_soft_pin: 0,
            with_hard_pin: 0,
            preferred_segments: ptr::null(),
            preferred_segments_count: 0,
        }
    }
}

/// The layout on LP64, where the C library was measured.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{align_of, offset_of, size_of};

    assert!(size_of::<ReplicateConfig>() == 32);
    assert!(align_of::<ReplicateConfig>() == 8);
    assert!(offset_of!(ReplicateConfig, replica_num) == 0);
    assert!(offset_of!(ReplicateConfig, with_soft_pin) == 8);
    assert!(offset_of!(ReplicateConfig, with_hard_pin) == 12);
    assert!(offset_of!(ReplicateConfig, preferred_segments) == 16);
    assert!(offset_of!(ReplicateConfig, preferred_segments_count) == 24);
};
