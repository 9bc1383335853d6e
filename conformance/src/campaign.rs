//! A whole comparison: saved sequences first, then the written ones, then random ones.
//!
//! Several *lanes* work side by side, each sequence on a store of its own: they wait far more than they
//! compute. A lane takes the next written sequence; when there is none left, it starts one store and
//! takes the next random sequence again and again. Which sequences are drawn follows from the seed alone,
//! whichever lane runs them.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde::Serialize;

use crate::{
    arm::Broken,
    fake::FakeArm,
    random::Draw,
    real::{Installation, RealArm},
    run::{Bench, Difference, End, Tally},
    saved::Saved,
    scenarios::{self, Scenario},
    shrink::shrink,
    step::{Step, World},
    timeline::{RealTime, Timeline},
};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operations of random sequences, at least.
    pub operations: u64,
    /// What the random sequences are drawn from.
    pub seed: u64,
    /// Only the written and saved sequences with this in their name; no random ones.
    pub only: Option<String>,
    /// Those written sequences too that may take minutes.
    pub slow: bool,
    /// Sequences that run at a time.
    pub at_a_time: usize,
    /// Saved sequences are read here, and failures written.
    pub saved: PathBuf,
}

/// What came of a comparison.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The real store's version.
    pub version: String,
    /// What was compared.
    pub tally: Tally,
    /// Random sequences, and how many ended near an edge.
    pub sequences: u64,
    /// See [`End::NearEdge`].
    pub near_edge: u64,
    /// Written and saved sequences, and how long each took.
    pub scenarios: Vec<(String, Duration)>,
    /// Written sequences that were left out, each with the reason.
    pub left_out: Vec<(&'static str, &'static str)>,
    /// Whether random sequences were part of it, so that the table must be full.
    pub complete: bool,
    /// What differs, with the name of the sequence and, for a new one, its file.
    pub differences: Vec<Found>,
}

/// A difference with where it was found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The sequence.
    pub sequence: String,
    /// Where it was saved.
    pub file: Option<PathBuf>,
    /// The difference.
    pub difference: Difference,
}

/// Tries of a written sequence that a slow machine brings near an edge.
const TRIES: u32 = 10;

/// Steps of shrinking a failure.
const SHRINK_MAX: usize = 100;

/// Differences after which a comparison ends: more say nothing new.
const DIFFERENCES_MAX: usize = 3;

type RealBench = Bench<RealArm, RealTime>;

/// Compares. `progress` is told what goes on.
///
/// # Errors
/// [`Broken::Harness`], the first of any lane.
pub fn compare(
    installation: &Installation,
    plan: &Plan,
    progress: impl Fn(&str) + Sync,
) -> Result<Outcome, Broken> {
    let (chosen, left_out) = chosen(plan)?;
    let outcome = Outcome { complete: plan.only.is_none(), left_out, ..Outcome::default() };
    let campaign = Campaign {
        installation,
        plan,
        progress: &progress,
        written: Mutex::new(chosen.into()),
        draw: Mutex::new(Draw::new(plan.seed)),
        state: Mutex::new(State { outcome, random_operations: 0, broken: None }),
    };
    thread::scope(|scope| {
        for _ in 0..plan.at_a_time.max(1) {
            scope.spawn(|| campaign.lane());
        }
    });
    let State { outcome, broken, .. } =
        campaign.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    broken.map_or(Ok(outcome), Err)
}

/// A sequence that is not random.
struct Named {
    name: String,
    world: World,
    steps: Vec<Step>,
}

/// Names of sequences that are left out, each with the reason.
type LeftOut = Vec<(&'static str, &'static str)>;

