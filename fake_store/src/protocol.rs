//! What a client asks the master, and what the master answers.
//!
//! One form for single calls and batches: a list with one result per item, as Mooncake's batch calls have it
//! (its single calls do the same to a list of one). The types are plain data with a serialized form, so that
//! the pure master, the in-process transport and the wire share them.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use springtide::env::ErrorCode;

/// One store handle. Mooncake draws 128 random bits; here whoever makes the client names it, and gives a
/// restarted process a new name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client-{}", self.0)
    }
}

/// One piece of lent memory. Unique among the living and the dead: a restarted owner mounts a new one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SegmentId(pub u64);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment-{}", self.0)
    }
}

/// Memory that a client lends to the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its identity.
    pub id: SegmentId,
    /// The name that placement knows it by: its owner's host name. Several segments may share one.
    pub name: String,
    /// Where its owner serves transfers, `host:port`.
    pub endpoint: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Where one copy of an object lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// The segment.
    pub segment: SegmentId,
    /// The segment's name.
    pub segment_name: String,
    /// Where the segment's owner serves transfers.
    pub endpoint: String,
    /// First byte within the segment.
    pub offset: u64,
    /// Length of the object in bytes.
    pub bytes: u64,
}

/// What a put wants beyond its bytes (`mooncake_replicate_config_t`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicaConfig {
    /// Copies wanted; fewer are made when fewer segments have room. Zero is refused.
    pub replica_num: u64,
    /// Evict last, for a time.
    pub soft_pin: SoftPin,
    /// Never evict.
    pub hard_pin: bool,
    /// Segment names to try first, in order.
    pub preferred_segments: Vec<String>,
}

impl Default for ReplicaConfig {
    /// One replica, no pins: what a null config means in the C ABI.
    fn default() -> Self {
        Self {
            replica_num: 1,
            soft_pin: SoftPin::Preserve,
            hard_pin: false,
            preferred_segments: Vec::new(),
        }
    }
}

/// What a put does to an object's soft pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoftPin {
    /// Leave it: none for a new object.
    #[default]
    Preserve,
    /// Start it when the put ends, for the master's default time.
    Enable,
    /// Start it when the put ends, for this time; longer than the master's limit is refused.
    EnableFor(#[serde(with = "crate::millis")] Duration),
}

/// A call to the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Who calls.
    pub client: ClientId,
    /// What it calls.
    pub call: Call,
}

/// An object to be put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewObject {
    /// Its name.
    pub key: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What can be asked of the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Allocate space and enter the objects as being put. Answered by [`Reply::Started`].
    PutStart {
        /// The objects, in order.
        objects: Vec<NewObject>,
        /// For all of them.
        config: ReplicaConfig,
    },
    /// The same, replacing what exists. Answered by [`Reply::Started`].
    UpsertStart {
        /// The objects, in order.
        objects: Vec<NewObject>,
        /// For all of them.
        config: ReplicaConfig,
    },
    /// Make puts visible. Answered by [`Reply::Done`].
    PutEnd {
        /// Their keys.
        keys: Vec<String>,
    },
    /// Give puts up and free their space. Answered by [`Reply::Done`].
    PutRevoke {
        /// Their keys.
        keys: Vec<String>,
    },
    /// Where objects lie; takes a read lease. Answered by [`Reply::Found`].
    Query {
        /// Their keys.
        keys: Vec<String>,
    },
    /// The same, asked for the objects' lengths. Answered by [`Reply::Found`].
    Size {
        /// Their keys.
        keys: Vec<String>,
    },
    /// Whether objects are readable; takes a read lease. Answered by [`Reply::Exists`].
    Exist {
        /// Their keys.
        keys: Vec<String>,
    },
    /// Remove objects. Answered by [`Reply::Done`].
    Remove {
        /// Their keys.
        keys: Vec<String>,
        /// In spite of leases.
        force: bool,
    },
    /// Remove every object whose key contains a match. Answered by [`Reply::Removed`].
    RemoveByRegex {
        /// The expression.
        pattern: String,
        /// In spite of leases.
        force: bool,
    },
    /// Remove every object. Answered by [`Reply::Removed`].
    RemoveAll {
        /// In spite of leases.
        force: bool,
    },
    /// Lend a segment. Answered by [`Reply::Segment`].
    Mount {
        /// The segment.
        segment: Segment,
    },
    /// Take a segment back, with every replica in it. Answered by [`Reply::Segment`].
    Unmount {
        /// The segment.
        segment: SegmentId,
    },
    /// A sign of life. Answered by [`Reply::Pong`].
    Ping,
    /// Lend again, empty, after [`ClientStatus::NeedRemount`]. Answered by [`Reply::Segment`].
    Remount {
        /// All segments of the client.
        segments: Vec<Segment>,
    },
}

