//! The configuration half of a plan: hosts, link, connector, store, engine, phases.
//!
//! Lengths are scaled down 64 times against production ([`Workload`]): item bytes, the pool's unit, pools
//! and segments alike, so that every ratio between them stays.

use serde::{Deserialize, Serialize};
use springtide::env::DType;

/// Bytes that the pool adds to each block for an object's header; not scaled.
pub const UNIT_HEADER_BYTES: u64 = 64;

/// How many of each host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Encoder instances.
    pub encoders: u32,
    /// Prefill instances.
    pub prefills: u32,
    /// Store nodes, each lending one segment.
    pub nodes: u32,
    /// Workers of each instance.
    pub tensor_parallel: u32,
    /// Models that share the store. Instance `n` of a kind serves model `n % namespaces`.
    pub namespaces: u32,
    /// What those models differ in.
    #[serde(default, skip_serializing_if = "Apart::is_model")]
    pub apart: Apart,
    /// The prefill instances are configured for other weights than the encoders, so nothing is shared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mismatch: bool,
}

/// The part of a namespace that sets two models apart; all other parts are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Apart {
    /// The model's name.
    #[default]
    Model,
    /// The revision of its weights.
    Revision,
    /// The adapter.
    Adapter,
    /// Where every rank holds a part, which one.
    Layout,
}

impl Apart {
    fn is_model(&self) -> bool {
        *self == Self::Model
    }
}

/// Time step and latency of the simulated network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Length of a simulation step.
    pub tick_ms: u64,
    /// One-way latency of every link.
    pub latency_ms: u64,
}

/// Which resident leaves the pool first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eviction {
    /// The oldest.
    Fifo,
    /// The least recently used.
    Lru,
    /// Two queues and a ghost list.
    S3Fifo,
}

/// Configuration of the connector under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connector {
    /// Pool of an encoder's worker.
    pub encoder_pool_bytes: u64,
    /// Pool of a prefill scheduler.
    pub prefill_pool_bytes: u64,
    /// Payload of the smallest block; a power of two.
    pub unit_payload_bytes: u64,
    /// Blocks that one item may be scattered over.
    pub extents_max: u32,
    /// Eviction policy.
    pub eviction: Eviction,
    /// How long a save may take.
    pub save_deadline_ms: u64,
    /// How long a load may take.
    pub load_deadline_ms: u64,
    /// How long the connector waits for one store call before it lets go of it.
    pub io_timeout_ms: u64,
    /// Bytes of one batch of puts or gets.
    pub batch_bytes_max: u64,
    /// Items of one batch of puts.
    pub batch_items_max: u32,
    /// Bytes in flight to or from the store.
    pub in_flight_bytes_max: u64,
    /// Saves that wait for their upload.
    pub queue_items_max: u32,
    /// Attempts of one put.
    pub attempts_max: u32,
    /// Pause before an attempt is repeated.
    pub retry_pause_ms: u64,
    /// How long "absent" is believed.
    pub absent_ttl_ms: u64,
    /// How long a failed load keeps its key from being asked for again.
    pub failed_ttl_ms: u64,
    /// Share of a pool that may be in quarantine.
    pub quarantine_permille: u64,
    /// Whether payloads carry a checksum.
    pub payload_checksum: bool,
    /// Whether prefill instances save what they encode themselves.
    pub prefill_saves: bool,
    /// Whether the instances share a secret and seal their items with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// Whether a link stands between each part of an instance and its store, as in the plug-in: it connects in
    /// the background, and refuses calls while the store is down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub link: bool,
}

