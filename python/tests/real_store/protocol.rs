//! What the tests and their processes say to each other: a line of JSON each way.

use serde::{Deserialize, Serialize};
use springtide::{connector::Role, pool::Usage};

/// Marks the lines of a peer among what the test runner prints.
pub(crate) const PREFIX: &str = "peer: ";

/// The environment variable that holds a peer's [`PeerConfig`].
pub(crate) const CONFIG_VARIABLE: &str = "SPRINGTIDE_TEST_PEER";

/// What a peer is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerConfig {
    pub(crate) role: Role,
    pub(crate) master: String,
    /// Bytes lent to the store.
    pub(crate) segment_bytes: u64,
    /// Bytes of the connector's pool.
    pub(crate) pool_bytes: u64,
}

impl PeerConfig {
    pub(crate) fn producer(master: &str) -> Self {
        let pool_bytes = 256 << 20;
        Self { role: Role::Producer, master: master.into(), segment_bytes: 0, pool_bytes }
    }

    pub(crate) fn consumer(master: &str) -> Self {
        Self { role: Role::Consumer, ..Self::producer(master) }
    }
}

/// One encoder output. Its bytes follow from its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) identifier: String,
    pub(crate) rows: u64,
}

/// What a peer is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Save all, and wait for it at most this long.
    Save { items: Vec<Item>, wait_ms: u64 },
    /// Load all as one request.
    Load { items: Vec<Item> },
    /// Say what is held.
    State,
    /// Shut the connector down, and end.
    Close { wait_ms: u64 },
}

/// What it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It has joined the store.
    Ready,
    /// How each save ended, in order.
    Saved(Vec<String>),
    /// How the loads ended.
    Loaded(Loaded),
    /// What is held.
    State(Box<State>),
    /// How the shutdown went.
    Closed(Closed),
}

/// How the loads of a request ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// Items delivered with the right bytes.
    pub(crate) delivered: usize,
    /// Items delivered with other bytes, or promised and not delivered.
    pub(crate) wrong: Vec<String>,
    /// Items to be encoded locally.
    pub(crate) missed: Vec<String>,
    /// All misses so far, by reason.
    pub(crate) reasons: std::collections::BTreeMap<String, u64>,
}

/// What a peer holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) usage: Usage,
    pub(crate) residents: usize,
    /// Regions that Mooncake knows.
    pub(crate) registrations: u64,
    /// Threads of the process.
    pub(crate) threads: u64,
    pub(crate) stored: u64,
    pub(crate) loaded: u64,
    pub(crate) gets: u64,
}

/// How a shutdown went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closed {
    pub(crate) fenced: bool,
    pub(crate) abandoned: usize,
    pub(crate) leaked_bytes: u64,
}
