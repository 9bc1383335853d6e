//! What a campaign looks like: a table for people, an object for programs.

use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use crate::{
    campaign::{Failure, Verdict},
    coverage::{CellId, Matrix},
    explore::Explored,
    oracle::OracleId,
    reach::{MARKS, Reach},
    stats::Stats,
    trace,
    world::engine::EngineKind,
};

/// The whole of a campaign as JSON.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// How many plans ran.
    pub plans: usize,
    /// What ran them, if any ran.
    pub engine: Option<EngineKind>,
    /// One entry a plan, in order.
    pub runs: &'a [Verdict],
    /// Every violation.
    pub violations: Vec<Violated<'a>>,
    /// How often each mark was reached.
    pub reached: BTreeMap<&'static str, u64>,
    /// Combined over all plans, independent of the number of threads.
    pub trace_hash: String,
}

/// A violation in the report.
#[derive(Debug, Serialize)]
pub struct Violated<'a> {
    /// `seed 7`, or a scenario.
    pub plan: String,
    /// The failure.
    #[serde(flatten)]
    pub failure: &'a Failure,
}

impl<'a> Report<'a> {
    /// The report on `verdicts`.
    pub fn new(verdicts: &'a [Verdict]) -> Self {
        let reach = reach(verdicts);
        let violations = verdicts.iter().filter_map(|verdict| {
            let failure = verdict.failure.as_ref()?;
            Some(Violated { plan: verdict.label(), failure })
        });
        Self {
            plans: verdicts.len(),
            engine: verdicts.first().map(|verdict| verdict.engine),
            runs: verdicts,
            violations: violations.collect(),
            reached: MARKS.iter().map(|mark| (*mark, reach.count(mark))).collect(),
            trace_hash: hash(verdicts),
        }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }
}

/// The exit code of a campaign: 0, 3 when all violations are of liveness, else 1.
pub fn exit_code(verdicts: &[Verdict]) -> u8 {
    let mut oracles = verdicts.iter().filter_map(|v| Some(v.failure.as_ref()?.violation.oracle));
    match oracles.next() {
        None => 0,
        Some(OracleId::I5) if oracles.all(|oracle| oracle == OracleId::I5) => 3,
        Some(_) => 1,
    }
}

/// The table: a row a scenario, and one for the random plans of each traffic profile.
pub fn table(verdicts: &[Verdict]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([
        "scenario",
        "plans",
        "simulated",
        "faults",
        "saved",
        "loaded",
        "missed",
        "verdict",
    ]);
    let mut groups: Vec<(&str, Vec<&Verdict>)> = Vec::new();
    for verdict in verdicts {
        match groups.iter_mut().find(|(group, _)| *group == verdict.group) {
            Some((_, members)) => members.push(verdict),
            None => groups.push((&verdict.group, vec![verdict])),
        }
    }
    for (group, members) in groups {
        let mut stats = Stats::default();
        members.iter().for_each(|member| stats += &member.stats);
        let simulated_ms: u64 = members.iter().map(|member| member.simulated_ms).sum();
        let failure = members.iter().find_map(|member| member.failure.as_ref());
        let verdict =
            failure.map_or("ok".to_owned(), |failure| failure.violation.oracle.to_string());
        let number = |n: u64| Cell::new(n).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(group),
            number(members.len() as u64),
            Cell::new(format!("{:.1} s", simulated_ms as f64 / 1000.0))
                .set_alignment(CellAlignment::Right),
            number(stats.faults),
            number(stats.saved),
            number(stats.loaded),
            number(stats.missed),
            Cell::new(verdict),
        ]);
    }
    table.to_string()
}

/// A failure for people: what was broken, where, the history, how to see it again.
pub fn failure(verdict: &Verdict, failure: &Failure) -> String {
    let Failure { violation, history, plan_file } = failure;
    let seconds = violation.time_us as f64 / 1e6;
    let mut text = format!(
        "\n{} violated by {}\n  {}\n  event {} at {seconds:.6} s on {}: {}\n",
        violation.oracle,
        verdict.label(),
        violation.message,
        violation.event,
        violation.host,
        violation.what,
    );
    // Writing to a string does not fail.
    let _ = writeln!(text, "  history:");
    for line in history {
        let _ = writeln!(text, "    {line}");
    }
    if let Some(plan) = plan_file {
        let engine = match verdict.engine {
            EngineKind::Turmoil => "",
            EngineKind::Fast => "--engine fast ",
        };
        let _ = writeln!(text, "  replay: ./ci/just sim {engine}--trace --plan {}", plan.display());
    }
    text
}

/// The marks that no run reached, as a paragraph; empty if there is none.
pub fn never_reached(verdicts: &[Verdict]) -> String {
    let missing = reach(verdicts).missing();
    if missing.is_empty() {
        return String::new();
    }
    format!("never reached: {}", missing.join("; "))
}

