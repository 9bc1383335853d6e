//! The timeline of a run, for people: what lasted how long, on which host, and what went wrong.
//!
//! [`Timeline::new`] makes the data out of the recorded events alone: spans (from an event that begins
//! something to the one that ends it), bands (times in which a host was paused, down or under a fault), and
//! the history of the object that a violation is about. [`page`] puts the data into one file that any browser
//! shows, without a network.

mod bands;
mod kinds;
pub mod page;
mod spans;

use serde::Serialize;

pub use self::{
    bands::{Band, BandKind},
    kinds::{Kind, Tone},
    spans::Span,
};
use self::{kinds::kind, spans::Spans};
use crate::{event::Event, plan::Plan, recorder::Violation, world::run::Outcome};

/// The most events that the history of a violation shows, the last ones.
const HISTORY_MAX: usize = 500;

/// The timeline of one run. Times are microseconds from the start, hosts and keys indices into their lists.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// What the run is called.
    pub name: String,
    /// The command that makes the run again.
    pub replay: String,
    /// Hash over all events, in hexadecimal.
    pub trace_hash: String,
    /// When the last event happened, or the run ended.
    pub end_us: u64,
    /// `world`, and the plan's hosts in their order.
    pub hosts: Vec<String>,
    /// The objects, in the order in which they are first met.
    pub keys: Vec<String>,
    /// Phases and when they began.
    pub phases: Vec<(&'static str, u64)>,
    /// The events in order; number `n` of the run is entry `n - 1`.
    pub events: Vec<Entry>,
    /// What lasted, by beginning.
    pub spans: Vec<Span>,
    /// What hosts went through, by beginning.
    pub bands: Vec<Band>,
    /// What was broken.
    pub violation: Option<Broken>,
    /// The plan.
    pub plan: Plan,
}

/// An event: time, host, key, kind, how good it is, and its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry(pub u64, pub usize, pub Option<usize>, pub Kind, pub Tone, pub String);

/// A violation with its history.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// The promise, `I2 integrity`.
    pub promise: String,
    /// The first illegal event and why it is illegal.
    #[serde(flatten)]
    pub violation: Violation,
    /// Numbers of the events about the same object, or of the same host.
    pub history: Vec<u64>,
}

impl Timeline {
    /// The timeline of `plan`'s run with its events kept, and of what `violation` says was broken in it.
    pub fn new(
        plan: &Plan,
        outcome: &Outcome,
        violation: Option<&Violation>,
        replay: &str,
    ) -> Self {
        let mut spans = Spans::new(plan);
        let mut events = Vec::with_capacity(outcome.events.len());
        let mut phases = Vec::new();
        for recorded in &outcome.events {
            let at = recorded.time.since_origin().as_micros() as u64;
            if let Event::Phase(name) = recorded.event {
                phases.push((name, at));
            }
            let tone = spans.take(at, recorded);
            let (host, key) = (spans.host(&recorded.host), recorded.event.key());
            let key = key.map(|key| spans.key(key));
            let kind = kind(&recorded.event);
            events.push(Entry(at, host, key, kind, tone, recorded.event.to_string()));
        }
        let last = events.last().map_or(0, |entry| entry.0);
        let (hosts, keys, spans, bands) = spans.finish();
        let mut timeline = Self {
            name: plan.name.clone(),
            replay: replay.to_owned(),
            trace_hash: format!("{:016x}", outcome.trace.hash()),
            end_us: last.max(outcome.simulated.as_micros() as u64),
            hosts,
            keys,
            phases,
            events,
            spans,
            bands,
            violation: None,
            plan: plan.clone(),
        };
        timeline.violation = violation.map(|violation| timeline.broken(violation));
        timeline
    }

    fn broken(&self, violation: &Violation) -> Broken {
        let key = violation.key.as_ref().and_then(|key| self.keys.iter().position(|k| k == key));
        let about = |entry: &Entry| match key {
            Some(key) => entry.2 == Some(key),
            None => self.hosts[entry.1] == violation.host,
        };
        let numbered = (1..).zip(&self.events);
        let mut history: Vec<u64> =
            numbered.filter(|(_, entry)| about(entry)).map(|(number, _)| number).collect();
        history.drain(..history.len().saturating_sub(HISTORY_MAX));
        let promise = violation.oracle.to_string();
        Broken { promise, violation: violation.clone(), history }
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, time::Duration};

    use springtide::env::Time;

    use super::*;
    use crate::{
        campaign::run_fresh,
        generate::generate,
        oracle::OracleId,
        recorder::{Keep, Recorded},
        scenario,
    };

    fn of(plan: &Plan) -> Timeline {
        let outcome = run_fresh(plan, Keep::Everything);
        Timeline::new(plan, &outcome, outcome.violation.as_ref(), "sim --plan x")
    }

