//! The fault half of a plan: what goes wrong, where, when and for how long.
//!
//! A fault that lasts names its length (`for_ms`); one that hits operations names how many it hits
//! (`count`) and how long it lies in wait for them (`for_ms`). Nothing is drawn while a plan runs.

use serde::{Deserialize, Serialize};

/// A fault and when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// When it begins, in milliseconds from the start.
    pub at_ms: u64,
    /// What happens.
    pub fault: Fault,
}

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
}

/// A store error code by Mooncake's number.
pub type Code = i32;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// A host dies and starts again with nothing in memory.
    Crash {
        /// The host.
        host: String,
        /// How long it is down.
        for_ms: u64,
    },
    /// Every task of a host stands still.
    Pause {
        /// The host.
        host: String,
        /// How long.
        for_ms: u64,
    },
    /// Messages between two hosts vanish; their connections are reset when it ends.
    Partition {
        /// One side.
        a: String,
        /// The other side.
        b: String,
        /// How long.
        for_ms: u64,
    },
    /// Messages from one host to another vanish; the way back works.
    PartitionOneway {
        /// The host that is not heard.
        from: String,
        /// The host that does not hear.
        to: String,
        /// How long.
        for_ms: u64,
    },
    /// Messages between two hosts are kept and arrive when it ends.
    Hold {
        /// One side.
        a: String,
        /// The other side.
        b: String,
        /// How long.
        for_ms: u64,
    },
    /// Messages between two hosts take longer.
    Slow {
        /// One side.
        a: String,
        /// The other side.
        b: String,
        /// One-way latency.
        latency_ms: u64,
        /// How long.
        for_ms: u64,
    },
    /// Messages of a store client are lost or late.
    Messages {
        /// The client's host.
        host: String,
        /// The call whose messages are meant.
        op: Op,
        /// What becomes of them.
        fate: MessageFate,
        /// Only for this item, if one is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Store calls fail with a code.
    StoreCode {
        /// The client's host.
        host: String,
        /// The call.
        op: Op,
        /// The code.
        code: Code,
        /// Before or after the call's effect.
        moment: Moment,
        /// Only for this item, if one is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Store calls do not move for a while.
    Stall {
        /// The client's host.
        host: String,
        /// The call.
        op: Op,
        /// How long each stands still.
        stall_ms: u64,
        /// Only for this item, if one is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Connections of store calls end without an answer.
    Disconnect {
        /// The client's host.
        host: String,
        /// The call.
        op: Op,
        /// Before or after the call's effect.
        moment: Moment,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Transfers fail half way.
    Broken {
        /// The client's host.
        host: String,
        /// [`Op::PutTransfer`] or [`Op::GetTransfer`].
        op: Op,
        /// After so many bytes.
        bytes: u64,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Transfers report failure at the store's limit and go on afterwards.
    LateWrite {
        /// The client's host.
        host: String,
        /// [`Op::PutTransfer`] or [`Op::GetTransfer`].
        op: Op,
        /// How long after the report the bytes move.
        late_ms: u64,
        /// Only for this item, if one is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Gets report fewer bytes than the object has and leave the rest unwritten.
    ShortRead {
        /// The client's host.
        host: String,
        /// Bytes that are missing.
        missing: u64,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Transfers succeed with one byte inverted.
    FlippedByte {
        /// The client's host.
        host: String,
        /// [`Op::PutTransfer`] or [`Op::GetTransfer`].
        op: Op,
        /// Which byte, modulo the object's length.
        position: u64,
        /// Only for this item, if one is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Transfers succeed with somebody else's bytes.
    ForeignBytes {
        /// The client's host.
        host: String,
        /// [`Op::PutTransfer`] or [`Op::GetTransfer`].
        op: Op,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Copies from device to pool fail. The other direction has no such fault: a device that cannot write
    /// its own memory takes its engine with it.
    FailCopy {
        /// The instance's host.
        host: String,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// Copies between device and pool take longer.
    SlowCopy {
        /// The instance's host.
        host: String,
        /// Which copies.
        direction: Direction,
        /// How much longer.
        late_ms: u64,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// The kernels that produce tensors finish long after the engine has launched them.
    LateKernel {
        /// The instance's host.
        host: String,
        /// How long after.
        late_ms: u64,
        /// How many.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
    },
    /// A stranger fills the store with objects of its own and keeps them leased.
    FillStore {
        /// Bytes of each.
        object_bytes: u64,
        /// How many.
        objects: u32,
        /// How long it keeps them.
        for_ms: u64,
    },
    /// Everything without a lease leaves the store at once.
    EvictAll,
    /// One object is removed, leases or not.
    Remove {
        /// Identifier of the item.
        item: String,
    },
    /// A stranger puts an object with meaningless bytes under an item's key.
    Plant {
        /// Identifier of the item.
        item: String,
        /// Length of the object.
        bytes: u64,
    },
    /// Somebody else holds a part of a pool.
    HogPool {
        /// The instance's host.
        host: String,
        /// Which part.
        permille: u64,
        /// How long.
        for_ms: u64,
    },
    /// A connector is shut down; its engine goes on.
    Close {
        /// The instance's host.
        host: String,
    },
}

macro_rules! fault_kinds {
    ($($variant:ident $name:literal $text:literal;)*) => {
        /// The kind of a fault, for reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultKind {
            $(#[doc = $text] $variant,)*
        }

        impl FaultKind {
            /// Every kind, in the order of [`Fault`].
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name that a plan file uses.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it does, one line.
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl Fault {
            /// The kind of this fault.
            pub fn kind(&self) -> FaultKind {
                match self { $(Self::$variant { .. } => FaultKind::$variant,)* }
            }
        }
    };
}

fault_kinds! {
    Crash "crash" "a host dies and starts again with nothing in memory (master: all metadata is lost)";
    Pause "pause" "every task of a host stands still";
    Partition "partition" "messages between two hosts vanish, their connections are reset at the end";
    PartitionOneway "partition_oneway" "messages from one host to another vanish, the way back works";
    Hold "hold" "messages between two hosts are kept and arrive at the end";
    Slow "slow" "messages between two hosts take longer";
    Messages "messages" "messages of a store client are lost or late";
    StoreCode "store_code" "store calls fail with a code, before or after their effect";
    Stall "stall" "store calls do not move for a while";
    Disconnect "disconnect" "connections of store calls end without an answer, before or after their effect";
    Broken "broken" "transfers fail half way";
    LateWrite "late_write" "transfers report failure at the store's limit and go on afterwards";
    ShortRead "short_read" "gets report fewer bytes than the object has";
    FlippedByte "flipped_byte" "transfers succeed with one byte inverted";
    ForeignBytes "foreign_bytes" "transfers succeed with somebody else's bytes";
    FailCopy "fail_copy" "copies from device to pool fail";
    SlowCopy "slow_copy" "copies between device and pool take longer";
    LateKernel "late_kernel" "kernels finish long after the engine has launched them";
    FillStore "fill_store" "a stranger fills the store and keeps its objects leased";
    EvictAll "evict_all" "everything without a lease leaves the store at once";
    Remove "remove" "one object is removed, leases or not";
    Plant "plant" "a stranger puts meaningless bytes under an item's key";
    HogPool "hog_pool" "somebody else holds a part of a pool";
    Close "close" "a connector is shut down, its engine goes on";
}

impl Fault {
    /// How long it lasts or waits, zero for those that happen at once.
    pub fn for_ms(&self) -> u64 {
        match self {
            Self::Crash { for_ms, .. }
            | Self::Pause { for_ms, .. }
            | Self::Partition { for_ms, .. }
            | Self::PartitionOneway { for_ms, .. }
            | Self::Hold { for_ms, .. }
            | Self::Slow { for_ms, .. }
            | Self::Messages { for_ms, .. }
            | Self::StoreCode { for_ms, .. }
            | Self::Stall { for_ms, .. }
            | Self::Disconnect { for_ms, .. }
            | Self::Broken { for_ms, .. }
            | Self::LateWrite { for_ms, .. }
            | Self::ShortRead { for_ms, .. }
            | Self::FlippedByte { for_ms, .. }
            | Self::ForeignBytes { for_ms, .. }
            | Self::FailCopy { for_ms, .. }
            | Self::SlowCopy { for_ms, .. }
            | Self::LateKernel { for_ms, .. }
            | Self::FillStore { for_ms, .. }
            | Self::HogPool { for_ms, .. } => *for_ms,
            Self::EvictAll | Self::Remove { .. } | Self::Plant { .. } | Self::Close { .. } => 0,
        }
    }

    /// The hosts that it names.
    pub fn hosts(&self) -> Vec<&str> {
        match self {
            Self::Crash { host, .. }
            | Self::Pause { host, .. }
            | Self::Messages { host, .. }
            | Self::StoreCode { host, .. }
            | Self::Stall { host, .. }
            | Self::Disconnect { host, .. }
            | Self::Broken { host, .. }
            | Self::LateWrite { host, .. }
            | Self::ShortRead { host, .. }
            | Self::FlippedByte { host, .. }
            | Self::ForeignBytes { host, .. }
            | Self::FailCopy { host, .. }
            | Self::SlowCopy { host, .. }
            | Self::LateKernel { host, .. }
            | Self::HogPool { host, .. }
            | Self::Close { host } => vec![host],
            Self::Partition { a, b, .. } | Self::Hold { a, b, .. } | Self::Slow { a, b, .. } => {
                vec![a, b]
            }
            Self::PartitionOneway { from, to, .. } => vec![from, to],
            Self::FillStore { .. } | Self::EvictAll | Self::Remove { .. } | Self::Plant { .. } => {
                vec![]
            }
        }
    }
}
