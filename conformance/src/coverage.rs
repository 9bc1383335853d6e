//! Which operation met which state: the specification's table, with counts.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    arm::Observed,
    fake::{Knowledge, State},
    step::Call,
};

/// Rows of the table: the states of an object, and the pins that it may have besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// Absent.
    Absent,
    /// Being put.
    Writing,
    /// Being put for too long, its client alive.
    Stale,
    /// Being put by a client that has ended.
    Orphaned,
    /// Complete.
    Complete,
    /// Complete with a lease.
    Leased,
    /// On an owner that cannot be reached.
    Unreachable,
    /// With a soft pin.
    SoftPinned,
    /// With a hard pin.
    HardPinned,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Absent,
        Self::Writing,
        Self::Stale,
        Self::Orphaned,
        Self::Complete,
        Self::Leased,
        Self::Unreachable,
        Self::SoftPinned,
        Self::HardPinned,
    ];

    /// The rows that an object stands in.
    pub fn of(known: Knowledge) -> Vec<Self> {
        let state = match known.state {
            State::Absent => Self::Absent,
            State::Writing => Self::Writing,
            State::Stale => Self::Stale,
            State::Orphaned => Self::Orphaned,
            State::Complete => Self::Complete,
            State::Leased => Self::Leased,
            State::Unreachable => Self::Unreachable,
        };
        let mut rows = vec![state];
        rows.extend(known.soft_pinned.then_some(Self::SoftPinned));
        rows.extend(known.hard_pinned.then_some(Self::HardPinned));
        rows
    }
}

/// How often each operation met each state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<(&'static str, Row), u64>);

impl Coverage {
    /// Counts an operation on an object.
    pub fn count(&mut self, operation: &'static str, known: Knowledge) {
        for row in Row::of(known) {
            *self.0.entry((operation, row)).or_default() += 1;
        }
    }

    /// Adds another table.
    pub fn add(&mut self, other: &Self) {
        for (cell, count) in &other.0 {
            *self.0.entry(*cell).or_default() += count;
        }
    }

    /// How often an operation met a state.
    pub fn get(&self, operation: &'static str, row: Row) -> u64 {
        self.0.get(&(operation, row)).copied().unwrap_or_default()
    }

    /// The cells that the specification has and no sequence reached.
    pub fn missing(&self) -> Vec<(&'static str, Row)> {
        let cells =
            REQUIRED.iter().flat_map(|(operation, rows)| rows.iter().map(|row| (*operation, *row)));
        cells.filter(|(operation, row)| self.get(operation, *row) == 0).collect()
    }

    /// All operations of the table, in its order.
    pub fn operations() -> impl Iterator<Item = &'static str> {
        REQUIRED.iter().map(|(operation, _)| *operation)
    }
}

/// What a call did to one of its objects, as the table names it: finer than the call.
pub fn operation(call: &Call, item: usize, known: Knowledge, seen: &Observed) -> &'static str {
    let code = seen.codes.get(item).or(seen.codes.first()).copied().unwrap_or_default();
    match call {
        Call::IsExist { .. } => "is_exist",
        Call::BatchIsExist { .. } => "batch_is_exist",
        Call::GetSize { .. } => "get_size",
        Call::Get { .. } => "get",
        Call::GetInto { room } => single_get(u64::from(room.bytes()), known),
        Call::BatchGetInto { rooms } => single_get(u64::from(rooms[item].bytes()), known),
        Call::BatchGetIntoMultiBuffers { rooms } => {
            multi_get(u64::from(rooms[item].bytes()), known)
        }
        Call::Put { .. }
        | Call::PutFrom { .. }
        | Call::PutParts { .. }
        | Call::PutBatch { .. }
        | Call::BatchPutFrom { .. }
        | Call::BatchPutFromMultiBuffers { .. } => match code {
            -200 => "put, no room",
            -800 => "put, owner dead",
            _ => "put",
        },
        Call::Upsert { object, .. } => match code {
            -200 => "upsert, no room",
            _ if u64::from(object.bytes()) == known.bytes => "upsert, same size",
            _ => "upsert",
        },
        Call::Start { .. } => "put start",
        Call::End { .. } => "put end",
        Call::Revoke { .. } => "put revoke",
        Call::Remove { force: true, .. } | Call::BatchRemove { force: true, .. } => "remove, force",
        Call::Remove { .. } | Call::BatchRemove { .. } => "remove",
        Call::RemoveByRegex { force: true, .. } => "remove_by_regex, force",
        Call::RemoveByRegex { .. } => "remove_by_regex",
        Call::RemoveAll { force: true } => "remove_all, force",
        Call::RemoveAll { .. } => "remove_all",
        Call::RegisterBuffer { .. } | Call::UnregisterBuffer { .. } => "register",
        Call::HealthCheck => "health_check",
    }
}