/// The last line.
pub fn summary(verdicts: &[Verdict]) -> String {
    let violations = verdicts.iter().filter(|verdict| verdict.failure.is_some()).count();
    let counted = |n: usize, what| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (violations, plans) = (counted(violations, "violation"), counted(verdicts.len(), "plan"));
    format!("{violations} in {plans}, trace hash {}", hash(verdicts))
}

/// What came of exploring small worlds, for people.
pub fn explored(worlds: &[Explored]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["world", "executions", "pruned", "states", "steps", "verdict"]);
    for world in worlds {
        let number = |n: u64| Cell::new(n).set_alignment(CellAlignment::Right);
        let verdict = match &world.violation {
            Some(broken) => broken.oracle.to_string(),
            None if world.exhausted => "ok, exhausted".to_owned(),
            None => "ok so far, not exhausted".to_owned(),
        };
        table.add_row([
            Cell::new(world.world),
            number(world.executions),
            number(world.pruned),
            number(world.states as u64),
            number(world.steps as u64),
            Cell::new(verdict),
        ]);
    }
    let mut text = format!("{table}\n");
    for (world, broken) in worlds.iter().filter_map(|w| Some((w.world, w.violation.as_ref()?))) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{} violated in {world}\n  {}", broken.oracle, broken.message);
        for step in &broken.path {
            let _ = writeln!(text, "    {step}");
        }
    }
    text
}

/// The same for programs.
pub fn explored_json(worlds: &[Explored]) -> String {
    let violations: Vec<_> = worlds.iter().filter_map(|world| world.violation.as_ref()).collect();
    let executions: u64 = worlds.iter().map(|world| world.executions).sum();
    let report = serde_json::json!({
        "plans": executions, "worlds": worlds, "violations": violations,
    });
    report.to_string()
}

/// The faults and states that all runs together reached.
pub fn matrix(verdicts: &[Verdict]) -> Matrix {
    let mut matrix = Matrix::default();
    verdicts.iter().for_each(|verdict| matrix.add(&verdict.coverage));
    matrix
}

/// The cells that a campaign should have reached, as a paragraph.
pub fn missed(missing: &[CellId]) -> String {
    let cell = |(kind, what): &CellId| format!("{} while {}", kind.name(), what.name());
    let cells: Vec<String> = missing.iter().map(cell).collect();
    format!("reached before, and not now: {}", cells.join("; "))
}

fn reach(verdicts: &[Verdict]) -> Reach {
    let mut reach = Reach::default();
    verdicts.iter().for_each(|verdict| reach.add(&verdict.reach));
    reach
}

fn hash(verdicts: &[Verdict]) -> String {
    format!("{:016x}", trace::combine(verdicts.iter().map(|verdict| verdict.hash)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{coverage::Coverage, recorder::Violation};

    fn verdict(group: &str, oracle: Option<OracleId>) -> Verdict {
        let failure = oracle.map(|oracle| Failure {
            violation: Violation {
                oracle,
                event: 17,
                time_us: 1_500_000,
                host: "encoder0".into(),
                what: "save m0/item007 ticket #3: stored".into(),
                message: "m0/item007 is reported as stored, but the store never had it".into(),
                key: Some("m0/item007".into()),
            },
            history: vec!["    12 1.200000s encoder0  save m0/item007 opens ticket #3".into()],
            plan_file: Some("target/sim/random-w1-7.json".into()),
        });
        Verdict {
            group: group.into(),
            seed: 7,
            engine: EngineKind::default(),
            trace_hash: "000000000000002a".into(),
            events: 17,
            simulated_ms: 1_500,
            stats: Stats { saved: 3, loaded: 2, missed: 1, faults: 4, ..Stats::default() },
            failure,
            reach: Reach::default(),
            coverage: Coverage::default(),
            hash: 42,
        }
    }

    #[test]
    fn exit_codes_tell_safety_from_liveness() {
        let code = |oracles: &[Option<OracleId>]| {
            let verdicts: Vec<Verdict> = oracles.iter().map(|o| verdict("x", *o)).collect();
            exit_code(&verdicts)
        };
        assert_eq!(code(&[None, None]), 0);
        assert_eq!(code(&[None, Some(OracleId::I5)]), 3);
        assert_eq!(code(&[Some(OracleId::I5), Some(OracleId::I2)]), 1);
        assert_eq!(code(&[Some(OracleId::Expectation)]), 1);
    }

    #[test]
    fn the_report_of_a_campaign() {
        let verdicts = [
            verdict("f001_timeout_while_put_runs", None),
            verdict("random w1", None),
            verdict("random w1", Some(OracleId::I1)),
        ];
        let mut text = table(&verdicts);
        text += &failure(&verdicts[2], verdicts[2].failure.as_ref().unwrap());
        text += &summary(&verdicts);
        insta::assert_snapshot!(text);
    }
}
