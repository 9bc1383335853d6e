//! Recomputing the tree from its allocated bits.
//!
//! Every byte follows from the node's own bit and its children's bytes, so checking each node against its
//! children, from the leaves up, checks the whole tree in one pass over an array.

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
    /// The first difference.
    pub fn verify(&self) -> Result<(), TreeCorruption> {
        let mut free_blocks = [0; ORDERS_MAX];
        let leaves = 1usize << self.height;
        for node in (1..2 * leaves).rev() {
            let order = self.order_of(node);
            let below = self.verify_node(node, order)?;
            let counts = below == order + 1 && !self.is_allocated(node) && self.is_outermost(node);
            free_blocks[usize::from(order)] += u32::from(counts);
        }
        let mut free_units = 0;
        for (order, expected) in free_blocks.into_iter().enumerate() {
            free_units += expected << order;
            same(self.free_blocks[order], expected, || format!("count of free blocks {order}"))?;
        }
        same(self.free_units, free_units, || "count of free units".to_owned())
    }

    /// Checks a node against its children; the byte that it would have if it were not allocated.
    fn verify_node(&self, node: usize, order: u8) -> Result<u8, TreeCorruption> {
        let below = if order == 0 {
            u8::from(node - (1 << self.height) < self.units as usize)
        } else {
            self.joined(node)
        };
        let allocated = self.is_allocated(node);
        if allocated {
            // Everything below an allocation is kept as if it were free.
            same(below, order + 1, || format!("largest free below allocated node {node}"))?;
        }
        let byte = if allocated { 0 } else { below };
        same(self.largest[node], byte, || format!("largest free of node {node}"))?;
        Ok(below)
    }

    /// Whether a wholly free node is neither part of a larger one nor below an allocation.
    fn is_outermost(&self, node: usize) -> bool {
        node == 1
            || (!self.is_allocated(node / 2) && self.largest[node / 2] != self.order_of(node) + 2)
    }
}

fn same<T: Copy + PartialEq + Into<u64>>(
    found: T,
    expected: T,
    what: impl FnOnce() -> String,
) -> Result<(), TreeCorruption> {
    if found == expected {
        return Ok(());
    }
    Err(TreeCorruption { what: what(), found: found.into(), expected: expected.into() })
}
