//! A client's configuration: what `setup` gets, what Mooncake reads from its environment, and what only a
//! fake can turn.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use springtide::env::{StoreError, StoreLimits};

use crate::protocol::{ClientId, ReplicaConfig};

/// The data plane. Decides whether memory must be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Registration is not needed.
    #[default]
    Tcp,
    /// A transfer of unregistered memory fails with -800.
    Rdma,
}

/// What closing a client brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// Every transfer stops, late ones included: the client is fenced.
    #[default]
    Fences,
    /// Transfers go on; nothing is promised.
    LeavesTransfers,
    /// Never returns.
    Hangs,
}

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Its identity at the master. Must differ from that of every other client, dead ones included.
    pub id: ClientId,
    /// Its name, `host:port`.
    pub hostname: String,
    /// The data plane.
    pub protocol: Protocol,
    /// What its puts through [`springtide::env::Store`] ask for.
    pub replica: ReplicaConfig,
    /// Buffers that one object may consist of. 1 is the C ABI (`batch_put_from`, `batch_get_into`), more
    /// the Python class (`batch_*_multi_buffers`); they differ in duplicates and in sizes.
    pub buffers_per_object: usize,
    /// What it says in [`springtide::env::Store::limits`] about the fragments of a batch.
    pub fragments_per_batch: usize,
    /// Fragments of one batch to one peer that its transport queue takes; the tail fails with -800.
    pub fragments_per_peer_max: usize,
    /// Longer parts are cut into fragments of this length on the wire.
    pub fragment_bytes: u64,
    /// The largest object, if it says so.
    pub object_bytes_max: Option<u64>,
    /// Staging memory for the copying path; a value that does not fit is refused.
    pub local_buffer_bytes: u64,
    /// How long it waits for the master (-901 then).
    #[serde(rename = "rpc_timeout_ms", with = "crate::millis")]
    pub rpc_timeout: Duration,
    /// How long it goes on trying to connect to a master that refused the call before, too. The first
    /// refusal is reported at once.
    #[serde(rename = "reconnect_ms", with = "crate::millis")]
    pub reconnect: Duration,
    /// How long it waits for an object's transfer (-800 then, and the transfer goes on).
    #[serde(rename = "transfer_limit_ms", with = "crate::millis")]
    pub transfer_limit: Duration,
    /// What closing does.
    pub closing: Closing,
    /// How long closing takes at least.
    #[serde(rename = "closing_time_ms", with = "crate::millis")]
    pub closing_time: Duration,
}

impl Default for ClientConfig {
    /// Mooncake over tcp with scatter/gather, closing at once.
    fn default() -> Self {
        Self {
            id: ClientId(1),
            hostname: "client:17".into(),
            protocol: Protocol::Tcp,
            replica: ReplicaConfig::default(),
            buffers_per_object: 16,
            fragments_per_batch: 1024,
            fragments_per_peer_max: 2048,
            fragment_bytes: (16 << 20) - 16,
            object_bytes_max: None,
            local_buffer_bytes: 64 << 20,
            rpc_timeout: Duration::from_secs(30),
            reconnect: Duration::from_millis(4300),
            transfer_limit: StoreError::MOONCAKE_TRANSFER_LIMIT,
            closing: Closing::Fences,
            closing_time: Duration::ZERO,
        }
    }
}

impl ClientConfig {
    /// The defaults for a client with this identity and name.
    pub fn new(id: ClientId, hostname: impl Into<String>) -> Self {
        Self { id, hostname: hostname.into(), ..Self::default() }
    }

    /// One buffer an object, as the C ABI has it.
    #[must_use]
    pub fn single_buffer(self) -> Self {
        Self { buffers_per_object: 1, ..self }
    }

    pub(super) fn limits(&self) -> StoreLimits {
        StoreLimits {
            buffers_per_object: self.buffers_per_object,
            fragments_per_batch: self.fragments_per_batch,
            object_bytes_max: self.object_bytes_max,
        }
    }
}
