//! Where everything that happens in a run is reported, hashed, judged and counted.
//!
//! One recorder serves all hosts of a world. The first illegal event is kept as the run's [`Violation`]; the
//! world stops there.

use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use springtide::env::Time;

use crate::{
    coverage::Coverage,
    event::{Event, Place},
    oracle::{self, Illegal, Oracle, OracleId},
    plan::Plan,
    reach::Reach,
    stats::Stats,
    trace::Trace,
};

/// The first illegal event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which promise it broke.
    pub oracle: OracleId,
    /// Its number.
    pub event: u64,
    /// When, in microseconds from the start.
    pub time_us: u64,
    /// On which host.
    pub host: String,
    /// The event's line in the timeline.
    pub what: String,
    /// How it breaks the promise.
    pub message: String,
    /// The object that it is about.
    pub key: Option<String>,
}

/// An event with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Number, from one.
    pub number: u64,
    /// Simulated time.
    pub time: Time,
    /// Host.
    pub host: String,
    /// What happened.
    pub event: Event,
}

/// What a recorder keeps beyond hash and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// Every event and its line: for timelines, comparisons and scenarios.
    Everything,
}

/// The recorder of one run. Clones share it.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Recording>>);

/// What was recorded.
#[derive(Debug)]
pub struct Recording {
    /// Hash and lines.
    pub trace: Trace,
    /// Counts.
    pub stats: Stats,
    /// Rare states that were reached.
    pub reach: Reach,
    /// Faults that met states of a connector.
    pub coverage: Coverage,
    /// The first illegal event.
    pub violation: Option<Violation>,
    /// Every event, if they are kept.
    pub events: Vec<Recorded>,
    keep: Keep,
    oracles: Vec<Box<dyn Oracle>>,
}

impl Recorder {
    /// A recorder with all oracles for `plan`.
    pub fn new(plan: &Plan, keep: Keep) -> Self {
        Self(Arc::new(Mutex::new(Recording {
            trace: Trace::new(keep == Keep::Everything),
            stats: Stats::default(),
            reach: Reach::default(),
            coverage: Coverage::default(),
            violation: None,
            events: Vec::new(),
            keep,
            oracles: oracle::all(plan),
        })))
    }

    /// Takes an event. After the first illegal one nothing is taken any more.
    pub fn record(&self, time: Time, host: &str, event: Event) {
        let mut recording = self.lock();
        if recording.violation.is_none() {
            recording.take(time, host, event);
        }
    }

    /// Whether an illegal event has happened.
    pub fn has_violation(&self) -> bool {
        self.lock().violation.is_some()
    }

    /// Looks at what was recorded so far.
    pub fn with<R>(&self, look: impl FnOnce(&mut Recording) -> R) -> R {
        look(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        // A host's panic is an event like others: the recording goes on.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Recording {
    fn take(&mut self, time: Time, host: &str, event: Event) {
        let what = event.to_string();
        let number = self.trace.push(time, host, &what);
        let place = Place { number, time, host };
        self.stats.count(&event);
        self.reach.observe(place, &event);
        self.coverage.observe(place, &event);
        for oracle in &mut self.oracles {
            if let Err(Illegal { oracle, message }) = oracle.observe(place, &event) {
                self.violation = Some(Violation {
                    oracle,
                    event: number,
                    time_us: time.since_origin().as_micros() as u64,
                    host: host.to_owned(),
                    what: what.clone(),
                    message,
                    key: event.key().map(str::to_owned),
                });
                break;
            }
        }
        if self.keep == Keep::Everything {
            self.events.push(Recorded { number, time, host: host.to_owned(), event });
        }
    }
}
