//! Mooncake Store's error codes, with what each means for a buffer and for a retry.
//!
//! Numbers and names are Mooncake's own (`types.h`, August 2026). The two classifications come from
//! experiments with the real store: after which codes I/O may still touch the caller's buffer, and after
//! which the same call may be made again.

use std::fmt;

/// Whether I/O may still touch the caller's buffer after a call returned with a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// Nothing was started, or everything has ended.
    Never,
    /// Nothing, unless the call ran up to the store's transfer limit (60 s): then the transfer goes on.
    AfterTransferLimit,
    /// It cannot be known.
    Unknown,
}

/// Whether the same call may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call fails again, or must not be repeated.
    Never,
    /// Nothing happened; it may succeed after a pause.
    AfterPause,
    /// The effect is unknown: look first ([`super::Store::exists`]), then it is safe to repeat.
    AfterProbe,
}

macro_rules! error_codes {
    ($($number:literal $variant:ident $name:literal $in_flight:ident $retry:ident $text:literal;)*) => {
        /// An error code of Mooncake Store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $name, "` (", stringify!($number), "): ", $text, ".")] $variant,)*
            /// A code that this table does not know. Treated as the worst of each class.
            Other(i32),
        }

        impl ErrorCode {
            /// Every code of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code with this number. Zero and positive numbers are results, not errors, and become
            /// [`ErrorCode::Other`].
            pub fn from_number(number: i32) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// Mooncake's number.
            pub fn number(self) -> i32 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(number) => number,
                }
            }

            /// Mooncake's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(_) => "UNKNOWN",
                }
            }

            /// What it means.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(_) => "a code this version does not know",
                }
            }

            /// Whether I/O may still touch the caller's buffer after this code.
            pub fn in_flight(self) -> InFlight {
                match self {
                    $(Self::$variant => InFlight::$in_flight,)*
                    Self::Other(_) => InFlight::Unknown,
                }
            }

            /// Whether the same call may be made again after this code.
            pub fn retry(self) -> Retry {
                match self {
                    $(Self::$variant => Retry::$retry,)*
                    Self::Other(_) => Retry::Never,
                }
            }
        }
    };
}

