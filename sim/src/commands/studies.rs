//! What looks at more than runs: coverage, small worlds, the smallest failing plan.

use std::{
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
    thread,
};

use super::{UsageError, directory, progress};
use crate::{
    campaign::{Job, Verdict, campaign},
    coverage::read_baseline,
    explore::{Explored, SmallWorld, WORLDS, explore},
    minimize::{Size, broken, minimize},
    plan::Plan,
    report,
    world::engine::EngineKind,
};

/// Exit code for a campaign that missed what one has reached before.
const LESS_COVERED: u8 = 5;
/// The cells that a full campaign reaches, and how many of its runs have to reach one that is kept.
const BASELINE: &str = include_str!("../coverage.json");
const BASELINE_RUNS: u64 = 7;

/// Runs everything and prints which faults met which states.
pub(super) fn coverage(
    jobs: Vec<Job>,
    threads: usize,
    write: Option<PathBuf>,
    out: &mut impl Write,
) -> Result<u8, UsageError> {
    let progress = progress(jobs.len() as u64);
    let done = |_: &Verdict| {
        progress.inc(1);
        ControlFlow::Continue(())
    };
    let verdicts = campaign(&jobs, threads, &directory(), &done);
    progress.finish_and_clear();
    let matrix = report::matrix(&verdicts);
    writeln!(out, "{matrix}")?;
    for verdict in &verdicts {
        if let Some(failure) = &verdict.failure {
            write!(out, "{}", report::failure(verdict, failure))?;
        }
    }
    if let Some(path) = write {
        std::fs::write(path, matrix.baseline(BASELINE_RUNS) + "\n")?;
        return Ok(report::exit_code(&verdicts));
    }
    let code = missed(&verdicts, out)?;
    Ok(if verdicts.iter().any(|v| v.failure.is_some()) {
        report::exit_code(&verdicts)
    } else {
        code
    })
}

/// Tells what a full campaign has reached before and `verdicts` have not; the exit code for that.
pub(super) fn missed(verdicts: &[Verdict], out: &mut impl Write) -> Result<u8, UsageError> {
    let baseline = read_baseline(BASELINE).expect("the baseline is tested");
    let missing = report::matrix(verdicts).missing(&baseline);
    if missing.is_empty() {
        return Ok(0);
    }
    writeln!(out, "{}", report::missed(&missing))?;
    Ok(LESS_COVERED)
}

/// Explores small worlds side by side; all of them have to be exhausted.
pub(super) fn explore_worlds(
    names: &[String],
    executions: u64,
    json: bool,
    out: &mut impl Write,
) -> Result<u8, UsageError> {
    let known = || WORLDS.iter().map(|world| world.name);
    if let Some(got) = names.iter().find(|name| !known().any(|known| known == *name)) {
        let expected = known().collect::<Vec<_>>().join(", ");
        return Err(UsageError::World { expected, got: got.clone() });
    }
    let wanted = |world: &&SmallWorld| names.is_empty() || names.iter().any(|n| n == world.name);
    let explored: Vec<Explored> = thread::scope(|scope| {
        let worlds = WORLDS.iter().filter(wanted).copied();
        let running: Vec<_> =
            worlds.map(|world| scope.spawn(move || explore(world, executions))).collect();
        running.into_iter().map(|world| world.join().expect("panics are findings")).collect()
    });
    if json {
        writeln!(out, "{}", report::explored_json(&explored))?;
    } else {
        write!(out, "{}", report::explored(&explored))?;
    }
    let broken = explored.iter().any(|world| world.violation.is_some() || !world.exhausted);
    Ok(u8::from(broken))
}

/// Minimizes a failing plan, writes what is left, and prints a test of it.
pub(super) fn minimize_plan(
    path: &Path,
    tries: u64,
    file: Option<PathBuf>,
    engine: EngineKind,
    out: &mut impl Write,
) -> Result<u8, UsageError> {
    let plan = Plan::read(path).map_err(UsageError::File)?;
    let Some(minimal) = minimize(&plan, tries, &|plan| broken(plan, engine)) else {
        return Err(UsageError::NoFailure(path.display().to_string()));
    };
    let file = file.unwrap_or_else(|| path.with_extension("minimal.json"));
    std::fs::write(&file, minimal.plan.to_json())?;
    writeln!(out, "{}: {} plans tried", minimal.oracle, minimal.tried)?;
    writeln!(out, "  before: {}", Size::of(&plan))?;
    writeln!(out, "  after:  {}", Size::of(&minimal.plan))?;
    if !minimal.is_minimal {
        writeln!(out, "  the tries were used up: --tries N allows more")?;
    }
    let on = match engine {
        EngineKind::Turmoil => "",
        EngineKind::Fast => "--engine fast ",
    };
    writeln!(out, "  replay: sim {on}--trace --plan {}\n", file.display())?;
    write!(out, "{}", minimal.test(engine))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::FaultKind;

    #[test]
    fn the_baseline_is_readable_and_has_most_kinds_of_fault() {
        let cells = read_baseline(BASELINE).unwrap();
        let kinds: BTreeSet<FaultKind> = cells.iter().map(|(kind, _)| *kind).collect();
        assert!(kinds.len() * 2 > FaultKind::ALL.len(), "{kinds:?}");
        assert!(cells.len() >= 100, "{} cells", cells.len());
    }
}
