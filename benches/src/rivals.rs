//! Allocators to compare with. Each manages a region's offsets and owns no memory.
//!
//! An item is a payload and a header of 64 bytes. springtide and the offset allocator keep both in one
//! allocation; for the plain buddies, where that would double the block of every power-of-two payload, the
//! header is taken to be elsewhere and free of charge.

use buddy_system_allocator::FrameAllocator;
use springtide::pool::{
    PoolConfig,
    buddy::{Block, Buddy},
    extents::{self, Blocks},
};

use crate::models::HEADER;

/// An allocator over a region of fixed size.
pub trait Allocator {
    /// What gives an allocation back.
    type Token;

    /// Room for an item of `payload` bytes, or `None`.
    fn allocate(&mut self, payload: u64) -> Option<Self::Token>;

    /// Gives it back.
    fn free(&mut self, token: Self::Token);

    /// Parts that an allocation is scattered over.
    fn parts(_token: &Self::Token) -> usize {
        1
    }
}

/// springtide's rule: a buddy tree over units of 32 KiB + 64 B, items in a few extents.
#[derive(Debug)]
pub struct Springtide {
    buddy: Buddy,
    unit: u64,
    max_extents: usize,
}

impl Springtide {
    /// A region of `bytes`, with the default number of extents.
    pub fn new(bytes: u64) -> Self {
        Self::with_extents(bytes, PoolConfig::with_bytes(bytes).max_extents)
    }

    /// A region of `bytes`, items in at most `max_extents` parts.
    pub fn with_extents(bytes: u64, max_extents: usize) -> Self {
        let config = PoolConfig::with_bytes(bytes);
        let units = config.units().expect("the sizes of the suites are in range");
        Self { buddy: Buddy::new(units), unit: config.unit(), max_extents }
    }
}

impl Allocator for Springtide {
    type Token = Blocks;

    fn allocate(&mut self, payload: u64) -> Option<Blocks> {
        let units = (payload + HEADER).div_ceil(self.unit) as u32;
        extents::allocate(&mut self.buddy, units, self.max_extents)
    }

    fn free(&mut self, token: Blocks) {
        for block in token {
            self.buddy.free(block).expect("an allocation is given back once");
        }
    }

    fn parts(token: &Blocks) -> usize {
        token.len()
    }
}

/// The rule of vLLM's tensor memory pool: one block of the next power of two, at least 64 KiB.
#[derive(Debug)]
pub struct PowerOfTwo(Buddy);

impl PowerOfTwo {
    const LEAF: u64 = 64 << 10;

    /// A region of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self(Buddy::new((bytes / Self::LEAF) as u32))
    }
}

impl Allocator for PowerOfTwo {
    type Token = Block;

    fn allocate(&mut self, payload: u64) -> Option<Block> {
        let leaves = payload.div_ceil(Self::LEAF).next_power_of_two();
        self.0.allocate(leaves.ilog2() as u8)
    }

    fn free(&mut self, block: Block) {
        self.0.free(block).expect("an allocation is given back once");
    }
}

/// `offset-allocator`, the two-level bins that Mooncake's own segments use too.
pub struct Offset(offset_allocator::Allocator);

impl Offset {
    /// So that 64 GiB fit its 32-bit sizes.
    const GRAIN: u64 = 256;

    /// A region of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self(offset_allocator::Allocator::new((bytes / Self::GRAIN) as u32))
    }
}

impl Allocator for Offset {
    type Token = offset_allocator::Allocation;

    fn allocate(&mut self, payload: u64) -> Option<Self::Token> {
        self.0.allocate((payload + HEADER).div_ceil(Self::GRAIN) as u32)
    }

    fn free(&mut self, token: Self::Token) {
        self.0.free(token);
    }
}

/// `buddy_system_allocator`'s frame allocator, with frames of 32 KiB.
pub struct Frames(FrameAllocator<32>);

impl Frames {
    const FRAME: u64 = 32 << 10;

    /// A region of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, (bytes / Self::FRAME) as usize);
        Self(frames)
    }
}

impl Allocator for Frames {
    type Token = (usize, usize);

    fn allocate(&mut self, payload: u64) -> Option<Self::Token> {
        let count = payload.div_ceil(Self::FRAME) as usize;
        Some((self.0.alloc(count)?, count))
    }

    fn free(&mut self, (start, count): Self::Token) {
        self.0.dealloc(start, count);
    }
}

/// No allocator can hold more: bytes are counted, shapes are not.
#[derive(Debug)]
pub struct BytePerfect(u64);

impl BytePerfect {
    /// A region of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl Allocator for BytePerfect {
    type Token = u64;

    fn allocate(&mut self, payload: u64) -> Option<u64> {
        let len = payload + HEADER;
        self.0 = self.0.checked_sub(len)?;
        Some(len)
    }

    fn free(&mut self, len: u64) {
        self.0 += len;
    }
}
