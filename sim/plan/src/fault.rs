//! The fault half of a plan: what goes wrong, where, when and for how long.
//!
//! A fault that lasts names its length (`for_ms`); one that hits operations names how many it hits
//! (`count`) and how long it lies in wait for them (`for_ms`). Nothing is drawn while a plan runs.

use serde::{Deserialize, Serialize};

use super::words::{Code, Direction, MessageFate, Moment, Op};

/// A fault and when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// When it begins, in milliseconds from the start.
    pub at_ms: u64,
    /// What happens.
    pub fault: Fault,
}

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
    /// Messages of a store client are lost, late or doubled.
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
    /// Store calls panic in their caller's face, whoever runs the store's code.
    Panic {
        /// The client's host.
        host: String,
        /// [`Op::PutStart`] for puts, [`Op::Query`] for gets, or a call that is one call.
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
    /// Leases that the store gives are this short for a while.
    ShortLease {
        /// Their length.
        ttl_ms: u64,
        /// How long.
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
        /// With the header and the checksum that such an item has, so that only a seal tells them apart.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        forged: bool,
    },
    /// The engine hands an item to its connector twice at once.
    DoubleSave {
        /// The instance's host.
        host: String,
        /// How many items.
        count: u32,
        /// How long it waits for them.
        for_ms: u64,
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
