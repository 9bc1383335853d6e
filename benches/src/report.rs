//! Rows, goals, the table and the file.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// What a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
    /// Whether `ratio` reaches it.
    pub fn met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::AtMost(bound) => write!(f, "<= {bound}"),
        }
    }
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was compared.
    pub what: String,
    /// springtide's own figure, with its unit.
    pub ours: String,
    /// Whom it is compared with.
    pub rival: String,
    /// The rival's figure.
    pub theirs: String,
    /// Ours over theirs: the median, where there are rounds.
    pub ratio: f64,
    /// Lower and upper quartile of the ratio, where there are rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quartiles: Option<[f64; 2]>,
    /// What the ratio should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// The rows of one suite.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name on the command line.
    pub suite: &'static str,
    /// One sentence: what is compared, in which unit.
    pub about: &'static str,
    /// The comparisons.
    pub rows: Vec<Row>,
}

/// What ran and where.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The processor, as the system names it, and how many of it.
    pub machine: String,
    /// springtide's version.
    pub version: &'static str,
    /// Whether the sizes were cut short.
    pub quick: bool,
    /// The suites that ran.
    pub sections: Vec<Section>,
}

impl Report {
    /// Goals, and how many of them were missed.
    pub fn goals(&self) -> (usize, usize) {
        let rows = self.sections.iter().flat_map(|section| &section.rows);
        let verdicts = rows.filter_map(|row| row.goal.map(|goal| goal.met(row.ratio)));
        verdicts.fold((0, 0), |(all, missed), met| (all + 1, missed + usize::from(!met)))
    }

    /// The report as a document in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# Measured\n\n");
        let size = if self.quick { ", quick" } else { "" };
        let _ = writeln!(text, "{}; springtide {}{size}.", self.machine, self.version);
        for Section { suite, about, rows } in &self.sections {
            let _ = write!(text, "\n## {suite}\n\n{about}\n\n");
            text.push_str("| what | springtide | rival | its figure | ratio | goal |\n");
            text.push_str("|---|---|---|---|---|---|\n");
            rows.iter().for_each(|row| text.push_str(&line(row)));
        }
        let (all, missed) = self.goals();
        let _ = write!(text, "\n{} of {all} goals met.\n", all - missed);
        text
    }
}

fn line(row: &Row) -> String {
    let spread = row.quartiles.map(|[low, high]| format!(" ({low:.2}-{high:.2})"));
    let goal = row.goal.map(|goal| match goal.met(row.ratio) {
        true => format!("{goal}"),
        false => format!("{goal}: **missed**"),
    });
    format!(
        "| {} | {} | {} | {} | {:.3}{} | {} |\n",
        row.what,
        row.ours,
        row.rival,
        row.theirs,
        row.ratio,
        spread.unwrap_or_default(),
        goal.unwrap_or_default(),
    )
}

/// The processor and the number of them that this process may use.
pub fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.unwrap_or("unknown processor").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ratio: f64) -> Report {
        let row = Row {
            what: "items".into(),
            ours: "30".into(),
            rival: "plain".into(),
            theirs: "20".into(),
            ratio,
            quartiles: None,
            goal: Some(Goal::AtLeast(1.2)),
        };
        let section = Section { suite: "capacity", about: "Items.", rows: vec![row] };
        Report { machine: "m".into(), version: "0", quick: false, sections: vec![section] }
    }

    #[test]
    fn a_missed_goal_is_said() {
        assert_eq!(report(1.5).goals(), (1, 0));
        assert_eq!(report(1.1).goals(), (1, 1));
        let text = report(1.1).markdown();
        assert!(
            text.contains("| items | 30 | plain | 20 | 1.100 | >= 1.2: **missed** |"),
            "{text}"
        );
        assert!(text.ends_with("0 of 1 goals met.\n"), "{text}");
    }
}
