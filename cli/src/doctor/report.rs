//! What was found, as lines for people and as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be, or not here and not needed.
    Ok,
    /// It works, and is slower or less safe than it could be.
    Warning,
    /// An instance will not work.
    Problem,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What was found of one part of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The part.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What there is.
    pub text: String,
    /// What to do; not for what is as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), advice: None }
    }

    pub(super) fn warning(
        check: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (text, advice) = (text.into(), Some(advice.into()));
        Self { check, level: Level::Warning, text, advice }
    }

    pub(super) fn problem(
        check: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { level: Level::Problem, ..Self::warning(check, text, advice) }
    }
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In the order in which it was looked for.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings are this bad.
    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// How many parts make an instance fail.
    pub fn problems(&self) -> usize {
        self.count(Level::Problem)
    }

    /// A line for each finding.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for Finding { check, level, text: found, advice } in &self.findings {
            let advice = advice.as_ref().map(|advice| format!(" -> {advice}")).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:<8} {check:<12} {found}{advice}", level.name());
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// One object.
    pub fn to_json(&self) -> String {
        let object = serde_json::json!({
            "problems": self.problems(),
            "warnings": self.count(Level::Warning),
            "checks": self.findings,
        });
        format!("{object:#}")
    }
}