error_codes! {
    -1    Internal "INTERNAL_ERROR" Unknown AfterProbe "internal error, null argument or an exception";
    -10   BufferOverflow "BUFFER_OVERFLOW" Never Never "the sum of sizes overflows";
    -100  ShardIndexOutOfRange "SHARD_INDEX_OUT_OF_RANGE" Never Never "shard index out of range";
    -101  SegmentNotFound "SEGMENT_NOT_FOUND" Never Never "no such segment";
    -102  SegmentAlreadyExists "SEGMENT_ALREADY_EXISTS" Never Never "segment already mounted";
    -103  ClientNotFound "CLIENT_NOT_FOUND" Never Never "no such client";
    -200  NoAvailableHandle "NO_AVAILABLE_HANDLE" Never AfterPause "no space for even one replica";
    -300  InvalidVersion "INVALID_VERSION" Never Never "invalid version";
    -400  InvalidKey "INVALID_KEY" Never Never "invalid key";
    -500  WriteFail "WRITE_FAIL" Unknown AfterProbe "write failed";
    -600  InvalidParams "INVALID_PARAMS" Never Never "parameters were refused";
    -601  IllegalClient "ILLEGAL_CLIENT" Never AfterProbe "the put belongs to another client by now";
    -700  InvalidWrite "INVALID_WRITE" Never AfterProbe "no put of this key is in progress";
    -701  InvalidRead "INVALID_READ" Never Never "invalid read";
    -702  InvalidReplica "INVALID_REPLICA" Never AfterPause "no complete replica";
    -703  ReplicaIsNotReady "REPLICA_IS_NOT_READY" Never AfterPause "the object is still being written";
    -704  ObjectNotFound "OBJECT_NOT_FOUND" Never AfterProbe "no such object";
    -705  ObjectAlreadyExists "OBJECT_ALREADY_EXISTS" Never Never "the object exists";
    -706  ObjectHasLease "OBJECT_HAS_LEASE" Never AfterPause "a reader holds a lease on the object";
    -707  LeaseExpired "LEASE_EXPIRED" Never AfterPause "the read lease ended before the transfer did";
    -708  ObjectHasReplicationTask "OBJECT_HAS_REPLICATION_TASK" Never AfterPause "a copy or move of the object runs";
    -709  ObjectNoReplicationTask "OBJECT_NO_REPLICATION_TASK" Never Never "no copy or move of the object runs";
    -710  ReplicaNotFound "REPLICA_NOT_FOUND" Never Never "no such replica";
    -711  ReplicaAlreadyExists "REPLICA_ALREADY_EXISTS" Never Never "replica exists";
    -712  ReplicaIsGone "REPLICA_IS_GONE" Never Never "the replica is gone";
    -713  ReplicaNotInLocalMemory "REPLICA_NOT_IN_LOCAL_MEMORY" Never Never "the replica lies on another node";
    -714  ObjectReplicaBusy "OBJECT_REPLICA_BUSY" Never AfterPause "a replica is referenced by a task";
    -800  TransferFail "TRANSFER_FAIL" AfterTransferLimit AfterPause "the data transfer failed or ran into its limit";
    -801  ChecksumMismatch "CHECKSUM_MISMATCH" Never Never "the store's own checksum differs";
    -900  RpcFail "RPC_FAIL" Never AfterProbe "the master was not reached, or its reply was lost";
    -901  RpcTimeout "RPC_TIMEOUT" Never AfterProbe "the master did not answer in time; the call may still take effect";
    -1000 EtcdOperationError "ETCD_OPERATION_ERROR" Never AfterPause "etcd failed";
    -1001 EtcdKeyNotExist "ETCD_KEY_NOT_EXIST" Never Never "no such key in etcd";
    -1002 EtcdTransactionFail "ETCD_TRANSACTION_FAIL" Never AfterPause "an etcd transaction failed";
    -1003 EtcdCtxCancelled "ETCD_CTX_CANCELLED" Never AfterPause "an etcd call was cancelled";
    -1004 OplogEntryNotFound "OPLOG_ENTRY_NOT_FOUND" Never Never "no such operation log entry";
    -1005 K8sLeaseOperationError "K8S_LEASE_OPERATION_ERROR" Never AfterPause "a leader lease operation failed";
    -1006 K8sLeaseNotFound "K8S_LEASE_NOT_FOUND" Never Never "no leader lease";
    -1007 IncompleteOplogCatchUp "INCOMPLETE_OPLOG_CATCH_UP" Never AfterPause "a standby has not caught up";
    -1010 UnavailableInCurrentStatus "UNAVAILABLE_IN_CURRENT_STATUS" Never AfterPause "not now: standby, or the segment is unmounting";
    -1011 UnavailableInCurrentMode "UNAVAILABLE_IN_CURRENT_MODE" Never Never "not in this mode";
    -1012 NotSupported "NOT_SUPPORTED" Never Never "not supported";
    -1100 FileNotFound "FILE_NOT_FOUND" Never Never "no such file";
    -1101 FileOpenFail "FILE_OPEN_FAIL" Never AfterPause "a file could not be opened";
    -1102 FileReadFail "FILE_READ_FAIL" Never AfterPause "a file could not be read";
    -1103 FileWriteFail "FILE_WRITE_FAIL" Never AfterPause "a file could not be written";
    -1104 FileInvalidBuffer "FILE_INVALID_BUFFER" Never Never "a file buffer is wrong";
    -1105 FileLockFail "FILE_LOCK_FAIL" Never AfterPause "a file could not be locked";
    -1106 FileInvalidHandle "FILE_INVALID_HANDLE" Never Never "a file handle is invalid";
    -1200 BucketNotFound "BUCKET_NOT_FOUND" Never Never "no such bucket";
    -1201 BucketAlreadyExists "BUCKET_ALREADY_EXISTS" Never Never "bucket exists";
    -1202 KeysExceedBucketLimit "KEYS_EXCEED_BUCKET_LIMIT" Never Never "too many keys for a bucket";
    -1203 KeysUltraLimit "KEYS_ULTRA_LIMIT" Never Never "too many keys";
    -1300 UnableOffload "UNABLE_OFFLOAD" Never Never "offload is off";
    -1301 UnableOffloading "UNABLE_OFFLOADING" Never Never "offloading is not possible";
    -1400 TaskNotFound "TASK_NOT_FOUND" Never Never "no such task";
    -1401 TaskPendingLimitExceeded "TASK_PENDING_LIMIT_EXCEEDED" Never AfterPause "too many pending tasks";
    -1402 JobNotFound "JOB_NOT_FOUND" Never Never "no such job";
    -1500 SerializeUnsupported "SERIALIZE_UNSUPPORTED" Never Never "cannot be serialized";
    -1501 SerializeFail "SERIALIZE_FAIL" Never Never "serialization failed";
    -1502 DeserializeFail "DESERIALIZE_FAIL" Never Never "deserialization failed";
    -1503 PersistentFail "PERSISTENT_FAIL" Never AfterPause "persisting failed";
    -1600 DfsNetworkTimeout "DFS_NETWORK_TIMEOUT" Unknown AfterProbe "the distributed file system timed out";
    -1601 DfsServiceUnavailable "DFS_SERVICE_UNAVAILABLE" Never AfterPause "the distributed file system is down";
    -1602 DfsQuotaExceeded "DFS_QUOTA_EXCEEDED" Never Never "distributed file system quota exceeded";
    -1603 DfsPermissionDenied "DFS_PERMISSION_DENIED" Never Never "distributed file system permission denied";
    -1604 DfsStaleHandle "DFS_STALE_HANDLE" Never AfterPause "stale distributed file system handle";
    -1605 DfsPartialWrite "DFS_PARTIAL_WRITE" Never AfterProbe "partial write to the distributed file system";
    -1700 TenantQuotaExceeded "TENANT_QUOTA_EXCEEDED" Never Never "the tenant's quota is used up";
    -1701 TenantNotRegistered "TENANT_NOT_REGISTERED" Never Never "no such tenant";
    -1702 TenantNotEmpty "TENANT_NOT_EMPTY" Never Never "the tenant has objects";
}

