//! The calls of one copy, in the order that makes it right.
//!
//! What can fail before work is on its way comes first: from then on only an event tells when memory is free.

#![expect(unsafe_code, reason = "copies to and from memory by its address")]

use std::sync::Arc;

use super::{
    driver::{CudaError, Driver, Result, Stream},
    lane::{Lane, Mark},
    tensor::{CudaEvent, CudaTensor},
};
use crate::pool::{Extent, Transfer, View};

/// What became of the calls.
pub(super) enum Started<D: Driver> {
    /// No work was added: the memory is free.
    Refused(CudaError),
    /// Work was added; the memory is free when `done` has come. The error is what kept the rest from being
    /// added.
    Running { done: Mark<D>, error: Option<CudaError> },
    /// Work was added, and nothing will tell when it is done.
    Untold(CudaError),
}

/// A part of a copy: where it is in the region and in the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    region: u64,
    tensor: u64,
    len: u64,
}

/// Copies the tensor into `dest` from byte `offset` of it on, after `ready`. The caller keeps all of them until
/// the end, and has checked that the lengths agree.
pub(super) fn start_out<D: Driver>(
    lane: &Arc<Lane<D>>,
    tensor: &CudaTensor,
    ready: &CudaEvent<D>,
    dest: &Transfer,
    offset: u64,
    chunk: u64,
) -> Started<D> {
    let base = dest.region().base();
    let copy = |piece: Piece| {
        let to = base.wrapping_add(piece.region as usize);
        let (from, len) = (tensor.address + piece.tensor, piece.len as usize);
        // SAFETY: the piece lies in an extent of `dest`, which is in flight, so nobody else uses it; and in the
        // tensor, whose maker has vouched for it. The caller keeps both until the copy is over.
        unsafe { lane.driver.copy_out(lane.context, lane.out, from, to, len) }
    };
    let pieces = pieces(dest.extents(), offset, chunk);
    let done = match before(lane, ready, lane.out) {
        Ok(done) => done,
        Err(error) => return Started::Refused(error),
    };
    match add(pieces, copy) {
        Added::None(error) => Started::Refused(error),
        Added::Some(error) => running(done, lane.out, error),
    }
}

/// Copies what `source` has from byte `offset` on into the tensor, after `free`, and holds the tensor's stream
/// back until that is done.
pub(super) fn start_in<D: Driver>(
    lane: &Arc<Lane<D>>,
    tensor: &CudaTensor,
    free: &CudaEvent<D>,
    source: &View,
    offset: u64,
    chunk: u64,
) -> Started<D> {
    let base = source.region().base();
    let copy = |piece: Piece| {
        let from = base.wrapping_add(piece.region as usize);
        let (to, len) = (tensor.address + piece.tensor, piece.len as usize);
        // SAFETY: the piece lies in an extent of the view, inside its mapping, whose bytes are raw memory to
        // everybody; and in the tensor, whose maker has vouched for it. The caller keeps both until the copy is
        // over, and looks at the view's generation afterwards.
        unsafe { lane.driver.copy_in(lane.context, lane.back, from, to, len) }
    };
    let pieces = pieces(source.extents(), offset, chunk);
    let done = match before(lane, free, lane.back) {
        Ok(done) => done,
        Err(error) => return Started::Refused(error),
    };
    let error = match add(pieces, copy) {
        Added::None(error) => return Started::Refused(error),
        Added::Some(error) => error,
    };
    match running(done, lane.back, error) {
        Started::Running { done, error } => {
            let held = done.hold(lane, tensor.stream);
            Started::Running { done, error: error.or(held.err()) }
        }
        other => other,
    }
}

/// Makes the event of a copy's end, and our stream wait for what must come first.
fn before<D: Driver>(lane: &Arc<Lane<D>>, first: &CudaEvent<D>, stream: Stream) -> Result<Mark<D>> {
    let done = Mark::new(lane)?;
    if let Some(first) = &first.0 {
        first.hold(lane, stream)?;
    }
    Ok(done)
}

enum Added {
    /// Nothing: the first piece was refused.
    None(CudaError),
    /// Something, all of it if there is no error.
    Some(Option<CudaError>),
}

fn add(pieces: impl Iterator<Item = Piece>, copy: impl Fn(Piece) -> Result<()>) -> Added {
    for (number, piece) in pieces.enumerate() {
        match copy(piece) {
            Ok(()) => {}
            Err(error) if number == 0 => return Added::None(error),
            Err(error) => return Added::Some(Some(error)),
        }
    }
    Added::Some(None)
}

fn running<D: Driver>(done: Mark<D>, stream: Stream, error: Option<CudaError>) -> Started<D> {
    match done.record(stream) {
        Ok(()) => Started::Running { done, error },
        Err(untold) => Started::Untold(untold),
    }
}

/// The parts of extents from byte `offset` of them on that cross no multiple of `chunk` in the region.
fn pieces(extents: &[Extent], offset: u64, chunk: u64) -> impl Iterator<Item = Piece> {
    let (mut skip, mut tensor) = (offset, 0);
    let parts = extents.iter().filter_map(move |extent| {
        let before = skip.min(extent.len);
        skip -= before;
        let part = Extent { offset: extent.offset + before, len: extent.len - before };
        (part.len > 0).then_some(part)
    });
    parts
        .flat_map(move |part| {
            let mut at = 0;
            let split = std::iter::from_fn(move || {
                let region = part.offset + at;
                let len = (part.len - at).min(chunk - region % chunk);
                at += len;
                (len > 0).then_some((region, len))
            });
            // Bound here, so that the running offset is advanced in order.
            split.collect::<Vec<_>>()
        })
        .map(move |(region, len)| {
            let piece = Piece { region, tensor, len };
            tensor += len;
            piece
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(extents: &[(u64, u64)], offset: u64, chunk: u64) -> Vec<(u64, u64, u64)> {
        let extents: Vec<Extent> =
            extents.iter().map(|(offset, len)| Extent { offset: *offset, len: *len }).collect();
        pieces(&extents, offset, chunk).map(|p| (p.region, p.tensor, p.len)).collect()
    }

    #[test]
    fn pieces_skip_the_header_and_cross_no_chunk() {
        assert_eq!(split(&[(100, 50)], 0, 1000), [(100, 0, 50)]);
        assert_eq!(split(&[(100, 50), (300, 20)], 64, 1000), [(314, 0, 6)]);
        assert_eq!(split(&[(100, 50), (300, 20)], 10, 1000), [(110, 0, 40), (300, 40, 20)]);
        assert_eq!(
            split(&[(90, 220)], 0, 100),
            [(90, 0, 10), (100, 10, 100), (200, 110, 100), (300, 210, 10)]
        );
        assert_eq!(split(&[(100, 50)], 50, 1000), []);
    }
}
