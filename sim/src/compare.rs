//! Two subjects on the same plans: who violates what, class by class.
//!
//! The record (`compare.json`) says in which scenario which class of the fault catalogue shows in the design of
//! vllm#30468, and by which oracle. It is a claim that every comparison checks. The oracles are those that judge
//! every run of springtide. What scenarios expect beyond them is asked of springtide alone: it is about
//! counters and reasons, which the other design does not have.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

use crate::{
    campaign::{Job, Verdict},
    oracle::OracleId,
    plan::Plan,
    subjects::Subject,
};

const RECORD: &str = include_str!("compare.json");

/// One class of the fault catalogue, as it is known to show in the other design.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The class.
    pub class: String,
    /// The row of the catalogue.
    pub row: String,
    /// Hazards of the design, by their numbers in `docs/compare.md`.
    pub hazards: Vec<u32>,
    /// The scenario in which it shows.
    pub scenario: String,
    /// The oracle that reports it.
    pub oracle: OracleId,
}

/// What one subject did to one recorded class.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// The record.
    #[serde(flatten)]
    pub recorded: Recorded,
    /// What the other design violated in that scenario, if anything.
    pub found: Option<Found>,
    /// Whether that is what the record says.
    pub as_recorded: bool,
}

/// A violation in a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The plan.
    pub plan: String,
    /// The oracle.
    pub oracle: OracleId,
    /// What it said.
    pub message: String,
    /// The plan's file, to replay it with.
    pub plan_file: Option<std::path::PathBuf>,
}

/// One subject on all plans.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// The subject.
    pub subject: &'static str,
    /// Plans that ran.
    pub plans: usize,
    /// Plans in which it broke a promise.
    pub violated: usize,
    /// Those by oracle: how many, and the first.
    pub oracles: BTreeMap<String, (usize, Found)>,
}

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// By subject.
    pub subjects: Vec<Total>,
    /// By recorded class, as far as its scenario ran.
    pub classes: Vec<Shown>,
}

/// The record.
pub fn record() -> Vec<Recorded> {
    serde_json::from_str(RECORD).expect("a test reads it")
}

impl Comparison {
    /// Compares the verdicts on springtide and on the other design, of the same plans.
    pub fn new(springtide: &[Verdict], other: &[Verdict]) -> Self {
        let record = record();
        let subjects =
            vec![Total::new(Subject::Springtide, springtide), Total::new(Subject::Pr30468, other)];
        let classes = record.iter().filter_map(|recorded| {
            let verdict = other.iter().find(|verdict| verdict.group == recorded.scenario)?;
            let found = found(verdict);
            let as_recorded = found.as_ref().is_some_and(|found| found.oracle == recorded.oracle);
            Some(Shown { recorded: recorded.clone(), found, as_recorded })
        });
        let classes = classes.collect();
        Self { subjects, classes }
    }

    /// Whether springtide keeps every promise and the other design fails as recorded.
    pub fn is_as_recorded(&self) -> bool {
        self.subjects[0].violated == 0 && self.classes.iter().all(|shown| shown.as_recorded)
    }

    /// The comparison as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a comparison is plain data")
    }

    /// The comparison for people.
    pub fn to_text(&self) -> String {
        let mut classes = table(["class", "hazard", "scenario", "oracle", "springtide", "pr30468"]);
        let springtide = &self.subjects[0];
        for shown in &self.classes {
            let Recorded { class, row, hazards, scenario, oracle } = &shown.recorded;
            let numbers: Vec<String> = hazards.iter().map(u32::to_string).collect();
            let theirs = match &shown.found {
                Some(found) if shown.as_recorded => found.message.clone(),
                Some(found) => format!("NOT AS RECORDED: {}: {}", found.oracle, found.message),
                None => "NOT AS RECORDED: no violation".to_owned(),
            };
            let ours = springtide.oracles.values().find(|(_, found)| found.plan == *scenario);
            let ours = ours.map_or("-", |_| "VIOLATED");
            let hazard = format!("{row}: {}", numbers.join(", "));
            classes.add_row([class, &hazard, scenario, &oracle.to_string(), ours, &theirs]);
        }
        let mut totals =
            table(["subject", "plans", "violated", "oracle", "plans", "first", "message"]);
        for total in &self.subjects {
            let head =
                [total.subject.to_owned(), total.plans.to_string(), total.violated.to_string()];
            if total.oracles.is_empty() {
                totals.add_row(head.clone());
            }
            for (oracle, (plans, first)) in &total.oracles {
                let more =
                    [oracle.clone(), plans.to_string(), first.plan.clone(), first.message.clone()];
                totals.add_row(head.iter().chain(&more));
            }
        }
        let (shown, all) = (self.shown(), self.classes.len());
        format!(
            "{classes}\n{totals}\n{shown} of {all} hazard classes show in pr30468 as recorded\n"
        )
    }

    /// Classes that show as recorded.
    pub fn shown(&self) -> usize {
        self.classes.iter().filter(|shown| shown.as_recorded).count()
    }
}

