//! The numbers of a snapshot under the names of the catalogue.
//!
//! Every structure is taken apart field by field, so that a new field does not compile until it is said here
//! what becomes of it.

mod pool;

use std::collections::BTreeMap;

use springtide::{
    backend::{LinkCounters, LinkState},
    connector::{
        DeliveryCounters, LoadCounters, LoadTimes, SaveCounters, SaveTimes, SchedulerGauges,
    },
    durations::Durations,
};

use crate::{
    catalogue::{self as c, Kind, Metric},
    snapshot::{Info, Loads, Log, Saves, Snapshot, Store},
};

/// Stands for no reason: an empty label is none.
const NONE: &str = "none";

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What it is.
    pub metric: &'static Metric,
    /// Values of the metric's labels, in their order.
    pub label_values: Vec<String>,
    /// The number.
    pub value: Value,
}

/// A sample's number.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Level(u64),
    /// Of a histogram.
    Times(Durations),
}

impl Sample {
    /// Its labels with their values.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.metric.labels.iter().copied().zip(self.label_values.iter().map(String::as_str))
    }

    /// The name of its series as it is exposed, such as `springtide_lookups_total{outcome="hit",reason="store"}`.
    pub fn series(&self) -> String {
        let labels: Vec<String> =
            self.labels().map(|(n, value)| format!("{n}={value:?}")).collect();
        match labels.is_empty() {
            true => self.metric.exposed(),
            false => format!("{}{{{}}}", self.metric.exposed(), labels.join(",")),
        }
    }
}

pub(crate) fn of(snapshot: &Snapshot) -> Vec<Sample> {
    let Snapshot {
        info,
        saves: saving,
        loads: loading,
        deliveries: delivered,
        pool: usage,
        store: link,
        hook_errors,
        log,
    } = snapshot;
    let mut samples = Samples(Vec::new());
    if let Some(Info { version, role, namespace }) = info {
        samples.add(&c::INFO, &[version, role, namespace], 1);
    }
    samples.each(&c::HOOK_ERRORS, &[], hook_errors);
    if let Some(Log { suppressed, lost }) = log {
        samples.each(&c::LOG_SUPPRESSED, &[], suppressed);
        samples.add(&c::LOG_LOST, &[], *lost);
    }
    if let Some(Saves { counters, times, in_flight_bytes, residents }) = saving {
        saves(&mut samples, counters);
        let SaveTimes { copy, queue, put, probe, save } = times;
        let stages =
            [("copy", copy), ("queue", queue), ("put", put), ("probe", probe), ("save", save)];
        samples.times(&stages);
        samples.add(&c::IN_FLIGHT, &["put"], *in_flight_bytes);
        samples.add(&c::RESIDENTS, &["save"], *residents);
    }
    if let Some(Loads { counters, times, gauges }) = loading {
        loads(&mut samples, counters);
        let LoadTimes { lookup, get, validate, load } = times;
        samples.times(&[("lookup", lookup), ("get", get), ("validate", validate), ("load", load)]);
        open(&mut samples, gauges);
    }
    if let Some(delivered) = delivered {
        deliveries(&mut samples, delivered);
    }
    if let Some(usage) = usage {
        pool::add(&mut samples, usage);
    }
    if let Some(link) = link {
        store(&mut samples, link);
    }
    samples.0
}

struct Samples(Vec<Sample>);

impl Samples {
    fn add(&mut self, metric: &'static Metric, labels: &[&str], number: u64) {
        assert_eq!(labels.len(), metric.labels.len(), "labels of {}", metric.name);
        let value = match metric.kind {
            Kind::Counter => Value::Count(number),
            Kind::Gauge => Value::Level(number),
            Kind::Histogram => unreachable!("{} is no number", metric.name),
        };
        let label_values = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.push(Sample { metric, label_values, value });
    }

    fn times(&mut self, stages: &[(&str, &Durations)]) {
        for (stage, times) in stages {
            let (label_values, value) = (vec![(*stage).to_owned()], Value::Times((*times).clone()));
            self.0.push(Sample { metric: &c::STAGES, label_values, value });
        }
    }

    /// A sample a name, which is the last label.
    fn each(&mut self, metric: &'static Metric, labels: &[&str], counts: &BTreeMap<String, u64>) {
        for (name, count) in counts {
            let mut labels = labels.to_vec();
            let name = tidy(name);
            labels.push(&name);
            self.add(metric, &labels, *count);
        }
    }
}

/// A name as a label's value: `TRANSFER_FAIL (-800)` becomes `transfer_fail`, and a code without a name keeps
/// its number.
fn tidy(name: &str) -> String {
    let name = match name.split_once(" (") {
        Some((name, number)) if name.ends_with("UNKNOWN") => {
            format!("{name} {}", number.trim_end_matches(')').trim_start_matches('-'))
        }
        Some((name, _)) => name.to_owned(),
        None => name.to_owned(),
    };
    name.to_lowercase().replace(' ', "_")
}

