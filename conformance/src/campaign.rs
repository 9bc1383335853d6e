//! A whole comparison: saved sequences first, then the written ones, then random ones.

use std::path::{Path, PathBuf};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde::{Deserialize, Serialize};

use crate::{
    arm::Broken,
    fake::FakeArm,
    generate,
    real::{Installation, RealArm},
    run::{Bench, Difference, End, Tally},
    scenarios::{self, Scenario},
    shrink::shrink,
    step::{Step, World},
    timeline::RealTime,
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
    /// Saved sequences are read here, and failures written.
    pub saved: PathBuf,
}

/// A sequence on a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The store.
    pub world: World,
    /// What happens.
    pub steps: Vec<Step>,
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
    /// Written and saved sequences.
    pub scenarios: u64,
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

/// Compares.
///
/// # Errors
/// [`Broken::Harness`].
pub fn compare(
    installation: &Installation,
    plan: &Plan,
    mut progress: impl FnMut(&str),
) -> Result<Outcome, Broken> {
    let mut outcome = Outcome { complete: plan.only.is_none(), ..Outcome::default() };
    for scenario in chosen(plan)? {
        progress(&scenario.name);
        let found = run_scenario(installation, &scenario, &mut outcome)?;
        outcome.scenarios += 1;
        outcome.differences.extend(found.map(|difference| Found {
            sequence: scenario.name,
            file: None,
            difference,
        }));
        if outcome.differences.len() >= DIFFERENCES_MAX {
            return Ok(outcome);
        }
    }
    if plan.only.is_none() {
        progress("random sequences");
        random(installation, plan, &mut outcome, &mut progress)?;
    }
    Ok(outcome)
}

struct Named {
    name: String,
    world: World,
    steps: Vec<Step>,
}

/// Saved sequences, then written ones.
fn chosen(plan: &Plan) -> Result<Vec<Named>, Broken> {
    let mut all = Vec::new();
    for path in saved(&plan.saved)? {
        let Saved { world, steps } = load(&path)?;
        all.push(Named { name: path.display().to_string(), world, steps });
    }
    all.extend(scenarios::all().into_iter().map(|scenario| {
        let Scenario { name, world, steps } = scenario;
        Named { name: name.to_owned(), world, steps }
    }));
    let wanted =
        |named: &Named| plan.only.as_ref().is_none_or(|only| named.name.contains(only.as_str()));
    Ok(all.into_iter().filter(wanted).collect())
}

fn saved(directory: &Path) -> Result<Vec<PathBuf>, Broken> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(file(directory, &error)),
    };
    let paths = entries.map_while(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
    paths.sort();
    Ok(paths)
}

fn load(path: &Path) -> Result<Saved, Broken> {
    let text = std::fs::read_to_string(path).map_err(|error| file(path, &error))?;
    serde_json::from_str(&text).map_err(|error| file(path, &error))
}

fn save(directory: &Path, name: &str, saved: &Saved) -> Result<PathBuf, Broken> {
    let path = directory.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(saved).map_err(|error| file(&path, &error))?;
    let written =
        std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, text + "\n"));
    written.map_err(|error| file(&path, &error))?;
    Ok(path)
}

fn file(path: &Path, error: &dyn std::fmt::Display) -> Broken {
    Broken::Harness(format!("{}: {error}", path.display()))
}

fn bench(installation: &Installation, world: &World) -> Result<RealBench, Broken> {
    let real = RealArm::new(installation, world)?;
    let time = RealTime::start();
    let fake = FakeArm::new(world)?;
    Ok(Bench::new(world.clone(), fake, real, time))
}

/// Runs a sequence on a store of its own, again if the machine was too slow for it.
fn run_scenario(
    installation: &Installation,
    scenario: &Named,
    outcome: &mut Outcome,
) -> Result<Option<Difference>, Broken> {
    let mut last = String::new();
    for _ in 0..TRIES {
        let mut bench = bench(installation, &scenario.world)?;
        let end = bench.run(&scenario.steps)?;
        outcome.version = bench.real().version().to_owned();
        outcome.tally.add(&bench.take_tally());
        match end {
            End::Compared => return Ok(None),
            End::NearEdge(step, took) => {
                outcome.near_edge += 1;
                last = format!("the last at step {step}, which took {took:?}");
            }
            End::Different(difference) => return Ok(Some(difference)),
        }
    }
    let name = &scenario.name;
    let text = format!("{name}: {TRIES} tries were all too slow to be compared, {last}");
    Err(Broken::Harness(text))
}

/// Runs random sequences, one after the other on one store, until so many operations are compared.
fn random(
    installation: &Installation,
    plan: &Plan,
    outcome: &mut Outcome,
    progress: &mut impl FnMut(&str),
) -> Result<(), Broken> {
    let world = World::default();
    let mut runner = runner(plan.seed);
    let strategy = generate::sequence(10..40);
    let mut bench = bench(installation, &world)?;
    outcome.version = bench.real().version().to_owned();
    let goal = outcome.tally.operations + plan.operations;
    while outcome.tally.operations < goal {
        let tree = strategy.new_tree(&mut runner);
        let steps = tree.map_err(|reason| Broken::Harness(reason.to_string()))?.current();
        let end = whole(&mut bench, &steps)?;
        outcome.sequences += 1;
        outcome.tally.add(&bench.take_tally());
        match end {
            End::Compared => {}
            End::NearEdge(..) => outcome.near_edge += 1,
            End::Different(difference) => {
                let name = format!("seed-{}-{}", plan.seed, outcome.sequences);
                progress(&format!("{name}: {difference}; shortening it"));
                recover(installation, &mut bench)?;
                let (steps, difference) = shorten(installation, &mut bench, &steps, difference)?;
                // What was compared to shorten it counts for nothing.
                drop(bench.take_tally());
                let file = save(&plan.saved, &name, &Saved { world: world.clone(), steps })?;
                outcome.differences.push(Found { sequence: name, file: Some(file), difference });
                if outcome.differences.len() >= DIFFERENCES_MAX {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
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

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config::default(), rng)
}
