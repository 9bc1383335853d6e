//! What is measured.

use std::fmt;

use springtide::{connector::HEADER_BYTES, size};

use super::WARM_UP;
use crate::{args::BenchArgs, failure::Failure};

/// Bytes of one row of an item.
pub(super) const ROW_BYTES: u64 = 1 << 10;

/// The longest item: more is a mistake in the unit.
const ITEM_BYTES_MAX: u64 = 1 << 30;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    cells: Vec<Cell>,
    pub(super) rounds: u32,
    pub(super) checksum: bool,
}

/// One combination of an item size, calls at a time and items a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Bytes of an item's payload.
    pub item_bytes: u64,
    /// Calls at a time.
    pub concurrency: usize,
    /// Items a call.
    pub batch: usize,
    /// Steps of a round.
    pub steps: usize,
    /// Whether the connector writes and checks checksums of the payload.
    pub checksum: bool,
}

impl Plan {
    /// What the arguments ask for.
    ///
    /// # Errors
    /// [`Failure::Usage`] for sizes that no item has.
    pub fn new(arguments: &BenchArgs) -> Result<Self, Failure> {
        let mut cells = Vec::new();
        for &item_bytes in &arguments.size {
            if !(ROW_BYTES..=ITEM_BYTES_MAX).contains(&item_bytes)
                || !item_bytes.is_multiple_of(ROW_BYTES)
            {
                let (low, high) = (size::show(ROW_BYTES), size::show(ITEM_BYTES_MAX));
                let got = size::show(item_bytes);
                let text = format!("--size is {got}, expected whole KiB from {low} to {high}");
                return Err(Failure::usage(text));
            }
            for &concurrency in &arguments.concurrency {
                for &batch in &arguments.batch {
                    let (concurrency, batch) = (usize::from(concurrency), usize::from(batch));
                    let step_bytes = item_bytes * (concurrency * batch) as u64;
                    let steps = arguments.round_bytes.div_ceil(step_bytes).clamp(1, 1000) as usize;
                    let checksum = !arguments.no_checksum;
                    cells.push(Cell { item_bytes, concurrency, batch, steps, checksum });
                }
            }
        }
        Ok(Self { cells, rounds: arguments.rounds, checksum: !arguments.no_checksum })
    }

    /// The cells, in order.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        self.cells.iter().cloned()
    }

    /// Rounds of all cells, those that are not measured too.
    pub fn rounds(&self) -> u64 {
        self.cells.len() as u64 * (WARM_UP + u64::from(self.rounds))
    }

    /// The most that lies in the store at a time.
    pub fn stored_bytes_max(&self) -> u64 {
        let stored = |cell: &Cell| 2 * cell.object_bytes() * (cell.items() * cell.steps) as u64;
        self.cells.iter().map(stored).max().unwrap_or(0)
    }
}

impl Cell {
    /// Items of a step.
    pub fn items(&self) -> usize {
        self.concurrency * self.batch
    }

    /// Bytes of an item with its header.
    pub fn object_bytes(&self) -> u64 {
        self.item_bytes + HEADER_BYTES
    }

    /// Payload bytes of a round of one kind.
    pub fn round_bytes(&self) -> u64 {
        self.item_bytes * (self.items() * self.steps) as u64
    }
}

impl fmt::Display for Cell {
    /// `4 MiB, 2 calls of 8 at a time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { concurrency, batch, .. } = self;
        write!(f, "{}, {concurrency} calls of {batch} at a time", size::show(self.item_bytes))
    }
}