/// Configuration of the fake store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Memory that each node lends.
    pub segment_bytes: u64,
    /// Copies of each object.
    pub replicas: u32,
    /// Read lease.
    pub lease_ttl_ms: u64,
    /// Used share of the segments at which eviction starts.
    pub watermark_permille: u64,
    /// Share of the objects that one eviction round takes.
    pub eviction_permille: u64,
    /// A put that has not ended after this may be taken over.
    pub put_discard_ms: u64,
    /// Space of an abandoned put is reused after this.
    pub put_release_ms: u64,
    /// A node that has not been heard of for this long is gone.
    pub client_ttl_ms: u64,
    /// A client waits this long for the master.
    pub rpc_timeout_ms: u64,
    /// A client waits this long for one transfer.
    pub transfer_limit_ms: u64,
    /// Whether the end of a client stops its transfers.
    pub close_fences: bool,
}

/// Behaviour of the engine model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Width of a row, elements.
    pub width: u64,
    /// Element type.
    pub dtype: DType,
    /// Time that the encoder spends on a row.
    pub encode_us_per_row: u64,
    /// Time of a step without encoder work.
    pub step_ms: u64,
    /// Requests of one step.
    pub batch_requests_max: u32,
    /// Items that the engine's own encoder cache holds.
    pub cache_items_max: u32,
    /// How long the end of an encoder's step waits for its saves.
    pub wait_ms: u64,
    /// How long the client waits for the encoder before it goes on to prefill.
    pub encoder_timeout_ms: u64,
    /// How long the client waits for prefill before it tries again.
    pub prefill_timeout_ms: u64,
    /// How often the client tries each of the two.
    pub attempts_max: u32,
    /// Whether a step is scheduled before the workers' answer to the one before it has come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub schedules_ahead: bool,
}

/// Lengths of the phases of a run, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Traffic without faults.
    pub warm_up_ms: u64,
    /// Traffic with faults; every fault begins in it.
    pub inject_ms: u64,
    /// Faults end; traffic goes on.
    pub heal_ms: u64,
    /// No new traffic; everything comes to rest. Liveness is judged at its end.
    pub settle_ms: u64,
    /// Every item is asked for once more.
    pub verify_ms: u64,
    /// Connectors shut down.
    pub close_ms: u64,
}

impl Phases {
    /// When faults may begin.
    pub fn inject_at(&self) -> u64 {
        self.warm_up_ms
    }

    /// When every fault has ended.
    pub fn heal_at(&self) -> u64 {
        self.inject_at() + self.inject_ms
    }

    /// When the traffic ends.
    pub fn settle_at(&self) -> u64 {
        self.heal_at() + self.heal_ms
    }

    /// When everything is at rest.
    pub fn verify_at(&self) -> u64 {
        self.settle_at() + self.settle_ms
    }

    /// When connectors are closed.
    pub fn close_at(&self) -> u64 {
        self.verify_at() + self.verify_ms
    }

    /// When the run is over.
    pub fn end_at(&self) -> u64 {
        self.close_at() + self.close_ms
    }
}

/// Production bytes for one simulated byte.
pub const SCALE: u64 = 64;

/// A named profile of traffic, from which a seed draws requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Chat: one image a request, sizes mixed, 30 % reuse.
    W1,
    /// Multi-image: one to eight large images a request, all requests at once.
    W2,
    /// Sliding window: five images a request, four of them repeated.
    W3,
    /// Tiles: bursts of requests with one to many tiles, by a published distribution.
    W4,
    /// Giants: 4K images and videos among many small items.
    W5,
    /// Storm: many requests for the same set at once.
    W6,
    /// The traffic of chat, under the faults that take whole processes.
    W7,
}

impl Workload {
    /// Every profile.
    pub const ALL: [Self; 7] =
        [Self::W1, Self::W2, Self::W3, Self::W4, Self::W5, Self::W6, Self::W7];

    /// Elements of a row at two bytes each, scaled: 3584 wide for chat, 4 x 4096 for large images and giants,
    /// 2048 for the others.
    pub fn width(self) -> u64 {
        match self {
            Self::W1 | Self::W7 => 3584 / SCALE,
            Self::W2 | Self::W5 => 16_384 / SCALE,
            Self::W3 | Self::W4 | Self::W6 => 2048 / SCALE,
        }
    }
}
