//! Runs plans on both engines and tells where they disagree.

use std::{io::Write, ops::ControlFlow};

use serde_json::{Value, json};

use super::{UsageError, directory, progress};
use crate::{
    campaign::{Job, Verdict},
    engines::{Both, broken, on_both},
    report,
};

/// Runs every job on both engines; the exit code tells whether any verdict differs.
pub(super) fn compare_engines(
    jobs: Vec<Job>,
    threads: usize,
    as_json: bool,
    out: &mut impl Write,
) -> Result<u8, UsageError> {
    let progress = progress(2 * jobs.len() as u64);
    let done = |_: &Verdict| {
        progress.inc(1);
        ControlFlow::Continue(())
    };
    let all = on_both(&jobs, threads, &directory(), &done);
    progress.finish_and_clear();
    let different: Vec<&Both> = all.iter().filter(|both| !both.agree()).collect();
    let violations = all.iter().filter(|both| both.turmoil.failure.is_some()).count();
    if as_json {
        let entry = |Both { turmoil, fast }: &Both| json!({ "plan": turmoil.label(), "turmoil": broken(turmoil), "fast": broken(fast) });
        let different: Value = different.iter().copied().map(entry).collect();
        let report = json!({
            "plans": jobs.len(), "violations": violations, "different": different,
        });
        writeln!(out, "{report:#}")?;
    } else {
        for verdict in different.iter().flat_map(|both| [&both.turmoil, &both.fast]) {
            let word = broken(verdict).map_or("ok".to_owned(), |oracle| oracle.to_string());
            writeln!(out, "{}: {} on {}", verdict.label(), word, verdict.engine.name())?;
            if let Some(failure) = &verdict.failure {
                write!(out, "{}", report::failure(verdict, failure))?;
            }
        }
        writeln!(
            out,
            "{} different verdicts in {} plans run on both engines, {violations} of which violate \
             something on turmoil",
            different.len(),
            jobs.len()
        )?;
    }
    Ok(u8::from(!different.is_empty()))
}
