//! What the connector counts, in Prometheus form.
//!
//! The library `springtide` knows nothing of Prometheus: it keeps counters that add up. Here they get names,
//! units, labels and words, when somebody asks for them.
//!
//! | module | what it is |
//! |---|---|
//! | [`catalogue`] | every metric: name, kind, labels, meaning |
//! | [`snapshot`] | what one process has counted, at a moment |
//! | `samples` | the numbers of a snapshot under the names of the catalogue |
//! | [`exposition`] | samples as text |
//! | [`endpoint`] | `GET /metrics` and `GET /healthz` |
//!
//! ```
//! use springtide::connector::SaveCounters;
//! use springtide_metrics::{Saves, Snapshot, text};
//!
//! let counters = SaveCounters { opened: 2, stored: 2, put_bytes: 1024, ..SaveCounters::default() };
//! let saves = Saves { counters, ..Saves::default() };
//! let snapshot = Snapshot { saves: Some(saves), ..Snapshot::default() };
//! assert!(text(&snapshot, &[]).contains("springtide_saves_total{outcome=\"stored\",reason=\"none\"} 2\n"));
//! ```

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod endpoint;
pub mod exposition;
mod samples;
pub mod snapshot;

pub use self::{
    catalogue::{Kind, Metric},
    endpoint::{Endpoint, Serving},
    exposition::text,
    samples::{Sample, Value},
    snapshot::{Info, Loads, Log, Saves, Snapshot, Store},
};
