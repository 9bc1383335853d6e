//! What goes to the log: the way of each item, and a limit on how often the same thing is said.
//!
//! | module | what it is |
//! |---|---|
//! | [`item`] | names an item by the same id in every process, and the steps of its way |
//! | [`limiter`] | a few lines of each kind, then only their number |
//!
//! The connector reports through `tracing` and decides nothing by it: without a subscriber a line costs one
//! comparison. Lines from `info` up are for operators and are to be limited by whoever shows them, as the
//! plug-in does; the steps of items have the level `debug` and the target [`ITEMS`], and are not limited.

pub mod item;
pub mod limiter;

pub(crate) use self::item::{answer, step, way};
pub use self::{
    item::{ITEMS, ItemId, shown, shown_within},
    limiter::Limiter,
};
