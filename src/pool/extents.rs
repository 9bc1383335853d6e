//! Planning: which blocks serve an allocation of some length.
//!
//! A power-of-two length takes one block. Any other length takes the blocks of its binary digits, largest
//! first, and the last one rounded up when there are more digits than blocks allowed. Where fragmentation
//! denies a large block, smaller ones serve in its place as long as their number holds.
//!
//! Taking the largest useful block each time is not a heuristic here: it finds a set of at most `n` blocks
//! whenever one exists, because a block can be split but not joined. [`fits`] relies on that: it looks at
//! the number of free blocks of each order and never needs to try.
//!
//! Relies on [`Buddy`] alone. Promises that an attempt that fails leaves nothing allocated.

use arrayvec::ArrayVec;

use super::buddy::{Block, Buddy, ORDERS_MAX};

/// The most blocks that one allocation may consist of.
pub const MAX_EXTENTS: usize = 16;

/// The blocks of one allocation, in the order of its bytes.
pub type Blocks = ArrayVec<Block, MAX_EXTENTS>;

/// The fewest units, at least `units`, that `blocks` power-of-two blocks can make up exactly; `None` if no
/// `u32` holds it. Its highest bit is the block to take first.
///
/// # Panics
/// If `units` or `blocks` is zero.
pub fn rounded(units: u32, blocks: usize) -> Option<u32> {
    assert!(units > 0 && blocks > 0, "expected units and blocks, got {units} and {blocks}");
    let mut value = units;
    while value.count_ones() as usize > blocks {
        value = value.checked_add(1 << value.trailing_zeros())?;
    }
    Some(value)
}

/// Takes blocks for `units` units, at most `max` of them; `None`, and nothing taken, if the free blocks
/// do not have the shape.
///
/// # Panics
/// If `units` is zero or `max` is not in `1..=MAX_EXTENTS`.
pub fn allocate(buddy: &mut Buddy, units: u32, max: usize) -> Option<Blocks> {
    assert!((1..=MAX_EXTENTS).contains(&max), "expected 1 to {MAX_EXTENTS} extents, got {max}");
    let mut blocks = Blocks::new();
    let mut rest = units;
    while rest > 0 && blocks.len() < max {
        match next_order(buddy, rest, max - blocks.len()).and_then(|order| buddy.allocate(order)) {
            Some(block) => {
                rest = rest.saturating_sub(block.units());
                blocks.push(block);
            }
            None => break,
        }
    }
    if rest == 0 {
        return Some(blocks);
    }
    for block in blocks {
        buddy.free(block).expect("a block that was handed out just now can be freed");
    }
    None
}

/// Order of the next block to take for `rest` units out of at most `slots` blocks.
fn next_order(buddy: &Buddy, rest: u32, slots: usize) -> Option<u8> {
    let wanted = rounded(rest, slots)?.ilog2() as u8;
    Some(wanted.min(buddy.largest_free()?))
}

/// Whether [`allocate`] would succeed with these free blocks: whether the `max` largest hold `units`.
pub fn fits(free_blocks: &[u32; ORDERS_MAX], units: u32, max: usize) -> bool {
    largest_sum(free_blocks, max) >= u64::from(units)
}

/// Units in the `max` largest free blocks: the longest allocation that would succeed.
pub fn largest_sum(free_blocks: &[u32; ORDERS_MAX], max: usize) -> u64 {
    let (mut slots, mut sum) = (max as u64, 0);
    for order in (0..ORDERS_MAX).rev() {
        let taken = slots.min(free_blocks[order].into());
        slots -= taken;
        sum += taken << order;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(blocks: &Blocks) -> Vec<u8> {
        blocks.iter().map(|block| block.order).collect()
    }

    #[test]
    fn lengths_round_up_to_the_fewest_units_that_the_blocks_can_make() {
        assert_eq!(rounded(0b1011, 3), Some(0b1011));
        assert_eq!(rounded(0b1011, 2), Some(0b1100));
        assert_eq!(rounded(0b1011, 1), Some(0b10000));
        assert_eq!(rounded(0b111, 2), Some(0b1000));
        assert_eq!(rounded(u32::MAX, 1), None);
    }

    #[test]
    fn an_empty_pool_serves_the_binary_digits_largest_first() {
        let mut buddy = Buddy::new(32);
        assert_eq!(orders(&allocate(&mut buddy, 0b1011, 8).unwrap()), [3, 1, 0]);
        assert_eq!(orders(&allocate(&mut buddy, 0b0111, 2).unwrap()), [3]);
        assert_eq!(buddy.free_units(), 32 - 11 - 8);
    }

    #[test]
    fn smaller_blocks_serve_when_a_large_one_is_denied() {
        let mut buddy = Buddy::new(8);
        let singles: Vec<Block> = (0..8).map(|_| buddy.allocate(0).unwrap()).collect();
        for block in singles.iter().filter(|block| block.index % 4 != 3) {
            buddy.free(*block).unwrap();
        }
        assert_eq!(buddy.largest_free(), Some(1));
        assert_eq!(allocate(&mut buddy, 4, 1), None);
        assert_eq!(orders(&allocate(&mut buddy, 4, 2).unwrap()), [1, 1]);
    }

    #[test]
    fn a_failed_attempt_leaves_nothing_allocated() {
        let mut buddy = Buddy::new(16);
        for _ in 0..8 {
            buddy.allocate(0).unwrap();
        }
        let before = buddy.clone();
        assert_eq!(allocate(&mut buddy, 9, 8), None);
        assert_eq!(buddy.free_units(), before.free_units());
        buddy.verify().unwrap();
    }

    #[test]
    fn fits_agrees_with_trying_for_every_state_of_a_small_tree() {
        for free in 0u32..1 << 12 {
            let mut buddy = Buddy::new(12);
            let singles: Vec<Block> = (0..12).map(|_| buddy.allocate(0).unwrap()).collect();
            for block in singles.iter().filter(|block| free >> block.index & 1 == 1) {
                buddy.free(*block).unwrap();
            }
            for units in 1..=13 {
                for max in [1, 2, 3, 8] {
                    let would = fits(buddy.free_blocks(), units, max);
                    let blocks = allocate(&mut buddy, units, max);
                    assert_eq!(blocks.is_some(), would, "{units} units, {max} blocks, {free:b}");
                    for block in blocks.into_iter().flatten() {
                        buddy.free(block).unwrap();
                    }
                }
            }
        }
    }
}
