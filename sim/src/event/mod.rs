//! What happens in a run, as far as anybody judges or counts it.
//!
//! The engine models, the store's history, the fault injector and the observers of the pools report
//! [`Event`]s to the run's [`Recorder`](crate::recorder); oracles, statistics and marks are functions of these
//! events alone, which is what makes them testable without a simulation.

mod text;

use springtide::{
    env::{TensorSpec, Time},
    pool::Usage,
};

use crate::plan::FaultKind;

/// Where and when an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Number of the event in its run, from one.
    pub number: u64,
    /// Simulated time.
    pub time: Time,
    /// Host, or `world` for the injector.
    pub host: &'a str,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A phase of the run began.
    Phase(&'static str),
    /// A fault began.
    FaultBegan {
        /// Its kind.
        kind: FaultKind,
        /// The fault as the plan has it.
        text: String,
    },
    /// A fault ended.
    FaultEnded {
        /// Its kind.
        kind: FaultKind,
        /// The fault as the plan has it.
        text: String,
    },
    /// A host's tasks stand still or go on.
    Paused(bool),
    /// A host's links are disturbed or whole again.
    Disturbed(bool),
    /// A host's software started.
    Started,
    /// A host's software was killed.
    Killed,
    /// A connector did not start; its engine runs without.
    Degraded {
        /// Why.
        reason: String,
    },
    /// Code of a host panicked.
    Panicked(String),

    /// The client sent a request for the first time.
    RequestSent {
        /// The request.
        request: u32,
        /// The instances it will visit.
        visits: [String; 2],
    },
    /// The client is done with a request.
    RequestEnded {
        /// The request.
        request: u32,
        /// How.
        end: RequestEnd,
    },

    /// The engine handed an item to the connector.
    SaveOpened {
        /// The object.
        key: String,
        /// The ticket, unique in a life of its host.
        ticket: String,
    },
    /// A report told a save's end.
    SaveEnded {
        /// The object.
        key: String,
        /// The ticket.
        ticket: String,
        /// How it ended.
        end: SaveEnd,
    },
    /// A report did not name a save that was begun before its wait.
    NotReported {
        /// The object.
        key: String,
        /// The ticket.
        ticket: String,
    },
    /// The engine began to wait for its saves.
    WaitBegan {
        /// Until when.
        deadline: Time,
    },
    /// The wait returned.
    WaitEnded {
        /// The deadline it had been given.
        deadline: Time,
    },

    /// The consumer's connector let a request wait for its items.
    Waiting {
        /// The request.
        request: u32,
    },
    /// The consumer's connector promised an item.
    Hit {
        /// The request.
        request: u32,
        /// The object.
        key: String,
    },
    /// The consumer's connector declined an item; the engine encodes it.
    Miss {
        /// The request.
        request: u32,
        /// The object.
        key: String,
        /// Why, in the connector's words.
        reason: String,
        /// When the connector was first asked for it on behalf of this request.
        asked: Time,
    },
    /// A worker copied an item to its device.
    Delivered {
        /// The object.
        key: String,
        /// The worker.
        rank: u32,
        /// What the connector said it is.
        spec: TensorSpec,
        /// What it is.
        check: Check,
    },
    /// A worker could not copy an item.
    NotDelivered {
        /// The object.
        key: String,
        /// The worker.
        rank: u32,
        /// Why.
        reason: String,
    },
    /// The engine died because a promised item was not there.
    EngineDied {
        /// What it missed.
        reason: String,
    },

    /// The store made an object readable.
    Stored {
        /// The object.
        key: String,
        /// Its length.
        bytes: u64,
    },
    /// A readable object ceased to be readable.
    Lost {
        /// The object.
        key: String,
        /// Why, by the store's own history.
        cause: String,
    },

    /// A put or get was handed to the store client.
    TransferBegan {
        /// The object.
        key: String,
        /// Bytes lent.
        bytes: u64,
        /// Put or get.
        put: bool,
    },
    /// A put or get gave its buffer back, or ended without giving it back.
    TransferEnded {
        /// The object.
        key: String,
        /// Bytes that were lent.
        bytes: u64,
        /// Put or get.
        put: bool,
        /// How.
        end: TransferEnd,
    },

    /// A look at a pool that found something new.
    PoolSeen {
        /// Its accounts.
        usage: Box<Usage>,
        /// What its own check says.
        verified: Result<(), String>,
    },
    /// A look at an instance when everything has come to rest.
    AtRest {
        /// The accounts of its pool.
        usage: Box<Usage>,
        /// Operations that its shutdown gave up, if it was shut down: they keep what they own.
        abandoned: usize,
    },
    /// The connector's counters, checked by itself.
    Counted {
        /// Its own check.
        own: Result<(), String>,
        /// Pairs that must be equal: what, the connector's count, the simulator's.
        pairs: Vec<(&'static str, u64, u64)>,
    },
    /// A limit of the configuration and what was seen of it.
    Bound {
        /// Which limit.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The most that was seen.
        seen: u64,
    },
    /// A connector began to shut down.
    CloseBegan {
        /// Until when it may drain.
        deadline: Time,
    },
    /// A connector's shutdown returned.
    CloseEnded {
        /// The deadline it had been given.
        deadline: Time,
    },
}

/// How a request ended for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// Answered.
    Done,
    /// The client gave up by plan.
    Aborted,
    /// No attempt got an answer.
    Failed(String),
}

/// How a save ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SaveEnd {
    /// Stored by this save.
    Stored,
    /// Somebody else had stored it.
    AlreadyThere,
    /// Given up before any I/O.
    Dropped(String),
    /// Given up after I/O.
    Failed(String),
    /// Not ended by the report's deadline.
    TimedOut,
}

impl SaveEnd {
    /// Whether the item is promised to be readable.
    pub fn is_saved(&self) -> bool {
        matches!(self, Self::Stored | Self::AlreadyThere)
    }
}

/// What a delivered tensor turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Byte for byte what its producer made.
    Equal,
    /// Another type or shape.
    Spec {
        /// What the producer made.
        expected: TensorSpec,
    },
    /// Other bytes.
    Bytes {
        /// The first that differs.
        first: u64,
    },
    /// Exactly another model's bytes.
    Foreign,
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferEnd {
    /// The buffer came back; the source of a put was as it had been.
    Ended(String),
    /// The buffer of a put came back, and its bytes had been changed meanwhile.
    SourceChanged,
    /// The I/O may go on.
    Uncertain(String),
}

impl Event {
    /// The object that it is about.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::SaveOpened { key, .. }
            | Self::SaveEnded { key, .. }
            | Self::NotReported { key, .. }
            | Self::Hit { key, .. }
            | Self::Miss { key, .. }
            | Self::Delivered { key, .. }
            | Self::NotDelivered { key, .. }
            | Self::Stored { key, .. }
            | Self::Lost { key, .. }
            | Self::TransferBegan { key, .. }
            | Self::TransferEnded { key, .. } => Some(key),
            _ => None,
        }
    }
}
