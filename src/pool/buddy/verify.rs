//! Recomputing the tree from its allocated bits.
//!
//! Every byte follows from the node's own bit and its children's bytes, so checking each node against its
//! children, from the leaves up, checks the whole tree in one pass over an array.

use super::Buddy;

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
        let mut free_units = 0;
        for order in 0..=self.height {
            let free_blocks = self.verify_level(order)?;
            free_units += free_blocks << order;
            same(self.free_blocks[usize::from(order)], free_blocks, || {
                format!("count of free blocks of order {order}")
            })?;
        }
        same(self.free_units, free_units, || "count of free units".to_owned())
    }

    /// Checks the nodes of one order against their children; the number of them that are wholly free and
    /// neither part of a larger such node nor below an allocation.
    fn verify_level(&self, order: u8) -> Result<u32, TreeCorruption> {
        let first = 1usize << (self.height - order);
        let mut free_blocks = 0;
        for node in first..2 * first {
            let below = match order {
                0 => u8::from(node - first < self.units as usize),
                _ => self.joined(node, order),
            };
            let allocated = self.is_allocated(node);
            let byte = if allocated { 0 } else { below };
            let whole = below == order + 1;
            // What is below an allocation is kept as if it were free.
            if self.largest[node] != byte || (allocated && !whole) {
                return Err(self.difference(node, byte, below));
            }
            free_blocks += u32::from(whole && !allocated && self.is_outermost(node, order));
        }
        Ok(free_blocks)
    }

    fn difference(&self, node: usize, byte: u8, below: u8) -> TreeCorruption {
        let (what, found, expected) = match self.largest[node] {
            found if found != byte => ("largest free of node", found, byte),
            _ => ("largest free below allocated node", below, self.height + 1 - node.ilog2() as u8),
        };
        TreeCorruption {
            what: format!("{what} {node}"),
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// Whether a wholly free node is neither part of a larger one nor below an allocation.
    fn is_outermost(&self, node: usize, order: u8) -> bool {
        node == 1 || (!self.is_allocated(node / 2) && self.largest[node / 2] != order + 2)
    }
}

fn same(found: u32, expected: u32, what: impl FnOnce() -> String) -> Result<(), TreeCorruption> {
    if found == expected {
        return Ok(());
    }
    Err(TreeCorruption { what: what(), found: found.into(), expected: expected.into() })
}
