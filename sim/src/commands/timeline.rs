//! Timelines: as text, and as a page.

use std::{io::Write, path::Path, slice};

use super::{UsageError, directory, go_on, one, replay, trace};
use crate::{
    campaign::{Job, Verdict, campaign, run_on},
    cli::Source,
    plan::Plan,
    recorder::Keep,
    report,
    timeline::{Timeline, page},
    world::engine::EngineKind,
};

/// Shows the timeline of one plan: as text, or as a page in a file.
pub(super) fn timeline(
    plan: Option<&Path>,
    source: &Source,
    engine: EngineKind,
    html: Option<&Path>,
    out: &mut impl Write,
) -> Result<u8, UsageError> {
    let job = match plan {
        Some(path) => replay(Plan::read(path).map_err(UsageError::File)?),
        None => one(source)?,
    };
    let job = Job { engine, ..job };
    let Some(html) = html else { return trace(&[job], out) };
    let verdicts = campaign(slice::from_ref(&job), 1, &directory(), &go_on);
    let again = match (plan, &source.scenario, source.seed) {
        (Some(path), ..) => format!("--plan {}", path.display()),
        (_, Some(_), _) => format!("--scenario {}", job.plan.name),
        (_, _, seed) => format!("--seed {}", seed.unwrap_or_default()),
    };
    write_page(&job, &verdicts[0], &again, html)?;
    writeln!(out, "{}: {} events", html.display(), verdicts[0].events)?;
    writeln!(out, "{}", report::summary(&verdicts))?;
    Ok(report::exit_code(&verdicts))
}

/// Writes a page about the first violation of many runs, or about the only run.
pub(super) fn page_of_first(
    jobs: &[Job],
    verdicts: &[Verdict],
    html: &Path,
) -> Result<(), UsageError> {
    let failed = verdicts.iter().find(|verdict| verdict.failure.is_some());
    let Some(verdict) = failed.or((jobs.len() == 1).then(|| &verdicts[0])) else {
        eprintln!("note: {} is not written: no violation to show", html.display());
        return Ok(());
    };
    let of_verdict = |job: &&Job| (&job.plan.name, job.plan.seed) == (&verdict.group, verdict.seed);
    let job = jobs.iter().find(of_verdict).expect("a verdict is on one of the jobs");
    let file = verdict.failure.as_ref().and_then(|failure| failure.plan_file.as_ref());
    let again = match file {
        Some(path) => format!("--plan {}", path.display()),
        None if job.expect.is_some() => format!("--scenario {}", job.plan.name),
        None => format!("--seed {}", job.plan.seed),
    };
    write_page(job, verdict, &again, html)
}

fn write_page(job: &Job, verdict: &Verdict, again: &str, html: &Path) -> Result<(), UsageError> {
    let outcome = run_on(job.engine, &job.plan, Keep::Everything);
    let violation = verdict.failure.as_ref().map(|failure| &failure.violation);
    let engine = match job.engine {
        EngineKind::Turmoil => "",
        EngineKind::Fast => "--engine fast ",
    };
    let replay = format!("./ci/just sim {engine}--trace {again}");
    let timeline = Timeline::new(&job.plan, &outcome, violation, &replay);
    std::fs::write(html, page::html(&timeline))
        .map_err(|source| UsageError::Write { path: html.display().to_string(), source })
}