/// Saved sequences, then written ones; which ones are left out, and why.
fn chosen(plan: &Plan) -> Result<(Vec<Named>, LeftOut), Broken> {
    let wanted = |name: &str| plan.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let saved = Saved::all(&plan.saved)?.into_iter().map(|(path, Saved { world, steps })| {
        let name = path.display().to_string();
        Named { name, world, steps }
    });
    let mut all: Vec<Named> = saved.filter(|named| wanted(&named.name)).collect();
    let mut left_out = Vec::new();
    for scenario in scenarios::all().into_iter().filter(|scenario| wanted(scenario.name)) {
        let Scenario { name, world, steps, slow } = scenario;
        match slow {
            Some(reason) if !plan.slow => left_out.push((name, reason)),
            _ => all.push(Named { name: name.to_owned(), world, steps }),
        }
    }
    match &plan.only {
        Some(only) if all.is_empty() => Err(Broken::Harness(nothing_chosen(only, &left_out))),
        _ => Ok((all, left_out)),
    }
}

/// What to say where a name fits no sequence that would run.
fn nothing_chosen(only: &str, left_out: &LeftOut) -> String {
    if let Some((name, reason)) = left_out.first() {
        return format!("{name} runs with --slow only: {reason}");
    }
    let names: Vec<_> = scenarios::all().into_iter().map(|scenario| scenario.name).collect();
    format!(
        "expected a part of the name of a sequence, got {only:?}; they are {}",
        names.join(", ")
    )
}

/// What the lanes share.
struct Campaign<'a> {
    installation: &'a Installation,
    plan: &'a Plan,
    progress: &'a (dyn Fn(&str) + Sync),
    /// Still to be run.
    written: Mutex<VecDeque<Named>>,
    draw: Mutex<Draw>,
    state: Mutex<State>,
}

struct State {
    outcome: Outcome,
    /// Compared in random sequences.
    random_operations: u64,
    /// Why nothing more can be said.
    broken: Option<Broken>,
}

