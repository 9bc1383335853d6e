//! Both subjects on the same plans.

use std::{io::Write, ops::ControlFlow};

use super::{UsageError, directory, job, progress, random, scenarios};
use crate::{
    campaign::{Job, Verdict, campaign},
    cli::CompareArgs,
    compare::{Comparison, with_subject},
    scenario,
    subjects::Subject,
};

/// Random plans beside all scenarios.
const PLANS: u64 = 20;

/// Runs every plan with each subject and compares the verdicts.
pub(super) fn compare(args: &CompareArgs, out: &mut impl Write) -> Result<u8, UsageError> {
    let jobs = jobs(args)?;
    let progress = progress(2 * jobs.len() as u64);
    let done = |verdict: &Verdict| {
        progress.set_message(verdict.label());
        progress.inc(1);
        ControlFlow::Continue(())
    };
    let [ours, theirs] = Subject::ALL.map(|subject| {
        let jobs: Vec<Job> = jobs.iter().map(|job| with_subject(job, subject)).collect();
        campaign(&jobs, args.side.threads(), &directory().join(subject.name()), &done)
    });
    progress.finish_and_clear();
    let comparison = Comparison::new(&ours, &theirs);
    let text = if args.json { comparison.to_json() + "\n" } else { comparison.to_text() };
    write!(out, "{text}")?;
    Ok(u8::from(!comparison.is_as_recorded()))
}

fn jobs(args: &CompareArgs) -> Result<Vec<Job>, UsageError> {
    let mut jobs = Vec::new();
    for name in &args.scenario {
        jobs.extend(scenarios(name)?.into_iter().map(job));
    }
    let everything = jobs.is_empty();
    if everything {
        jobs.extend(scenario::all().map(job));
    }
    let plans = args.plans.unwrap_or(if everything { PLANS } else { 0 });
    jobs.extend(random(args.seed, plans));
    Ok(jobs)
}
