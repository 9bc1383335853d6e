//! Samples as text, in Prometheus' format 0.0.4.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, prometheus_text},
    metrics::MetricType,
    registry::Registry,
};

use crate::{
    catalogue::{ALL, Kind, Metric},
    samples::{Sample, Value},
    snapshot::Snapshot,
};

/// The text's content type.
pub use prometheus_text::CONTENT_TYPE;

/// Looks at what is counted, each time it is asked for.
pub type Look = Arc<dyn Fn() -> Snapshot + Send + Sync>;

/// What is counted, for a registry: one snapshot an exposition.
#[derive(Clone)]
pub struct Collected(Look);

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

/// A registry of all that `look` sees, every metric with these labels beside its own.
pub fn registry(look: Look, labels: &[(&'static str, String)]) -> Registry {
    let labels = labels.iter().map(|(name, value)| ((*name).into(), value.clone().into()));
    let mut registry = Registry::with_labels(labels);
    registry.register_collector(Box::new(Collected(look)));
    registry
}

/// A registry's text.
///
/// # Errors
/// When a sample cannot be written.
pub fn encode(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_text::encode(&mut text, registry)?;
    Ok(text)
}

/// A snapshot's text, every metric with these labels beside its own.
pub fn text(snapshot: &Snapshot, labels: &[(&'static str, String)]) -> String {
    let snapshot = snapshot.clone();
    encode(&registry(Arc::new(move || snapshot.clone()), labels)).unwrap_or_default()
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let samples = (self.0)().samples();
        for metric in ALL {
            let of_it = |sample: &&Sample| std::ptr::eq(sample.metric, *metric);
            let mut samples = samples.iter().filter(of_it).peekable();
            if samples.peek().is_some() {
                describe(metric, samples, &mut encoder)?;
            }
        }
        Ok(())
    }
}

fn describe<'a>(
    metric: &'static Metric,
    samples: impl Iterator<Item = &'a Sample>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    let mut encoder = encoder.encode_descriptor(metric.name, metric.help(), None, kind)?;
    for sample in samples {
        let labels: Vec<(&str, &str)> = sample.labels().collect();
        let mut encoder = encoder.encode_family(&labels)?;
        match &sample.value {
            Value::Count(count) => {
                encoder.encode_counter::<Vec<(&str, &str)>, _, f64>(count, None)?;
            }
            Value::Level(level) => encoder.encode_gauge(level)?,
            Value::Times(times) => {
                let bound =
                    |bound: Option<Duration>| bound.map_or(f64::INFINITY, |b| b.as_secs_f64());
                let buckets: Vec<_> = times.buckets().map(|(b, n)| (bound(b), n)).collect();
                let (sum, count) = (times.sum().as_secs_f64(), times.count());
                encoder.encode_histogram::<Vec<(&str, &str)>>(sum, count, &buckets, None)?;
            }
        }
    }
    Ok(())
}
