//! The encoder-cache connector.
//!
//! | process | type | does |
//! |---|---|---|
//! | worker of a producer | [`Worker`] | saves encoder outputs, waits for them |
//! | scheduler of a consumer | [`Scheduler`] | looks up, fetches, validates, promises |
//! | workers of a consumer | [`Worker`] | copy from the shared region to the device |
//!
//! What decides is apart from what acts: [`saves`], [`loads`] and [`requests`] are synchronous machines that
//! take events and the time; [`uploader`] and [`fetcher`] turn what they decide into store calls.
//!
//! ```text
//!   save: tensor ─▶ lease ─▶ copy after event ─▶ header + proof ─▶ put ─▶ exists? ─▶ stored ─▶ resident
//!   load: key ─▶ resident? ─▶ lease ─▶ get ─▶ validate ─▶ resident, pinned ─▶ copy ─▶ acknowledged ─▶ unpinned
//! ```

mod calls;
mod config;
mod deliveries;
mod fetcher;
mod key;
mod loads;
mod memory;
mod object;
mod payload;
mod republish;
mod requests;
mod residents;
mod saves;
mod scheduler;
mod seal;
mod uploader;
mod worker;

pub use self::{
    config::{Config, ConfigError, LoadConfig, Role, SaveConfig},
    deliveries::{DeliverError, Delivery, DeliveryCounters},
    key::{FORMAT, IDENTIFIER_MAX, Namespace, NamespaceParts},
    loads::{LoadCounters, LoadTimes, MissReason},
    memory::{CloseReport, StartError},
    object::{HEADER_BYTES, Header, PayloadChecksum, Proof, Rejection, object_bytes},
    requests::{Availability, ItemDecision, ItemRequest, LoadOrder, OrderId, StepPlan},
    saves::{
        DropReason, SaveCounters, SaveEntry, SaveFailure, SaveOutcome, SaveReport, SaveTimes,
        Ticket,
    },
    scheduler::{Scheduler, SchedulerGauges},
    seal::{SEAL_BYTES, SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secret, SecretError},
    worker::{LoadTarget, StepWork, Worker},
};
