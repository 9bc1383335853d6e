//! Runs plans on both engines and compares the verdicts.
//!
//! The two move messages at other instants (one at ticks, the other when their latency is over), so their traces
//! differ by less than a tick here and there, and whatever hangs on such a difference, too: which of two saves was
//! first, whether a request came before its item. What must not differ is the judgement: the promise that is
//! broken, if one is, and whether a scenario's expectation is met.

use std::{io::Write, ops::ControlFlow};

use serde_json::{Value, json};

use super::{UsageError, directory, progress};
use crate::{
    campaign::{Job, Verdict, campaign},
    oracle::OracleId,
    report,
    world::engine::EngineKind,
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
    let [turmoil, fast] = [EngineKind::Turmoil, EngineKind::Fast].map(|engine| {
        let jobs: Vec<Job> = jobs.iter().map(|job| Job { engine, ..job.clone() }).collect();
        campaign(&jobs, threads, &directory(), &done)
    });
    progress.finish_and_clear();
    let pairs: Vec<_> = turmoil.iter().zip(&fast).collect();
    let different: Vec<_> =
        pairs.iter().filter(|(one, other)| broken(one) != broken(other)).collect();
    let violations = turmoil.iter().filter(|verdict| verdict.failure.is_some()).count();
    if as_json {
        let entry = |(one, other): &(&Verdict, &Verdict)| json!({ "plan": one.label(), "turmoil": broken(one), "fast": broken(other) });
        let different: Value = different.iter().copied().map(entry).collect();
        let report = json!({
            "plans": jobs.len(), "violations": violations, "different": different,
        });
        writeln!(out, "{report:#}")?;
    } else {
        for (one, other) in &different {
            for verdict in [one, other] {
                let word = broken(verdict).map_or("ok".to_owned(), |oracle| oracle.to_string());
                writeln!(out, "{}: {} on {}", verdict.label(), word, verdict.engine.name())?;
                if let Some(failure) = &verdict.failure {
                    write!(out, "{}", report::failure(verdict, failure))?;
                }
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

/// The promise that a run broke: what the engines are compared by.
fn broken(verdict: &Verdict) -> Option<OracleId> {
    verdict.failure.as_ref().map(|failure| failure.violation.oracle)
}
