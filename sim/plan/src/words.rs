//! The words that faults are made of: calls, moments, directions, fates of messages.

use serde::{Deserialize, Serialize};

/// A call of a store client that a fault can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Allocation of an object at the master.
    PutStart,
    /// The bytes of a put on their way to a node.
    PutTransfer,
    /// The commit of an object at the master.
    PutEnd,
    /// The withdrawal of a failed put.
    PutRevoke,
    /// The master's answer where an object lies.
    Query,
    /// The bytes of a get on their way from a node.
    GetTransfer,
    /// The existence probe.
    Exists,
    /// The length of an object.
    Size,
    /// Removal.
    Remove,
    /// Registration of memory.
    Register,
    /// The end of a registration.
    Unregister,
}

/// On which side of an operation's effect its failure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Nothing has happened.
    Before,
    /// It has happened; the caller is told that it failed.
    After,
}

/// Direction of a copy between device and pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Device to pool.
    Out,
    /// Pool to device.
    In,
}

/// What becomes of a message between a store client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageFate {
    /// The request never arrives.
    LoseRequest,
    /// The reply never arrives.
    LoseReply,
    /// The request arrives late, behind later ones.
    Delay {
        /// How late.
        by_ms: u64,
    },
    /// The reply arrives late.
    DelayReply {
        /// How late.
        by_ms: u64,
    },
    /// The request arrives again, after it has been answered.
    Duplicate {
        /// How long after.
        after_ms: u64,
    },
}

/// A store error code by Mooncake's number.
pub type Code = i32;