impl fmt::Display for ErrorCode {
    /// `NO_AVAILABLE_HANDLE (-200)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::*;
    use crate::env::StoreError;

    #[test]
    fn numbers_round_trip_and_are_unique() {
        let numbers: BTreeSet<i32> = ErrorCode::ALL.iter().map(|code| code.number()).collect();
        let names: BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(numbers.len(), ErrorCode::ALL.len());
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), *code);
            assert!(code.number() < 0);
        }
    }

    #[test]
    fn unknown_codes_keep_their_number_and_are_the_worst_case() {
        let code = ErrorCode::from_number(-4242);
        assert_eq!(code.number(), -4242);
        assert_eq!(code.in_flight(), InFlight::Unknown);
        assert_eq!(code.retry(), Retry::Never);
        assert_eq!(code.to_string(), "UNKNOWN (-4242)");
    }

    #[test]
    fn transfer_failure_is_in_flight_only_at_the_limit() {
        let early = StoreError::new(ErrorCode::TransferFail, Duration::from_secs(30));
        let late = StoreError::new(ErrorCode::TransferFail, Duration::from_secs(60));
        assert!(!early.may_be_in_flight());
        assert!(late.may_be_in_flight());
        assert_eq!(late.to_string(), "TRANSFER_FAIL (-800) after 60.000 s");
    }
}
