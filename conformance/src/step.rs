//! What is done to a store: calls, events and waits, as data. A saved sequence is a list of these.
//!
//! The calls are those of Mooncake's Python class; those of the C ABI are among them. Keys are short texts,
//! to which a run adds a prefix of its own; clients are numbers of the [`World`].

use serde::{Deserialize, Serialize};

/// The store that a sequence runs on: the master's flags and the clients, in both arms alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct World {
    /// `default_kv_lease_ttl`.
    pub lease_ttl_ms: u64,
    /// `default_kv_soft_pin_ttl`.
    pub soft_pin_ttl_ms: u64,
    /// `allow_evict_soft_pinned_objects`.
    pub evict_soft_pinned: bool,
    /// `eviction_high_watermark_ratio`.
    pub watermark: f64,
    /// `eviction_ratio`.
    pub eviction_ratio: f64,
    /// `put_start_discard_timeout_sec`.
    pub discard_s: u64,
    /// `put_start_release_timeout_sec`.
    pub release_s: u64,
    /// `client_ttl`.
    pub client_ttl_s: u64,
    /// `MC_RPC_TIMEOUT_MS` of the clients.
    pub rpc_timeout_ms: u64,
    /// `MC_TCP_STATUS_TIMEOUT_SEC` of the clients.
    pub status_timeout_s: u64,
    /// For each client the bytes that it lends.
    pub segments: Vec<u64>,
}

impl Default for World {
    /// One owner with more room than any sequence fills, one client without memory, short leases.
    fn default() -> Self {
        Self {
            lease_ttl_ms: 1000,
            soft_pin_ttl_ms: 1_800_000,
            evict_soft_pinned: true,
            watermark: 0.90,
            eviction_ratio: 0.05,
            discard_s: 2,
            release_s: 600,
            client_ttl_s: 30,
            rpc_timeout_ms: 30_000,
            status_timeout_s: 30,
            segments: vec![256 << 20, 0],
        }
    }
}

/// How a put asks for its object to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// `replica_num`.
    pub replicas: u32,
    /// `soft_pin_action` ENABLE.
    pub soft_pin: bool,
    /// `with_hard_pin`.
    pub hard_pin: bool,
    /// The client whose segment is preferred; one that lends nothing is a name that nobody knows.
    pub prefer: Option<usize>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { replicas: 1, soft_pin: false, hard_pin: false, prefer: None }
    }
}

/// An object to be put: its bytes are [`content`] of all parts together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its key.
    pub key: String,
    /// The lengths of its buffers. Calls with one buffer an object take their sum.
    pub parts: Vec<u32>,
    /// What its bytes are made of.
    pub seed: u8,
}

impl Object {
    /// Its length.
    pub fn bytes(&self) -> u32 {
        self.parts.iter().sum()
    }
}

/// Room for an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The object's key.
    pub key: String,
    /// The lengths of its buffers. Calls with one buffer an object take their sum.
    pub parts: Vec<u32>,
}

impl Room {
    /// How many bytes it takes.
    pub fn bytes(&self) -> u32 {
        self.parts.iter().sum()
    }
}

/// One call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of Mooncake's methods and their parameters")]
pub enum Call {
    IsExist { key: String },
    BatchIsExist { keys: Vec<String> },
    GetSize { key: String },
    Get { key: String },
    GetInto { room: Room },
    BatchGetInto { rooms: Vec<Room> },
    BatchGetIntoMultiBuffers { rooms: Vec<Room> },
    Put { object: Object, keep: Keep },
    PutFrom { object: Object, keep: Keep },
    PutParts { object: Object, keep: Keep },
    PutBatch { objects: Vec<Object>, keep: Keep },
    BatchPutFrom { objects: Vec<Object>, keep: Keep },
    BatchPutFromMultiBuffers { objects: Vec<Object>, keep: Keep },
    Upsert { object: Object, keep: Keep },
    Start { key: String, bytes: u32, keep: Keep },
    End { key: String },
    Revoke { key: String },
    Remove { key: String, force: bool },
    BatchRemove { keys: Vec<String>, force: bool },
    RemoveByRegex { pattern: String, force: bool },
    RemoveAll { force: bool },
    RegisterBuffer { at: u32, bytes: u32 },
    UnregisterBuffer { at: u32 },
    HealthCheck,
}

