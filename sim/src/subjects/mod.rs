//! What stands in an instance as its connector: springtide, or another design for comparison.
//!
//! The engine models speak to a connector's two sides through [`SchedulerSide`] and [`WorkerSide`]. For
//! springtide these hand every call on to the production code; for another subject they are a
//! re-implementation of its behaviour over the same injected world. The plan names the subject, so that
//! whatever is found of either replays from a plan file.

pub mod pr30468;
mod sides;

pub use self::sides::{Delivered, SaveReported, SchedulerSide, Start, Step, WorkerSide};
pub use crate::plan::Subject;