    /// The spans and bands as lines.
    fn text(timeline: &Timeline) -> String {
        let mut text = String::new();
        let ms = |us: u64| us as f64 / 1000.0;
        for span in &timeline.spans {
            let end = span.end_us.map_or("open".to_owned(), |end| ms(end).to_string());
            let host = &timeline.hosts[span.host];
            let Span { kind, row, name, tone, .. } = span;
            let start = ms(span.start_us);
            writeln!(text, "{host:<9} {kind:?}/{row} {start}..{end} {tone:?} {name}").unwrap();
        }
        for Band { host, kind, start_us, end_us, name } in &timeline.bands {
            let end = end_us.map_or("open".to_owned(), |end| ms(end).to_string());
            let host = &timeline.hosts[*host];
            writeln!(text, "{host:<9} [{kind:?}] {}..{end} {name}", ms(*start_us)).unwrap();
        }
        text
    }

    #[test]
    fn the_spans_of_a_scenario() {
        let plan = scenario::find("f001_timeout_while_put_runs").unwrap().plan();
        insta::assert_snapshot!(text(&of(&plan)));
    }

    #[test]
    fn every_start_has_its_end_or_is_open_at_the_end() {
        for seed in 0..6 {
            let timeline = of(&generate(seed));
            let mut ended = std::collections::BTreeSet::new();
            for span in &timeline.spans {
                let began = &timeline.events[span.began as usize - 1];
                assert_eq!((began.0, began.1), (span.start_us, span.host), "{span:?}");
                assert_eq!(span.end_us.is_some(), span.ended.is_some(), "{span:?}");
                assert_eq!(span.end_us.is_none(), span.tone == Tone::Open, "{span:?}");
                if let (Some(number), Some(end)) = (span.ended, span.end_us) {
                    assert_eq!(timeline.events[number as usize - 1].0, end, "{span:?}");
                    assert!(end >= span.start_us && number > span.began, "{span:?}");
                    ended.insert(number);
                }
            }
            // Nothing that ends something was left over.
            let ends = |text: &str| {
                let words = [" ticket #", " done", ": ok", " returns", "fault ends"];
                words.iter().any(|word| text.contains(word)) && !text.contains("opens ticket")
            };
            for (number, entry) in (1u64..).zip(&timeline.events) {
                let reported = !entry.5.contains("not in the report");
                assert!(!ends(&entry.5) || !reported || ended.contains(&number), "{entry:?}");
            }
        }
    }

    #[test]
    fn what_is_parallel_has_rows_of_its_own() {
        for seed in [3, 33] {
            let timeline = of(&generate(seed));
            let mut rows = std::collections::BTreeMap::new();
            for span in &timeline.spans {
                let free_from = rows.entry((span.host, span.kind, span.row)).or_insert(0);
                assert!(*free_from <= span.start_us, "seed {seed}: {span:?} in a busy row");
                *free_from = span.end_us.unwrap_or(u64::MAX);
            }
            assert!(rows.keys().any(|(_, _, row)| *row > 0), "seed {seed} has nothing parallel");
        }
    }

    #[test]
    fn a_violation_brings_the_history_of_its_object_or_host() {
        let plan = generate(3);
        let mut outcome = run_fresh(&plan, Keep::Everything);
        let of_key = |key: &str| {
            let about = |recorded: &&Recorded| recorded.event.key() == Some(key);
            outcome.events.iter().filter(about).map(|recorded| recorded.number).collect::<Vec<_>>()
        };
        let stored = outcome.events.iter().find_map(|recorded| recorded.event.key()).unwrap();
        let mut violation = Violation {
            oracle: OracleId::I1,
            event: 9,
            time_us: 9,
            host: "encoder0".into(),
            what: "what".into(),
            message: "why".into(),
            key: Some(stored.to_owned()),
        };
        let broken = |outcome: &Outcome, violation: &Violation| {
            Timeline::new(&plan, outcome, Some(violation), "").violation.unwrap()
        };
        assert_eq!(broken(&outcome, &violation).history, of_key(stored));
        violation.key = None;
        let host = broken(&outcome, &violation);
        assert_eq!(host.promise, "I1 durability");
        assert!(!host.history.is_empty() && host.history.len() <= HISTORY_MAX);
        for number in host.history {
            assert_eq!(outcome.events[number as usize - 1].host, "encoder0");
        }
        outcome.events.clear();
        assert!(broken(&outcome, &violation).history.is_empty());
    }

    #[test]
    fn an_end_without_a_beginning_is_only_an_event() {
        let plan = generate(3);
        let mut outcome = run_fresh(&plan, Keep::Everything);
        outcome.events.retain(|recorded| matches!(recorded.event, Event::SaveEnded { .. }));
        let timeline = Timeline::new(&plan, &outcome, None, "");
        assert_eq!((timeline.spans.len(), timeline.events.len()), (0, outcome.events.len()));
        let at = Time::from_origin(Duration::from_micros(timeline.events[0].0));
        assert_eq!(at, outcome.events[0].time);
    }
}
