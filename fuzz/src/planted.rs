//! Bugs on purpose, one for each way in which a target can fail.
//!
//! `ci/fuzz` has to find them, on an empty corpus, before a run without findings means anything: a fuzzer that
//! does not see coverage, or whose limits are not in force, ends green on every target.

use std::hint::black_box;

use crate::Target;

/// The targets, by name. No test plays them.
pub const PLANTED: [(&str, Target); 3] =
    [("planted-panic", panics), ("planted-memory", allocates), ("planted-hang", hangs)];

/// Panics at a word that chance would hardly spell: it is found by what the comparisons report.
fn panics(bytes: &[u8]) {
    assert!(!bytes.starts_with(b"st1/~EPD"), "the planted bug");
}

/// Believes a length that the input announces.
fn allocates(bytes: &[u8]) {
    let Some(len) = bytes.strip_prefix(b"size") else { return };
    if let Some(len) = len.first_chunk() {
        black_box(Vec::<u8>::with_capacity(u32::from_le_bytes(*len) as usize));
    }
}

/// Waits for a byte that the input does not have.
fn hangs(bytes: &[u8]) {
    if bytes.starts_with(b"wait") {
        while !black_box(bytes).contains(&0xFF) {}
    }
}
