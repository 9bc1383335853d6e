//! Recomputing the tree from its allocated bits.
//!
//! Every byte follows from the node's own bit and its children's bytes, so checking each node against its
//! children checks the whole tree. What is wholly free, allocated or beyond the units has the same byte in all
//! nodes of a level, and is compared a level at a time: most of a tree is, and a simulation looks at it often.

use std::ops::Range;

use super::{Buddy, ORDERS_MAX};

/// A byte, bit or count of the buddy tree that does not follow from the allocated bits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("buddy tree: {what} is {found}, expected {expected}")]
pub struct TreeCorruption {
    /// The quantity that is wrong, with the node where it is one.
    pub what: String,
    /// Its value.
    pub found: u64,
    /// What the allocated bits say.
    pub expected: u64,
}

impl Buddy {
    /// Recomputes every byte and count from the allocated bits and compares.
    ///
    /// # Errors
    /// A difference.
    pub fn verify(&self) -> Result<(), TreeCorruption> {
        let mut free_blocks = [0; ORDERS_MAX];
        self.verify_node(1, self.height, &mut free_blocks)?;
        let mut free_units = 0;
        for (order, free_blocks) in (0..=self.height).zip(free_blocks) {
            free_units += free_blocks << order;
            same(self.free_blocks[usize::from(order)], free_blocks, || {
                format!("count of free blocks of order {order}")
            })?;
        }
        same(self.free_units, free_units, || "count of free units".to_owned())
    }

    /// Checks a node that is not below an allocation, and all below it; counts what is wholly free and no part
    /// of anything larger.
    fn verify_node(
        &self,
        node: usize,
        order: u8,
        free_blocks: &mut [u32; ORDERS_MAX],
    ) -> Result<(), TreeCorruption> {
        let (found, whole) = (self.largest[node], order + 1);
        let Range { start, end } = self.block(node, order).range();
        if self.is_allocated(node) && start < self.units {
            // What is below an allocation is kept as if it were free.
            self.verify_below(node, order, true)?;
            return self.verify_byte(node, 0);
        }
        if start >= self.units {
            self.verify_clear(node..node + 1)?;
            self.verify_below(node, order, false)?;
            return self.verify_byte(node, 0);
        }
        if found == whole && end <= self.units {
            free_blocks[usize::from(order)] += 1;
            return self.verify_below(node, order, true);
        }
        if order == 0 {
            return self.verify_byte(node, 1);
        }
        self.verify_node(2 * node, order - 1, free_blocks)?;
        self.verify_node(2 * node + 1, order - 1, free_blocks)?;
        self.verify_byte(node, self.joined(node, order))
    }

    /// Checks that everything below a node is free, or nothing is, and that nothing is allocated there.
    fn verify_below(&self, node: usize, order: u8, free: bool) -> Result<(), TreeCorruption> {
        for depth in 1..=order {
            let nodes = node << depth..(node + 1) << depth;
            let expected = if free { order - depth + 1 } else { 0 };
            let bytes = &self.largest[nodes.clone()];
            // All of a level at once; which one it is, is of interest only then.
            if bytes.iter().fold(0, |any, found| any | (found ^ expected)) != 0 {
                nodes.clone().try_for_each(|node| self.verify_byte(node, expected))?;
            }
            self.verify_clear(nodes)?;
        }
        Ok(())
    }

    /// Checks that nothing is allocated in an aligned part of a level.
    fn verify_clear(&self, mut nodes: Range<usize>) -> Result<(), TreeCorruption> {
        // A part of 64 nodes or more fills whole words.
        let is_clear = |words: Range<usize>| self.allocated[words].iter().all(|word| *word == 0);
        if nodes.len() >= 64 && is_clear(nodes.start / 64..nodes.end / 64) {
            return Ok(());
        }
        nodes.try_for_each(|node| {
            let bit = u32::from(self.is_allocated(node));
            same(bit, 0, || format!("allocations at node {node}, where there can be none"))
        })
    }

    fn verify_byte(&self, node: usize, expected: u8) -> Result<(), TreeCorruption> {
        let found = self.largest[node];
        same(found.into(), expected.into(), || format!("largest free of node {node}"))
    }
}

fn same(found: u32, expected: u32, what: impl FnOnce() -> String) -> Result<(), TreeCorruption> {
    if found == expected {
        return Ok(());
    }
    Err(TreeCorruption { what: what(), found: found.into(), expected: expected.into() })
}