impl Call {
    /// The keys it names, in order; none for calls about segments and patterns.
    pub fn keys(&self) -> Vec<&str> {
        match self {
            Self::PutStart { objects, .. } | Self::UpsertStart { objects, .. } => {
                objects.iter().map(|object| object.key.as_str()).collect()
            }
            Self::PutEnd { keys }
            | Self::PutRevoke { keys }
            | Self::Query { keys }
            | Self::Size { keys }
            | Self::Exist { keys }
            | Self::Remove { keys, .. } => keys.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// The answer in which every item failed with `code`.
    pub fn failed(&self, code: ErrorCode) -> Reply {
        let n = self.keys().len();
        match self {
            Self::PutStart { .. } | Self::UpsertStart { .. } => {
                Reply::Started(vec![Err(Code(code)); n])
            }
            Self::PutEnd { .. } | Self::PutRevoke { .. } | Self::Remove { .. } => {
                Reply::Done(vec![Err(Code(code)); n])
            }
            Self::Query { .. } | Self::Size { .. } => Reply::Found(vec![Err(Code(code)); n]),
            Self::Exist { .. } => Reply::Exists(vec![Err(Code(code)); n]),
            Self::RemoveByRegex { .. } | Self::RemoveAll { .. } => Reply::Removed(Err(Code(code))),
            Self::Mount { .. } | Self::Unmount { .. } | Self::Remount { .. } | Self::Ping => {
                Reply::Segment(Err(Code(code)))
            }
        }
    }
}

/// What the master answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To a start: where to write each object, or why not.
    Started(Vec<Result<Vec<Replica>, Code>>),
    /// To an end, a revoke, a remove.
    Done(Vec<Result<(), Code>>),
    /// To a query.
    Found(Vec<Result<Readable, Code>>),
    /// To an exist.
    Exists(Vec<Result<bool, Code>>),
    /// To a removal by pattern or of all: how many objects went.
    Removed(Result<u64, Code>),
    /// To a mount, unmount, remount.
    Segment(Result<(), Code>),
    /// To a ping.
    Pong(ClientStatus),
}

/// An object that can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readable {
    /// Its complete replicas, in the order of their allocation; at least one.
    pub replicas: Vec<Replica>,
    /// How long the lease lasts that the query took, from the master's point of view.
    pub lease_ttl: Duration,
}

/// What the master thinks of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientStatus {
    /// Known and alive.
    Ok,
    /// Not known (a new master), or given up: its segments must be mounted again.
    NeedRemount,
}

/// An [`ErrorCode`] in serialized form: Mooncake's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "i32", into = "i32")]
pub struct Code(pub ErrorCode);

impl From<i32> for Code {
    fn from(number: i32) -> Self {
        Self(ErrorCode::from_number(number))
    }
}

impl From<Code> for i32 {
    fn from(code: Code) -> Self {
        code.0.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_numbers() {
        let code = Code(ErrorCode::LeaseExpired);
        assert_eq!(serde_json::to_string(&code).unwrap(), "-707");
        assert_eq!(serde_json::from_str::<Code>("-707").unwrap(), code);
        assert_eq!(serde_json::from_str::<Code>("-9").unwrap(), Code(ErrorCode::Other(-9)));
    }

    #[test]
    fn a_failed_batch_has_a_result_for_each_item() {
        let call = Call::Exist { keys: vec!["a".into(), "b".into()] };
        let failed = Err(Code(ErrorCode::RpcFail));
        assert_eq!(call.failed(ErrorCode::RpcFail), Reply::Exists(vec![failed, failed]));
    }
}