fn saves(samples: &mut Samples, counters: &SaveCounters) {
    let SaveCounters {
        opened,
        open,
        stored,
        already_there,
        dropped,
        failed,
        timed_out,
        joined,
        reused,
        puts,
        put_bytes,
        retries,
        probes,
        invisible,
        late,
        uncertain,
        lost,
        unreported,
    } = counters;
    samples.add(&c::SAVES, &["stored", NONE], *stored);
    samples.add(&c::SAVES, &["already_there", NONE], *already_there);
    samples.add(&c::SAVES, &["timed_out", NONE], *timed_out);
    samples.each(&c::SAVES, &["dropped"], dropped);
    samples.each(&c::SAVES, &["failed"], failed);
    for (metric, number) in [
        (&c::SAVES_OPENED, opened),
        (&c::SAVES_OPEN, open),
        (&c::SAVES_JOINED, joined),
        (&c::SAVES_REUSED, reused),
        (&c::SAVES_LATE, late),
        (&c::SAVES_UNREPORTED, unreported),
        (&c::PUTS, puts),
        (&c::PUT_BYTES, put_bytes),
        (&c::PUT_RETRIES, retries),
        (&c::PUTS_UNCERTAIN, uncertain),
        (&c::PUTS_LOST, lost),
        (&c::PROBES, probes),
        (&c::PROBES_INVISIBLE, invisible),
    ] {
        samples.add(metric, &[], *number);
    }
}

fn loads(samples: &mut Samples, counters: &LoadCounters) {
    let LoadCounters {
        lookups,
        hits,
        resident_hits,
        misses,
        waiting,
        withdrawn,
        exists,
        sizes,
        gets,
        no_room,
        get_bytes,
        loaded,
        rejected,
        removed,
        errors,
        retries,
        uncertain,
        lost,
        // The pool counts them too.
        evicted: _,
        orders,
        acknowledged,
    } = counters;
    samples.add(&c::LOOKUPS, &["hit", "resident"], *resident_hits);
    samples.add(&c::LOOKUPS, &["hit", "store"], hits.saturating_sub(*resident_hits));
    samples.add(&c::LOOKUPS, &["withdrawn", NONE], *withdrawn);
    samples.each(&c::LOOKUPS, &["miss"], misses);
    samples.each(&c::REJECTED, &[], rejected);
    samples.each(&c::LOAD_ERRORS, &[], errors);
    for (metric, number) in [
        (&c::LOOKUPS_STARTED, lookups),
        (&c::LOOKUPS_WAITING, waiting),
        (&c::EXISTS, exists),
        (&c::SIZES, sizes),
        (&c::GETS, gets),
        (&c::GETS_NO_ROOM, no_room),
        (&c::GET_BYTES, get_bytes),
        (&c::LOADED, loaded),
        (&c::REMOVED, removed),
        (&c::LOAD_RETRIES, retries),
        (&c::GETS_UNCERTAIN, uncertain),
        (&c::GETS_LOST, lost),
        (&c::ORDERS, orders),
        (&c::ORDERS_ACKNOWLEDGED, acknowledged),
    ] {
        samples.add(metric, &[], *number);
    }
}

fn deliveries(samples: &mut Samples, counters: &DeliveryCounters) {
    let DeliveryCounters { delivered, bytes, failed, copy_in } = counters;
    samples.add(&c::DELIVERIES, &["delivered", NONE], *delivered);
    samples.each(&c::DELIVERIES, &["failed"], failed);
    samples.add(&c::DELIVERY_BYTES, &[], *bytes);
    samples.times(&[("copy_in", copy_in)]);
}

fn open(samples: &mut Samples, gauges: &SchedulerGauges) {
    let SchedulerGauges { requests, orders, keys, residents, in_flight_bytes } = gauges;
    samples.add(&c::REQUESTS, &[], *requests as u64);
    samples.add(&c::ORDERS_OPEN, &[], *orders as u64);
    samples.add(&c::KEYS_OPEN, &[], *keys as u64);
    samples.add(&c::RESIDENTS, &["load"], *residents as u64);
    samples.add(&c::IN_FLIGHT, &["get"], *in_flight_bytes);
}

fn store(samples: &mut Samples, link: &Store) {
    let Store { state, counters } = link;
    let LinkCounters { came_up, went_down, attempts_failed, refused } = counters;
    samples.add(&c::STORE_UP, &[], u64::from(*state == LinkState::Up));
    for one in LinkState::ALL {
        samples.add(&c::STORE_STATE, &[one.name()], u64::from(*state == one));
    }
    samples.each(&c::STORE_REFUSED, &[], refused);
    samples.add(&c::STORE_CAME_UP, &[], *came_up);
    samples.add(&c::STORE_WENT_DOWN, &[], *went_down);
    samples.add(&c::STORE_ATTEMPTS_FAILED, &[], *attempts_failed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_become_labels() {
        for (name, label) in [
            ("pool_full", "pool_full"),
            ("rejected checksum", "rejected_checksum"),
            ("uncertain TRANSFER_FAIL (-800)", "uncertain_transfer_fail"),
            ("UNKNOWN (-4242)", "unknown_4242"),
        ] {
            assert_eq!(tidy(name), label);
        }
    }
}
