//! The bytes that are moved: a segment's memory on the store's side, a buffer on the caller's.
//!
//! Both are written and read at any time by whoever has an address, without asking who owns what lies
//! there: that is how a card behaves, and how late I/O does its damage.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use memmap2::MmapMut;
use springtide::pool::{Allocation, Region};

/// Locks a mutex whose data is valid after any panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of one segment: a mapping of its own, so that only what is written takes memory and time.
#[derive(Debug)]
pub(crate) struct SegmentMemory(Mutex<MmapMut>);

impl SegmentMemory {
    /// # Panics
    /// When the system has no room for it.
    pub(crate) fn new(bytes: u64) -> Self {
        let map = MmapMut::map_anon(bytes as usize);
        Self(Mutex::new(map.unwrap_or_else(|error| panic!("mapping {bytes} bytes: {error}"))))
    }

    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let memory = lock(&self.0);
        to.copy_from_slice(&memory[range(offset, to.len(), memory.len())?]);
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut memory = lock(&self.0);
        let range = range(offset, from.len(), memory.len())?;
        memory[range].copy_from_slice(from);
        Ok(())
    }

    /// Whether `bytes` bytes at `offset` lie in it.
    pub(crate) fn contains(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= lock(&self.0).len() as u64)
    }
}

fn range(offset: u64, bytes: usize, len: usize) -> io::Result<std::ops::Range<usize>> {
    let end = offset.checked_add(bytes as u64).filter(|end| *end <= len as u64);
    let out_of_range = || {
        let text = format!("expected a range in {len} bytes, got {bytes} at {offset}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    end.map(|end| offset as usize..end as usize).ok_or_else(out_of_range)
}

/// Memory of a caller that is not a pool's: what the calls with Mooncake's own names take.
///
/// It is read and written at any time until the transfer has ended, after the call's return too if the call
/// said -800 at the transfer limit. Whoever implements it answers for that.
pub trait CallerMemory: fmt::Debug + Send + Sync {
    /// Its parts in order: address and length of each. Addresses matter to registration only.
    fn parts(&self) -> Vec<(usize, u64)>;

    /// Reads `to.len()` bytes from byte `offset` of the whole on; they lie in it.
    fn read(&self, offset: u64, to: &mut [u8]);

    /// Writes `from` from byte `offset` of the whole on; it fits.
    fn write(&self, offset: u64, from: &[u8]);
}

/// A caller's memory that a transfer reads or fills. Holds no right to it: the caller's lease does that.
#[derive(Clone, Debug)]
pub(crate) enum Buffer {
    /// Pieces of a registered region.
    Region { region: Arc<Region>, pieces: Arc<[(u64, u64)]> },
    /// What a caller of Mooncake's own calls named.
    Caller(Arc<dyn CallerMemory>),
    /// The client's own staging memory.
    Owned { bytes: Arc<Mutex<Vec<u8>>>, parts: Arc<[u64]> },
}

impl Buffer {
    /// The memory of an allocation.
    pub(crate) fn of(allocation: &Allocation) -> Self {
        let pieces = allocation.extents().iter().map(|extent| (extent.offset, extent.len));
        Self::Region { region: allocation.region().clone(), pieces: pieces.collect() }
    }

    /// Staging memory with these bytes.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        let parts = Arc::from([bytes.len() as u64]);
        Self::Owned { bytes: Arc::new(Mutex::new(bytes)), parts }
    }

    /// Lengths of its parts, in order.
    pub(crate) fn parts(&self) -> Vec<u64> {
        match self {
            Self::Region { pieces, .. } => pieces.iter().map(|(_, len)| *len).collect(),
            Self::Caller(memory) => memory.parts().into_iter().map(|(_, len)| len).collect(),
            Self::Owned { parts, .. } => parts.to_vec(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.parts().iter().sum()
    }

    /// Reads `to.len()` bytes from byte `offset` on.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Owned { bytes, .. } => {
                let bytes = lock(bytes);
                to.copy_from_slice(&bytes[range(offset, to.len(), bytes.len())?]);
            }
            Self::Caller(memory) => {
                range(offset, to.len(), self.len() as usize)?;
                memory.read(offset, to);
            }
            Self::Region { region, pieces } => {
                let mut rest = to;
                for (at, len) in cut(pieces, offset, rest.len() as u64) {
                    let (part, after) = rest.split_at_mut(len as usize);
                    region.dma_read(at, part);
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// Writes `from` from byte `offset` on.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        match self {
            Self::Owned { bytes, .. } => {
                let mut bytes = lock(bytes);
                let range = range(offset, from.len(), bytes.len())?;
                bytes[range].copy_from_slice(from);
            }
            Self::Caller(memory) => {
                range(offset, from.len(), self.len() as usize)?;
                memory.write(offset, from);
            }
            Self::Region { region, pieces } => {
                let mut rest = from;
                for (at, len) in cut(pieces, offset, rest.len() as u64) {
                    let (part, after) = rest.split_at(len as usize);
                    region.dma_write(at, part);
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// Takes the bytes out of staging memory; copies those of a region.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Owned { bytes, .. } => std::mem::take(&mut lock(&bytes)),
            Self::Region { .. } | Self::Caller(_) => {
                let mut bytes = vec![0; self.len() as usize];
                // A buffer holds all of its own length.
                self.read(0, &mut bytes).expect("the range is the buffer");
                bytes
            }
        }
    }
}

/// The places in the region of `len` bytes from byte `offset` of `pieces` on.
fn cut(pieces: &[(u64, u64)], offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let (mut skip, mut rest) = (offset, len);
    pieces.iter().filter_map(move |(at, piece)| {
        let before = skip.min(*piece);
        let taken = rest.min(piece - before);
        skip -= before;
        rest -= taken;
        (taken > 0).then_some((at + before, taken))
    })
}

#[cfg(test)]
mod tests {
    use springtide::pool::{Contiguity, Pool, PoolConfig};

    use super::*;

    #[test]
    fn segments_refuse_what_leaves_them() {
        let memory = SegmentMemory::new(8);
        memory.write(6, &[1, 2]).unwrap();
        let mut two = [0; 2];
        memory.read(6, &mut two).unwrap();
        assert_eq!(two, [1, 2]);
        assert!(memory.write(7, &[1, 2]).is_err());
        assert!(memory.read(u64::MAX, &mut two).is_err());
        assert!(memory.contains(8, 0) && !memory.contains(8, 1));
    }

    #[test]
    fn scattered_pieces_read_as_one() {
        let pool = Pool::new(&PoolConfig { unit_payload: 64, ..PoolConfig::with_bytes(4096) });
        let pool = pool.unwrap();
        let lease = pool.allocate(700, Contiguity::Extents).unwrap();
        let buffer = Buffer::of(&lease);
        assert_eq!(buffer.len(), 700);
        let bytes: Vec<u8> = (0..700).map(|i| i as u8).collect();
        buffer.write(0, &bytes).unwrap();
        let mut middle = [0; 300];
        buffer.read(200, &mut middle).unwrap();
        assert_eq!(middle, bytes[200..500]);
        assert_eq!(buffer.into_bytes(), bytes);
        let mut through_lease = vec![0; 700];
        lease.read_at(0, &mut through_lease);
        assert_eq!(through_lease, bytes);
    }
}
