//! Faults on demand: plans, and the injector that carries them out.
//!
//! [`Faults`] is shared by the parts of a store (master, nodes, clients). Each asks it at its fault points;
//! the answer depends on the rules and on nothing else. Tests add and remove rules while operations run,
//! see how many are held at a stalled point, and release them, also with another end than success.

mod injector;
mod plan;

pub(crate) use self::injector::Occurrence;
pub use self::{
    injector::{Faults, RuleId},
    plan::{Action, FaultPlan, PlanError, Point, Rule, When},
};
