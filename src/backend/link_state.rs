//! What is known of a store that may be down: whether calls reach it, and what has happened to it.

use std::collections::BTreeMap;

use serde::Serialize;

/// Whether calls reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Not connected yet.
    Absent,
    /// Calls reach it.
    Up,
    /// It does not answer; it is tried again.
    Down,
    /// Closed by us.
    Closed,
}

impl LinkState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Absent, Self::Up, Self::Down, Self::Closed];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Up => "up",
            Self::Down => "down",
            Self::Closed => "closed",
        }
    }
}

/// What has happened to a store behind a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// Times that it came up.
    pub came_up: u64,
    /// Times that it went down.
    pub went_down: u64,
    /// Attempts to reach it while it was not up that failed.
    pub attempts_failed: u64,
    /// Items refused because it was not up, by call.
    pub refused: BTreeMap<String, u64>,
}

impl LinkCounters {
    pub(super) fn refuse(&mut self, call: &str, items: usize) {
        *self.refused.entry(call.to_owned()).or_default() += items as u64;
    }
}