fn single_get(room: u64, known: Knowledge) -> &'static str {
    match room.cmp(&known.bytes) {
        _ if known.bytes == 0 => "get_into",
        std::cmp::Ordering::Equal => "get_into",
        std::cmp::Ordering::Greater => "get_into, larger",
        std::cmp::Ordering::Less => "get_into, too small",
    }
}

fn multi_get(room: u64, known: Knowledge) -> &'static str {
    match room.cmp(&known.bytes) {
        _ if known.bytes == 0 => "multi get",
        std::cmp::Ordering::Equal => "multi get",
        std::cmp::Ordering::Greater => "multi get, larger",
        std::cmp::Ordering::Less => "multi get, too small",
    }
}

use Row::{
    Absent as A, Complete as C, HardPinned as H, Leased as L, Orphaned as O, SoftPinned as S,
    Stale as D, Unreachable as X, Writing as P,
};

/// The cells of the specification's table that a comparison must reach.
const REQUIRED: [(&str, &[Row]); 31] = [
    ("is_exist", &[A, P, D, O, C, L, X, S, H]),
    ("batch_is_exist", &[A, P, D, C, L, S, H]),
    ("get_size", &[A, P, D, O, C, L, X, S, H]),
    ("get", &[A, P, C, L, S, H]),
    ("get_into", &[A, P, D, O, C, L, X, S, H]),
    ("get_into, larger", &[P, C, L, S, H]),
    ("get_into, too small", &[P, D, C, L, X, S, H]),
    ("multi get", &[A, P, D, C, L, X, S, H]),
    ("multi get, larger", &[P, C, L, X, S, H]),
    ("multi get, too small", &[P, C, L, X, S, H]),
    ("put", &[A, P, D, O, C, L, X, S, H]),
    ("put, no room", &[A]),
    ("put, owner dead", &[A]),
    ("put start", &[A, P, D, C, L]),
    ("put end", &[P, D]),
    ("put revoke", &[P, D]),
    ("upsert", &[A, P, D, C, L, S, H]),
    ("upsert, same size", &[P, C, L]),
    ("upsert, no room", &[A, C, L]),
    ("remove", &[A, P, D, O, C, L, X, S, H]),
    ("remove, force", &[A, P, D, O, C, L, X, S, H]),
    ("remove_by_regex", &[P, C, L, S, H]),
    ("remove_by_regex, force", &[P, C, L, S, H]),
    ("remove_all", &[P, C, L, S, H]),
    ("remove_all, force", &[P, C, L, S, H]),
    ("lease ends", &[L]),
    ("eviction", &[P, C, L, S, H]),
    ("master restarts", &[P, C, L]),
    ("master hangs", &[P, C, L]),
    ("client dies", &[P, C]),
    ("owner is given up", &[X]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_misses_every_cell() {
        let cells: usize = REQUIRED.iter().map(|(_, rows)| rows.len()).sum();
        let mut coverage = Coverage::default();
        assert_eq!(coverage.missing().len(), cells);
        let known =
            Knowledge { state: State::Leased, soft_pinned: true, hard_pinned: false, bytes: 3 };
        coverage.count("get", known);
        assert_eq!(coverage.missing().len(), cells - 2);
        assert_eq!((coverage.get("get", L), coverage.get("get", H)), (1, 0));
    }

    #[test]
    fn gets_are_told_apart_by_their_room() {
        let known =
            Knowledge { state: State::Complete, soft_pinned: false, hard_pinned: false, bytes: 5 };
        assert_eq!(single_get(5, known), "get_into");
        assert_eq!(single_get(6, known), "get_into, larger");
        assert_eq!(multi_get(4, known), "multi get, too small");
    }
}
