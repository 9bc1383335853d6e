//! What was run, what it measured, and what was not run.

use std::time::Duration;

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::args::Need;

/// What each rung shows, in the order of the ladder.
const RUNGS: [(&str, &str); 9] = [
    ("pin", "pages of the pool are locked and registered"),
    ("bandwidth", "copies of locked memory against those of other memory"),
    ("late", "copies wait for a kernel that is late, both ways"),
    ("extents", "copies of 1, 2 and 4 extents against one in one piece"),
    ("host-tcp", "save and load over tcp, tensors in host memory"),
    ("cuda-tcp", "save and load over tcp, tensors on the GPU"),
    ("host-rdma", "save and load over rdma, tensors in host memory"),
    ("cuda-rdma", "save and load over rdma, tensors on the GPU"),
    ("traffic", "many items, compared byte by byte, over the best that is here"),
];

/// One measured row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// What was timed.
    pub what: String,
    /// Bytes of each time.
    pub bytes: u64,
    /// How often.
    pub count: usize,
    /// Bytes in a second, over all times.
    pub bytes_per_sec: f64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// The 99th of a hundred, in microseconds.
    pub p99_us: f64,
}

impl Figures {
    /// Of times that each moved `bytes`.
    ///
    /// # Panics
    /// Without any.
    pub fn new(what: impl Into<String>, bytes: u64, mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty(), "a figure without a measurement");
        times.sort();
        let total: Duration = times.iter().sum();
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times[rank.clamp(1, times.len()) - 1].as_secs_f64() * 1e6
        };
        Self {
            what: what.into(),
            bytes,
            count: times.len(),
            bytes_per_sec: bytes as f64 * times.len() as f64 / total.as_secs_f64().max(1e-9),
            p50_us: at(0.5),
            p99_us: at(0.99),
        }
    }
}

/// How a rung ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It holds.
    Passed {
        /// What was measured.
        figures: Vec<Figures>,
    },
    /// Its hardware is not here.
    NotRun {
        /// What is missing.
        reason: String,
    },
    /// It does not hold.
    Failed {
        /// What came instead.
        why: String,
    },
}

/// A check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// All that was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the GPU.
    pub gpu: Option<String>,
    /// In the order of the ladder.
    pub rungs: Vec<Rung>,
    #[serde(skip)]
    lacking: Vec<(Need, String)>,
}

impl Report {
    pub(super) fn new(gpu: Option<String>) -> Self {
        Self { gpu, rungs: Vec::new(), lacking: Vec::new() }
    }

    pub(super) fn add(&mut self, name: &str, outcome: Outcome) {
        let (name, shows) = RUNGS[self.rungs.len()..]
            .iter()
            .find(|(rung, _)| *rung == name)
            .expect("rungs are climbed in their order");
        self.rungs.push(Rung { name, shows, outcome });
    }

    pub(super) fn lacks(&mut self, need: Need, reason: String) {
        self.lacking.push((need, reason));
    }

    /// What is required and not here.
    pub(super) fn missing(&self, required: &[Need]) -> Option<(Need, &str)> {
        let missing = self.lacking.iter().find(|(need, _)| required.contains(need));
        missing.map(|(need, reason)| (*need, reason.as_str()))
    }

    /// How many did not hold.
    pub fn failed(&self) -> usize {
        self.rungs.iter().filter(|rung| matches!(rung.outcome, Outcome::Failed { .. })).count()
    }

    /// A line for each rung, and the table of what was measured.
    pub fn lines(&self) -> String {
        let mut text = format!("GPU: {}\n", self.gpu.as_deref().unwrap_or("none"));
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["check", "what", "MiB", "times", "GiB/s", "p50 ms", "p99 ms"]);
        for Rung { name, shows, outcome } in &self.rungs {
            let (word, rest) = match outcome {
                Outcome::Passed { figures } => {
                    for row in figures {
                        table.add_row(cells(name, row));
                    }
                    ("passed", (*shows).to_owned())
                }
                Outcome::NotRun { reason } => ("not run", format!("{reason} ({shows})")),
                Outcome::Failed { why } => ("FAILED", format!("{why} ({shows})")),
            };
            text.push_str(&format!("{word:<8} {name:<10} {rest}\n"));
        }
        if !table.is_empty() {
            text.push_str(&format!("\n{table}\n"));
        }
        text.truncate(text.trim_end().len());
        text
    }
}

fn cells(name: &str, row: &Figures) -> [String; 7] {
    let gib = row.bytes_per_sec / f64::from(1 << 30);
    let mib = row.bytes as f64 / f64::from(1 << 20);
    [
        name.to_owned(),
        row.what.clone(),
        format!("{mib:.2}"),
        row.count.to_string(),
        format!("{gib:.2}"),
        format!("{:.3}", row.p50_us / 1e3),
        format!("{:.3}", row.p99_us / 1e3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        let row = Figures::new("x", 1 << 20, times);
        assert_eq!((row.p50_us, row.p99_us, row.count), (100_000.0, 198_000.0, 200));
        assert_eq!(row.bytes_per_sec.round(), (200.0 * f64::from(1 << 20) / 20.1_f64).round());
        let one = Figures::new("x", 1, vec![Duration::from_millis(3)]);
        assert_eq!((one.p50_us, one.p99_us), (3000.0, 3000.0));
    }

    #[test]
    fn lines_and_json() {
        let mut report = Report::new(None);
        let times = vec![Duration::from_millis(2); 4];
        let figures = vec![Figures::new("device to host", 64 << 20, times)];
        report.add("pin", Outcome::NotRun { reason: "no libcuda.so.1".into() });
        report.add("bandwidth", Outcome::Passed { figures });
        report.add("late", Outcome::Failed { why: "byte 0 is 1, expected 7".into() });
        report.lacks(Need::Cuda, "no libcuda.so.1".into());
        assert_eq!(report.failed(), 1);
        assert_eq!(report.missing(&[Need::Rdma]), None);
        assert_eq!(
            report.missing(&[Need::Rdma, Need::Cuda]),
            Some((Need::Cuda, "no libcuda.so.1"))
        );
        insta::assert_snapshot!("lines", report.lines());
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&report).unwrap());
    }
}
