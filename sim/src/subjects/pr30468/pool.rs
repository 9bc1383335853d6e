//! The pool: blocks of powers of two by address, and a queue of them by age.
//!
//! A handle is an address without a generation, and nobody pins anything: a full pool frees its oldest blocks
//! until the new one fits, whatever is being done with them.

use std::collections::{BTreeMap, VecDeque};

use super::Raised;

/// Blocks of one registered region.
#[derive(Debug)]
pub struct FifoPool {
    bytes: u64,
    /// Length of each block by its address.
    blocks: BTreeMap<u64, u64>,
    /// Blocks that may be evicted, oldest first, with the key that each was allocated for.
    queue: VecDeque<(String, u64)>,
}

/// Why there is no block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The error that callers expect.
    Full,
    /// Another one, which they do not.
    Unexpected(Raised),
}

impl FifoPool {
    /// An empty pool: what was asked for, rounded up to a power of two.
    pub fn new(bytes: u64) -> Self {
        Self { bytes: bytes.next_power_of_two(), blocks: BTreeMap::new(), queue: VecDeque::new() }
    }

    /// Its real length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A block of at least `len` bytes, and the keys of the blocks that were evicted for it.
    ///
    /// # Errors
    /// [`Refused`]; what was evicted in vain is gone all the same.
    pub fn allocate(&mut self, len: u64) -> Result<(u64, Vec<String>), Refused> {
        if len == 0 || len > self.bytes {
            return Err(Refused::Unexpected(Raised("a size that no block has")));
        }
        let block = len.next_power_of_two();
        let mut evicted = Vec::new();
        loop {
            if let Some(address) = self.find(block) {
                self.blocks.insert(address, block);
                return Ok((address, evicted));
            }
            let (key, oldest) = self.queue.pop_front().ok_or(Refused::Full)?;
            self.blocks.remove(&oldest);
            evicted.push(key);
        }
    }

    /// Lets a block be evicted from now on.
    pub fn enqueue(&mut self, key: &str, address: u64) {
        self.queue.push_back((key.to_owned(), address));
    }

    /// Gives back whatever lies at `address` now.
    ///
    /// # Errors
    /// [`Raised`] if nothing does.
    pub fn free(&mut self, address: u64) -> Result<(), Raised> {
        self.blocks.remove(&address).ok_or(Raised("nothing is allocated there"))?;
        self.queue.retain(|(_, queued)| *queued != address);
        Ok(())
    }

    /// The lowest aligned place for a block.
    fn find(&self, block: u64) -> Option<u64> {
        let mut address = 0;
        while address + block <= self.bytes {
            let below = self.blocks.range(..address + block).next_back();
            match below.map(|(at, len)| at + len) {
                Some(end) if end > address => address = end.next_multiple_of(block),
                _ => return Some(address),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_disjoint() {
        let mut pool = FifoPool::new(3000);
        assert_eq!(pool.bytes(), 4096);
        let addresses: Vec<u64> =
            [1000, 10, 1024, 900].map(|len| pool.allocate(len).unwrap().0).into();
        assert_eq!(addresses, [0, 1024, 2048, 3072]);
        assert_eq!(pool.allocate(500).unwrap().0, 1024 + 512);
    }

    #[test]
    fn a_full_pool_evicts_its_oldest_block_though_it_is_in_use() {
        let mut pool = FifoPool::new(1024);
        let (first, _) = pool.allocate(512).unwrap();
        pool.enqueue("a", first);
        let (second, _) = pool.allocate(512).unwrap();
        pool.enqueue("b", second);
        assert_eq!(pool.allocate(512), Ok((first, vec!["a".to_owned()])));
        // The owner of a knows nothing of it, and frees the block of whoever has it now.
        assert_eq!(pool.free(first), Ok(()));
        assert!(pool.free(first).is_err());
    }

    #[test]
    fn sizes_that_no_block_has_are_another_error_than_a_full_pool() {
        let mut pool = FifoPool::new(1024);
        assert!(matches!(pool.allocate(0), Err(Refused::Unexpected(_))));
        assert!(matches!(pool.allocate(1025), Err(Refused::Unexpected(_))));
        pool.allocate(1024).unwrap();
        assert_eq!(pool.allocate(1), Err(Refused::Full));
    }
}
