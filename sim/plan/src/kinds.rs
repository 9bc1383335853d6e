//! The kinds of fault: names, one line of text each, and what all of them have in common.

use super::{Fault, Moment};

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

            /// The kind of this name.
            pub fn find(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name)
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
    Messages "messages" "messages of a store client are lost, late or doubled";
    StoreCode "store_code" "store calls fail with a code, before or after their effect";
    Stall "stall" "store calls do not move for a while";
    Disconnect "disconnect" "connections of store calls end without an answer, before or after their effect";
    Broken "broken" "transfers fail half way";
    LateWrite "late_write" "transfers report failure at the store's limit and go on afterwards";
    ShortRead "short_read" "gets report fewer bytes than the object has";
    FlippedByte "flipped_byte" "transfers succeed with one byte inverted";
    ForeignBytes "foreign_bytes" "transfers succeed with somebody else's bytes";
    Panic "panic" "store calls panic in their caller's face";
    FailCopy "fail_copy" "copies from device to pool fail";
    SlowCopy "slow_copy" "copies between device and pool take longer";
    LateKernel "late_kernel" "kernels finish long after the engine has launched them";
    FillStore "fill_store" "a stranger fills the store and keeps its objects leased";
    ShortLease "short_lease" "leases that the store gives are short for a while";
    EvictAll "evict_all" "everything without a lease leaves the store at once";
    Remove "remove" "one object is removed, leases or not";
    Plant "plant" "a stranger puts meaningless bytes under an item's key";
    DoubleSave "double_save" "the engine hands an item to its connector twice at once";
    HogPool "hog_pool" "somebody else holds a part of a pool";
    Close "close" "a connector is shut down, its engine goes on";
}

impl FaultKind {
    /// On which sides of an operation's effect it can lie; none where there is no operation, or where it
    /// lies in the middle of one.
    pub fn moments(self) -> &'static [Moment] {
        match self {
            Self::Messages | Self::StoreCode | Self::Disconnect => &[Moment::Before, Moment::After],
            Self::Stall | Self::Panic | Self::FailCopy => &[Moment::Before],
            _ => &[],
        }
    }
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
            | Self::Panic { for_ms, .. }
            | Self::FailCopy { for_ms, .. }
            | Self::SlowCopy { for_ms, .. }
            | Self::LateKernel { for_ms, .. }
            | Self::FillStore { for_ms, .. }
            | Self::ShortLease { for_ms, .. }
            | Self::DoubleSave { for_ms, .. }
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
            | Self::Panic { host, .. }
            | Self::FailCopy { host, .. }
            | Self::SlowCopy { host, .. }
            | Self::LateKernel { host, .. }
            | Self::HogPool { host, .. }
            | Self::DoubleSave { host, .. }
            | Self::Close { host } => vec![host],
            Self::Partition { a, b, .. } | Self::Hold { a, b, .. } | Self::Slow { a, b, .. } => {
                vec![a, b]
            }
            Self::PartitionOneway { from, to, .. } => vec![from, to],
            Self::FillStore { .. }
            | Self::ShortLease { .. }
            | Self::EvictAll
            | Self::Remove { .. }
            | Self::Plant { .. } => vec![],
        }
    }
}
