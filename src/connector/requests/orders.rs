//! What the engine asks for and is told, as plain data.

use serde::{Deserialize, Serialize};

use crate::{connector::loads::MissReason, env::TensorSpec, pool::Descriptor};

/// An item that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRequest {
    /// The media item's identifier.
    pub identifier: String,
    /// Rows (encoder tokens) that the engine expects.
    pub rows: u64,
}

/// Whether a request can be scheduled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Every item is decided.
    Ready,
    /// Leave it out of this step.
    Wait,
}

/// What became of one item of one request, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemDecision {
    /// Being looked up or fetched.
    Waiting,
    /// Validated and pinned for the request.
    Ready,
    /// The engine encodes it, and why.
    Local(MissReason),
    /// Handed to the workers.
    Ordered,
}

/// One load that workers are asked to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OrderId(pub u64);

/// A load for the workers: plain data, sent to every rank until all have acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOrder {
    /// Name of the order in acknowledgements.
    pub id: OrderId,
    /// The engine's name for the item.
    pub identifier: String,
    /// Type and shape of the tensor.
    pub spec: TensorSpec,
    /// Where the object lies in the shared region.
    pub source: Descriptor,
}

/// What a step carries to the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Every order that some rank has not acknowledged.
    pub orders: Vec<LoadOrder>,
    /// Items of the engine's own cache that rank 0 of a producer should save once more, if it holds them: the
    /// store may have lost them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub save_again: Vec<String>,
}

impl StepPlan {
    /// Whether it asks nothing of the workers.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty() && self.save_again.is_empty()
    }
}