impl Call {
    /// The keys that it names, in order.
    pub fn keys(&self) -> Vec<&str> {
        match self {
            Self::IsExist { key }
            | Self::GetSize { key }
            | Self::Get { key }
            | Self::Start { key, .. }
            | Self::End { key }
            | Self::Revoke { key }
            | Self::Remove { key, .. } => vec![key],
            Self::BatchIsExist { keys } | Self::BatchRemove { keys, .. } => {
                keys.iter().map(String::as_str).collect()
            }
            Self::GetInto { room } => vec![&room.key],
            Self::BatchGetInto { rooms } | Self::BatchGetIntoMultiBuffers { rooms } => {
                rooms.iter().map(|room| room.key.as_str()).collect()
            }
            Self::Put { object, .. }
            | Self::PutFrom { object, .. }
            | Self::PutParts { object, .. }
            | Self::Upsert { object, .. } => vec![&object.key],
            Self::PutBatch { objects, .. }
            | Self::BatchPutFrom { objects, .. }
            | Self::BatchPutFromMultiBuffers { objects, .. } => {
                objects.iter().map(|object| object.key.as_str()).collect()
            }
            Self::RemoveByRegex { .. }
            | Self::RemoveAll { .. }
            | Self::RegisterBuffer { .. }
            | Self::UnregisterBuffer { .. }
            | Self::HealthCheck => Vec::new(),
        }
    }

    /// The same call with every key prefixed. The empty key stays empty; patterns are bound to the prefix.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        let add = |key: &mut String| {
            if !key.is_empty() {
                key.insert_str(0, prefix);
            }
        };
        match &mut self {
            Self::IsExist { key }
            | Self::GetSize { key }
            | Self::Get { key }
            | Self::Start { key, .. }
            | Self::End { key }
            | Self::Revoke { key }
            | Self::Remove { key, .. } => add(key),
            Self::BatchIsExist { keys } | Self::BatchRemove { keys, .. } => {
                keys.iter_mut().for_each(add);
            }
            Self::GetInto { room } => add(&mut room.key),
            Self::BatchGetInto { rooms } | Self::BatchGetIntoMultiBuffers { rooms } => {
                rooms.iter_mut().for_each(|room| add(&mut room.key));
            }
            Self::Put { object, .. }
            | Self::PutFrom { object, .. }
            | Self::PutParts { object, .. }
            | Self::Upsert { object, .. } => add(&mut object.key),
            Self::PutBatch { objects, .. }
            | Self::BatchPutFrom { objects, .. }
            | Self::BatchPutFromMultiBuffers { objects, .. } => {
                objects.iter_mut().for_each(|object| add(&mut object.key));
            }
            Self::RemoveByRegex { .. }
            | Self::RemoveAll { .. }
            | Self::RegisterBuffer { .. }
            | Self::UnregisterBuffer { .. }
            | Self::HealthCheck => {}
        }
        self
    }

    /// Whether it moves bytes under a lease that it takes itself.
    pub fn reads(&self) -> bool {
        matches!(
            self,
            Self::Get { .. }
                | Self::GetInto { .. }
                | Self::BatchGetInto { .. }
                | Self::BatchGetIntoMultiBuffers { .. }
        )
    }

    /// How many objects it deals with: each is one operation that is compared.
    pub fn operations(&self) -> u64 {
        self.keys().len().max(1) as u64
    }
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// SIGKILL for a client.
    KillClient(usize),
    /// SIGSTOP for a client.
    StopClient(usize),
    /// SIGCONT for a client.
    ContinueClient(usize),
    /// A client closes its handle and ends.
    CloseClient(usize),
    /// A client that has ended starts again, with the same memory to lend and another name.
    StartClient(usize),
    /// SIGKILL for the master.
    KillMaster,
    /// A new master where the killed one was.
    StartMaster,
    /// SIGSTOP for the master.
    StopMaster,
    /// SIGCONT for the master.
    ContinueMaster,
}

/// A moment that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Every lease has ended.
    Leases,
    /// Every unfinished put may be put again.
    Discards,
    /// Every soft pin has ended.
    SoftPins,
    /// The length of an object is answered with this code: what a store does by itself, or late, is done.
    Size {
        /// The object.
        key: String,
        /// The code.
        code: i64,
    },
    /// As many clients lend memory as there should be.
    Mounted,
    /// So long.
    Millis(u64),
}

/// One step of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A client calls; both arms must answer alike.
    Call {
        /// Which client.
        client: usize,
        /// What.
        call: Call,
    },
    /// Something happens.
    Event(Event),
    /// Time passes.
    Wait(Wait),
    /// The keys that the master has must be equal.
    Keys,
}

/// The bytes of an object: a pattern whose period divides no usual length.
pub fn content(seed: u8, bytes: u32) -> Vec<u8> {
    let period: Vec<u8> = (0..251u32).map(|i| (u32::from(seed) + i * 7) as u8).collect();
    period.iter().copied().cycle().take(bytes as usize).collect()
}
