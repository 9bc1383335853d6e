//! The bytes behind the pool's addresses, as the cards see them.
//!
//! The store and the device of the simulation take memory by value and give it back, which rules out by
//! construction what this design does: let a block go while a card still works on it. So each I/O gets memory of
//! its own that mirrors the block. Whatever is written to the block while the I/O runs is written through to its
//! mirror, where the card finds it, and what a card has read arrives in the block, whoever has it by then.

use std::sync::{Arc, Mutex, MutexGuard};

use springtide::{
    env::{Outcome, Store},
    pool::{Contiguity, Lease, Pool, PoolConfig, Region, Transfer},
};

/// The region of one pool.
#[derive(Debug)]
pub struct Memory {
    inner: Mutex<Inner>,
    /// How many bytes the store was told of: what the configuration says, not what the pool has.
    registered_bytes: u64,
    /// Mirrors of what is registered, and of what is not.
    mirrors: [Pool; 2],
}

#[derive(Debug, Default)]
struct Inner {
    bytes: Vec<u8>,
    next: u64,
    live: Vec<Mirror>,
    /// Memory that a card may work on until the end of the run.
    late: Vec<Transfer>,
}

#[derive(Debug)]
struct Mirror {
    id: u64,
    address: u64,
    len: u64,
    region: Arc<Region>,
    offset: u64,
}

/// Memory lent to a card, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent(u64);

impl Memory {
    /// A region of `bytes` bytes of which `registered_bytes` are made known to the store. Whether the store
    /// agrees is not looked at.
    pub async fn new(bytes: u64, registered_bytes: u64, store: &impl Store) -> Self {
        // Enough for every block to be in several transfers at once.
        let room = 4 * bytes + (4 << 20);
        let config = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(room) };
        let mirrors = [(); 2].map(|()| Pool::new(&config).expect("a valid configuration"));
        let _ = store.register(Arc::clone(mirrors[0].region())).await;
        let inner = Inner { bytes: vec![0; bytes as usize], ..Inner::default() };
        Self { inner: Mutex::new(inner), registered_bytes, mirrors }
    }

    /// Lends a block to a card.
    pub fn lend(&self, address: u64, len: u64) -> (Lent, Transfer) {
        let beyond = address + len > self.registered_bytes;
        let mut lease = self.allocate(usize::from(beyond), len);
        let mut inner = self.lock();
        lease.write_at(0, &inner.bytes[address as usize..(address + len) as usize]);
        let id = inner.next;
        inner.next += 1;
        let (region, offset) = (Arc::clone(lease.region()), lease.extents()[0].offset);
        inner.live.push(Mirror { id, address, len, region, offset });
        (Lent(id), lease.into_transfer())
    }

    /// Memory of no block, which the store's own client copies through.
    pub fn copied(&self, bytes: &[u8]) -> Transfer {
        let mut lease = self.allocate(0, bytes.len() as u64);
        lease.write_at(0, bytes);
        lease.into_transfer()
    }

    /// Writes to a block; cards that work on it see it.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.lock().write(address, bytes);
    }

    /// What lies in a block.
    pub fn read(&self, address: u64, len: u64) -> Vec<u8> {
        self.lock().bytes[address as usize..(address + len) as usize].to_vec()
    }

    /// A card has stopped, or nobody knows; what it read arrives. Returns what the call said.
    pub fn returned<T, E>(
        &self,
        lent: Lent,
        outcome: Outcome<T, E>,
        arrived: impl FnOnce(&T) -> u64,
    ) -> Result<T, E> {
        let mut inner = self.lock();
        match outcome {
            Outcome::Ended { buffer, result } => {
                let index = inner.live.iter().position(|mirror| mirror.id == lent.0);
                let mirror = inner.live.remove(index.expect("it was lent"));
                if let Ok(value) = &result {
                    let mut bytes = vec![0; arrived(value).min(mirror.len) as usize];
                    buffer.read_at(0, &mut bytes);
                    inner.write(mirror.address, &bytes);
                }
                result
            }
            Outcome::Uncertain { buffer, error } => {
                inner.late.push(buffer);
                Err(error)
            }
        }
    }

    fn allocate(&self, mirror: usize, len: u64) -> Lease {
        let lease = self.mirrors[mirror].allocate(len, Contiguity::Required);
        lease.expect("mirrors have room for several transfers of every block")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while held")
    }
}

impl Inner {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let end = address + bytes.len() as u64;
        self.bytes[address as usize..end as usize].copy_from_slice(bytes);
        for mirror in &self.live {
            let from = address.max(mirror.address);
            let to = end.min(mirror.address + mirror.len);
            if from < to {
                let part = &bytes[(from - address) as usize..(to - address) as usize];
                mirror.region.dma_write(mirror.offset + from - mirror.address, part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use springtide::env::DeviceError;

    use super::*;

    fn memory() -> Memory {
        let config = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(1 << 16) };
        let mirrors = [(); 2].map(|()| Pool::new(&config).unwrap());
        let inner = Inner { bytes: vec![0; 4096], ..Inner::default() };
        Memory { inner: Mutex::new(inner), registered_bytes: 3000, mirrors }
    }

    fn ended(transfer: Transfer) -> Outcome<(), DeviceError> {
        Outcome::Ended { buffer: transfer.finish(), result: Ok(()) }
    }

    #[test]
    fn a_card_sees_what_is_written_under_it() {
        let memory = memory();
        memory.write(1024, &[1; 100]);
        let (lent, transfer) = memory.lend(1024, 100);
        memory.write(1000, &[2; 74]);
        let mut seen = [0; 100];
        transfer.read_at(0, &mut seen);
        assert_eq!((&seen[..50], &seen[50..]), (&[2; 50][..], &[1; 50][..]));
        assert_eq!(memory.returned(lent, ended(transfer), |()| 0), Ok(()));
        assert_eq!(memory.lock().live.len(), 0);
    }

    #[test]
    fn what_a_card_has_read_arrives_in_whoever_has_the_block() {
        let memory = memory();
        let (read, mut into) = memory.lend(0, 512);
        let (sent, from) = memory.lend(256, 512);
        into.write_at(0, &[7; 512]);
        assert_eq!(memory.returned(read, ended(into), |()| 300), Ok(()));
        assert_eq!((memory.read(299, 1), memory.read(300, 1)), (vec![7], vec![0]));
        let mut seen = [0; 45];
        from.read_at(0, &mut seen);
        assert_eq!((seen[43], seen[44]), (7, 0), "44 bytes of the other's block");
        let _ = memory.returned(sent, ended(from), |()| 0);
    }

    #[test]
    fn blocks_beyond_the_registered_length_are_not_registered() {
        let memory = memory();
        let [(_, inside), (_, across)] = [0, 2500].map(|address| memory.lend(address, 512));
        let registered = memory.mirrors[0].region();
        assert!(Arc::ptr_eq(inside.region(), registered));
        assert!(!Arc::ptr_eq(across.region(), registered));
    }
}