impl Total {
    fn new(subject: Subject, verdicts: &[Verdict]) -> Self {
        let mut oracles: BTreeMap<String, (usize, Found)> = BTreeMap::new();
        for found in verdicts.iter().filter_map(found) {
            oracles.entry(found.oracle.to_string()).or_insert((0, found)).0 += 1;
        }
        let violated = oracles.values().map(|(plans, _)| plans).sum();
        Self { subject: subject.name(), plans: verdicts.len(), violated, oracles }
    }
}

/// A scenario's or a random plan's job with another subject.
pub fn with_subject(job: &Job, subject: Subject) -> Job {
    let plan = Plan { subject, ..job.plan.clone() };
    let expect = job.expect.filter(|_| subject.is_springtide());
    Job { plan, expect, engine: job.engine }
}

fn found(verdict: &Verdict) -> Option<Found> {
    let failure = verdict.failure.as_ref()?;
    Some(Found {
        plan: verdict.label(),
        oracle: failure.violation.oracle,
        message: failure.violation.message.clone(),
        plan_file: failure.plan_file.clone(),
    })
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        campaign::campaign,
        scenario::{self, Scenario},
        world::engine::EngineKind,
    };

    fn job(scenario: &Scenario) -> Job {
        let engine = EngineKind::default();
        Job { plan: scenario.plan(), expect: Some(scenario.expect), engine }
    }

    fn judge(scenario: &str, subject: Subject) -> Vec<Verdict> {
        let scenario = scenario::find(scenario).unwrap();
        let directory = std::env::temp_dir().join("springtide-sim-compare");
        let job = job(scenario);
        campaign(&[with_subject(&job, subject)], 1, &directory, &|_| {
            std::ops::ControlFlow::Continue(())
        })
    }

    #[test]
    fn the_record_names_scenarios_of_its_rows_and_each_class_once() {
        let record = record();
        let classes: BTreeSet<&str> = record.iter().map(|r| r.class.as_str()).collect();
        assert!(classes.len() == record.len() && classes.len() >= 12, "{classes:?}");
        for Recorded { row, scenario, hazards, .. } in &record {
            let found = scenario::find(scenario).unwrap_or_else(|| panic!("{scenario}"));
            assert!(found.rows.contains(&row.as_str()), "{scenario} is not of {row}");
            assert!(hazards.iter().all(|hazard| (1..=30).contains(hazard)), "{scenario}");
        }
    }

    #[test]
    fn a_block_that_is_freed_under_its_put_is_told_of_the_other_design_alone() {
        let name = "f094_a_node_that_times_out";
        let [ours, theirs] = Subject::ALL.map(|subject| judge(name, subject));
        let comparison = Comparison::new(&ours, &theirs);
        assert!(comparison.is_as_recorded(), "{}", comparison.to_text());
        assert_eq!((comparison.shown(), comparison.subjects[0].violated), (1, 0));
        // The same verdicts the other way round are a failure of springtide, and not as recorded.
        let swapped = Comparison::new(&theirs, &ours);
        assert!(!swapped.is_as_recorded());
        assert_eq!((swapped.shown(), swapped.subjects[0].violated), (0, 1));
        assert!(swapped.to_text().contains("NOT AS RECORDED: no violation"));
    }

    #[test]
    fn what_a_scenario_expects_is_asked_of_springtide_alone() {
        let scenario = scenario::find("f110_a_clean_end").unwrap();
        let job = job(scenario);
        let [ours, theirs] = Subject::ALL.map(|subject| with_subject(&job, subject));
        assert!(ours.expect.is_some() && ours.plan == job.plan);
        assert!(theirs.expect.is_none() && theirs.plan.subject == Subject::Pr30468);
        assert_eq!(Plan { subject: Subject::Springtide, ..theirs.plan }, job.plan);
    }

    #[test]
    fn in_a_quiet_run_the_other_design_works() {
        let quiet = judge("f110_a_clean_end", Subject::Pr30468);
        assert!(quiet[0].failure.is_none(), "{:?}", quiet[0].failure);
        assert!(quiet[0].stats.saved >= 3 && quiet[0].stats.loaded >= 3, "{:?}", quiet[0].stats);
    }
}
