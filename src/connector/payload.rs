//! Payload checksums over pool memory, computed in slices so that a large item delays nothing else.

use super::object::{HEADER_BYTES, PayloadChecksum};

/// Bytes between two points where other tasks may run: 1 MiB is about 50-100 µs of hashing.
const SLICE: usize = 1 << 20;

/// Checksum of the object's bytes after its header.
pub(super) async fn checksum<'a, I>(segments: impl Fn() -> I) -> u64
where
    I: Iterator<Item = &'a [u8]> + Send,
{
    let mut checksum = PayloadChecksum::default();
    let mut skip = HEADER_BYTES as usize;
    for segment in segments() {
        let from = skip.min(segment.len());
        skip -= from;
        for slice in segment[from..].chunks(SLICE) {
            checksum.update(slice);
            if slice.len() == SLICE {
                tokio::task::yield_now().await;
            }
        }
    }
    checksum.finish()
}