impl Campaign<'_> {
    /// One of those that work side by side.
    fn lane(&self) {
        let work = || {
            while let Some(named) = self.next_written() {
                self.written(&named)?;
            }
            if self.plan.only.is_none() { self.random() } else { Ok(()) }
        };
        if let Err(broken) = work() {
            self.state().broken.get_or_insert(broken);
        }
    }

    /// Whether lanes should begin nothing more.
    fn is_over(&self) -> bool {
        let state = self.state();
        state.broken.is_some() || state.outcome.differences.len() >= DIFFERENCES_MAX
    }

    fn next_written(&self) -> Option<Named> {
        if self.is_over() {
            return None;
        }
        lock(&self.written).pop_front()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Runs a sequence on a store of its own, again if the machine was too slow for it.
    fn written(&self, named: &Named) -> Result<(), Broken> {
        let clock = RealTime::start();
        let Named { name, world, steps } = named;
        (self.progress)(name);
        let mut last = String::new();
        for _ in 0..TRIES {
            let mut bench = bench(self.installation, world)?;
            let end = bench.run(steps)?;
            let mut state = self.state();
            let outcome = &mut state.outcome;
            outcome.version = bench.real().version().to_owned();
            outcome.tally.add(&bench.take_tally());
            if let End::NearEdge(step, took) = end {
                outcome.near_edge += 1;
                last = format!("the last at step {step}, which took {took:?}");
                continue;
            }
            if let End::Different(difference) = end {
                outcome.differences.push(Found { sequence: name.clone(), file: None, difference });
            }
            let took = clock.now();
            outcome.scenarios.push((name.clone(), took));
            (self.progress)(&format!("{name}: {:.1} s", took.as_secs_f64()));
            return Ok(());
        }
        let text = format!("{name}: {TRIES} tries were all too slow to be compared, {last}");
        Err(Broken::Harness(text))
    }

    /// Runs random sequences, one after the other on one store, until so many operations are compared.
    fn random(&self) -> Result<(), Broken> {
        if self.enough() {
            return Ok(());
        }
        (self.progress)("random sequences");
        let mut bench = bench(self.installation, &World::default())?;
        self.state().outcome.version = bench.real().version().to_owned();
        while !self.enough() {
            let (number, steps) = lock(&self.draw).draw()?;
            let end = whole(&mut bench, &steps)?;
            {
                let mut state = self.state();
                let tally = bench.take_tally();
                state.random_operations += tally.operations;
                state.outcome.sequences += 1;
                state.outcome.tally.add(&tally);
                state.outcome.near_edge += u64::from(matches!(end, End::NearEdge(..)));
            }
            if let End::Different(difference) = end {
                self.keep(&mut bench, number, &steps, difference)?;
            }
        }
        Ok(())
    }

    fn enough(&self) -> bool {
        self.is_over() || self.state().random_operations >= self.plan.operations
    }

    /// Shortens a random sequence that differs, and keeps it.
    fn keep(
        &self,
        bench: &mut RealBench,
        number: u64,
        steps: &[Step],
        difference: Difference,
    ) -> Result<(), Broken> {
        let name = format!("seed-{}-{number}", self.plan.seed);
        (self.progress)(&format!("{name}: {difference}; shortening it"));
        recover(self.installation, bench)?;
        let (steps, difference) = shorten(self.installation, bench, steps, difference)?;
        // What was compared to shorten it counts for nothing.
        drop(bench.take_tally());
        let saved = Saved { world: World::default(), steps };
        let file = Some(saved.keep(&self.plan.saved, &name)?);
        self.state().outcome.differences.push(Found { sequence: name, file, difference });
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bench(installation: &Installation, world: &World) -> Result<RealBench, Broken> {
    let real = RealArm::new(installation, world)?;
    let time = RealTime::start();
    let fake = FakeArm::new(world)?;
    Ok(Bench::new(world.clone(), fake, real, time))
}

/// After a difference: the same store if it can be emptied, else a new one.
fn recover(installation: &Installation, bench: &mut RealBench) -> Result<(), Broken> {
    if !matches!(bench.clean_up(&[]), Ok(End::Compared)) {
        *bench = self::bench(installation, &World::default())?;
    }
    Ok(())
}

/// A sequence and what ends it.
fn whole(bench: &mut RealBench, steps: &[Step]) -> Result<End, Broken> {
    let end = bench.run(steps)?;
    match end {
        End::Different(_) => return Ok(end),
        End::Compared | End::NearEdge(..) => {}
    }
    match bench.clean_up(steps)? {
        End::Compared => Ok(end),
        // After a sequence that ended near an edge the arms may differ in what is left.
        _ if matches!(end, End::NearEdge(..)) => Ok(end),
        other => Ok(other),
    }
}

/// The shortest sequence that still differs, as far as so many tries go.
fn shorten(
    installation: &Installation,
    bench: &mut RealBench,
    steps: &[Step],
    difference: Difference,
) -> Result<(Vec<Step>, Difference), Broken> {
    let (at, mut last) = (difference.step, difference);
    let shortest = shrink(steps, at, SHRINK_MAX, |steps| {
        let end = bench.run(steps)?;
        recover(installation, bench)?;
        let End::Different(difference) = end else { return Ok(None) };
        let at = difference.step;
        last = difference;
        Ok(Some(at))
    })?;
    Ok((shortest, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(only: &str, slow: bool) -> String {
        let plan = Plan {
            operations: 0,
            seed: 0,
            only: Some(only.to_owned()),
            slow,
            at_a_time: 1,
            saved: "/nowhere".into(),
        };
        chosen(&plan).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_name_that_fits_nothing_is_refused_with_the_names_that_there_are() {
        let said = refused("nope", true);
        assert!(
            said.starts_with("expected a part of the name of a sequence, got \"nope\"; they are ")
        );
        for scenario in scenarios::all() {
            assert!(said.contains(scenario.name), "{} is not in {said}", scenario.name);
            assert_eq!(refused(scenario.name, true), "");
        }
    }

    #[test]
    fn a_name_that_fits_only_what_is_left_out_is_refused_with_the_reason() {
        let all = scenarios::all();
        let (name, reason) = all.iter().find_map(|one| Some((one.name, one.slow?))).unwrap();
        assert_eq!(refused(name, false), format!("{name} runs with --slow only: {reason}"));
    }
}
