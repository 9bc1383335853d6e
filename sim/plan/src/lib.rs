//! The plan: everything that decides a run, as a JSON file.
//!
//! A seed draws a plan, a scenario writes one by hand, a bug report carries
//! one. The plan alone runs: same plan, same trace, on any machine. It holds integers only (milliseconds,
//! bytes, per mille), every reuse and every target is already resolved, and reading one checks every field
//! against its range, so that a run never meets a value that it cannot execute.

#![forbid(unsafe_code)]

mod base;
mod by_hand;
mod check;
mod fault;
mod kinds;
mod settings;
mod subject;
mod words;

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

pub use self::{
    by_hand::ROWS,
    fault::{Fault, Scheduled},
    kinds::FaultKind,
    settings::{
        Apart, Connector, Engine, Eviction, Link, Phases, SCALE, Store, Topology,
        UNIT_HEADER_BYTES, Workload,
    },
    subject::Subject,
    words::{Code, Direction, MessageFate, Moment, Op},
};

/// The plan format that this simulator reads and writes.
pub const PLAN_VERSION: u32 = 1;

/// One run of the simulator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Format version, [`PLAN_VERSION`].
    pub version: u32,
    /// What the report calls this run: a scenario's name, or `seed 7`.
    pub name: String,
    /// Seeds turmoil and tokio; the plan's own contents are no longer random.
    pub seed: u64,
    /// Hosts.
    pub topology: Topology,
    /// Time step and latency of the network.
    pub link: Link,
    /// Which connector runs; a plan that names none is springtide's.
    #[serde(default, skip_serializing_if = "Subject::is_springtide")]
    pub subject: Subject,
    /// Configuration of the connector under test.
    pub connector: Connector,
    /// Configuration of the fake store.
    pub store: Store,
    /// Behaviour of the engine model.
    pub engine: Engine,
    /// Lengths of the phases.
    pub phases: Phases,
    /// The traffic, by time.
    pub requests: Vec<Request>,
    /// The faults, by time.
    pub faults: Vec<Scheduled>,
}

/// One request to the serving system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// When the client sends it, in milliseconds from the start.
    pub at_ms: u64,
    /// Index of the encoder that it is sent to.
    pub encoder: u32,
    /// Index of the prefill instance that it is sent to afterwards.
    pub prefill: u32,
    /// Its media items; may repeat one.
    pub items: Vec<Item>,
    /// Steps that it decodes after its prefill.
    pub decode_steps: u32,
    /// The client gives up this long after sending, if at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_after_ms: Option<u64>,
    /// The prefill engine preempts it once after its first step, and frees its encoder cache entries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preempt: bool,
    /// Goes to the prefill instance without waiting for the encoder: what a consumer sees when an item is
    /// announced before it is saved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
}

/// One media item of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Content hash, as the engine makes it.
    pub id: String,
    /// Tokens of the item: rows of its tensor.
    pub rows: u64,
}

/// A plan that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file could not be read.
    #[error("plan {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A file that holds no plan that can be run.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: Box<PlanError>,
    },
    /// Not JSON, a field that is unknown or missing, or a value of the wrong type.
    #[error("plan: {0}")]
    Json(#[from] serde_json::Error),
    /// Another format version.
    #[error("plan: field `version`: expected {PLAN_VERSION}, got {got}")]
    Version {
        /// What the file says.
        got: String,
    },
    /// A value outside its range.
    #[error("plan: field `{field}`: expected {expected}, got {got}")]
    Range {
        /// Path of the field, `store.replicas`.
        field: String,
        /// What it may be.
        expected: String,
        /// What it is.
        got: String,
    },
}

impl Plan {
    /// Reads a plan from JSON and checks it.
    ///
    /// # Errors
    /// [`PlanError`], which names the first field that is wrong.
    pub fn from_json(text: &str) -> Result<Self, PlanError> {
        // The version is looked at first: another version's fields would be reported as unknown.
        let value: serde_json::Value = serde_json::from_str(text)?;
        if value.is_object() {
            let version = value.get("version");
            if version.and_then(serde_json::Value::as_u64) != Some(u64::from(PLAN_VERSION)) {
                let got = version.map_or("nothing".to_owned(), ToString::to_string);
                return Err(PlanError::Version { got });
            }
        }
        let plan: Self = serde_json::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    /// Reads a plan file and checks it.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let name = || path.display().to_string();
        let text =
            fs::read_to_string(path).map_err(|source| PlanError::Read { path: name(), source })?;
        Self::from_json(&text)
            .map_err(|source| PlanError::File { path: name(), source: source.into() })
    }

    /// The plan as JSON, one field a line.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan has string keys and no foreign types")
    }

    /// Names of all hosts, in the order in which they are started and stepped.
    pub fn hosts(&self) -> Vec<String> {
        let numbered = |kind: &'static str, count| (0..count).map(move |n| format!("{kind}{n}"));
        let mut hosts = vec!["master".to_owned()];
        hosts.extend(numbered("node", self.topology.nodes));
        hosts.extend(numbered("encoder", self.topology.encoders));
        hosts.extend(numbered("prefill", self.topology.prefills));
        hosts.push("client".to_owned());
        hosts
    }

    /// The distinct items of the plan by identifier, with their rows.
    pub fn items(&self) -> std::collections::BTreeMap<&str, u64> {
        let items = self.requests.iter().flat_map(|request| &request.items);
        items.map(|item| (item.id.as_str(), item.rows)).collect()
    }
}
