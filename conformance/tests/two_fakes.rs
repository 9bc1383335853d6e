//! The comparison itself, with a second fake in the place of the real store: equal arms are found equal, and
//! an arm with a bug is not. In virtual time.

use std::time::Duration;

use conformance::{
    arm::{Arm, Broken, Observed},
    fake::FakeArm,
    generate,
    run::{Bench, End},
    scenarios,
    shrink::shrink,
    step::{Call, Event, Step, World},
    timeline::VirtualTime,
};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

/// What a bug does to what is seen.
type Bug = fn(&Call, &mut Observed);

/// A fake with a bug.
struct Tampered {
    arm: FakeArm,
    bug: Bug,
}

impl Arm for Tampered {
    fn call(&mut self, client: usize, call: &Call) -> Result<Observed, Broken> {
        let mut seen = self.arm.call(client, call)?;
        (self.bug)(call, &mut seen);
        Ok(seen)
    }

    fn event(&mut self, event: Event) -> Result<(), Broken> {
        self.arm.event(event)
    }

    fn keys(&mut self) -> Result<Vec<String>, Broken> {
        self.arm.keys()
    }

    fn evicted(&mut self) -> Result<u64, Broken> {
        self.arm.evicted()
    }

    fn capacity(&mut self) -> Result<u64, Broken> {
        self.arm.capacity()
    }

    fn reach(&mut self, now: Duration) {
        self.arm.reach(now);
    }

    fn ahead(&self) -> Duration {
        self.arm.ahead()
    }
}

fn bench(world: &World, bug: Bug) -> Bench<Tampered, VirtualTime> {
    let arm = || FakeArm::new(world).unwrap();
    let (fake, real) = (arm(), Tampered { arm: arm(), bug });
    Bench::new(world.clone(), fake, real, VirtualTime::default())
}

fn no_bug(_: &Call, _: &mut Observed) {}

fn sequences(n: usize) -> Vec<Vec<Step>> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = generate::sequence(10..40);
    (0..n).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn every_written_sequence_runs_and_equals_itself() {
    for scenario in scenarios::all() {
        let end = bench(&scenario.world, no_bug).run(&scenario.steps).unwrap();
        assert!(matches!(end, End::Compared), "{}: {end:?}", scenario.name);
    }
}

#[test]
fn random_sequences_equal_themselves() {
    let mut bench = bench(&World::default(), no_bug);
    for steps in sequences(60) {
        let end = bench.run(&steps).unwrap();
        assert!(matches!(end, End::Compared), "{end:?}\n{steps:?}");
        assert!(matches!(bench.clean_up(&steps).unwrap(), End::Compared));
    }
    let tally = bench.take_tally();
    assert!(tally.operations > 1500, "{}", tally.operations);
}

/// The first sequence that shows a bug, shortened.
fn find(bug: Bug) -> Vec<Step> {
    let differs = |steps: &[Step]| match bench(&World::default(), bug).run(steps)? {
        End::Different(difference) => Ok::<_, Broken>(Some(difference.step)),
        _ => Ok(None),
    };
    for steps in sequences(60) {
        if let Some(at) = differs(&steps).unwrap() {
            return shrink(&steps, at, 200, differs).unwrap();
        }
    }
    panic!("60 sequences do not show the bug");
}

#[test]
fn another_code_is_found_and_its_sequence_shortened() {
    // A lease stands in nobody's way.
    let steps = find(|call, seen| {
        if matches!(call, Call::Remove { .. }) && seen.codes == [-706] {
            seen.codes = vec![0];
        }
    });
    // A put, what takes the lease, and the removal.
    assert_eq!(steps.len(), 3, "{steps:?}");
}

#[test]
fn other_bytes_are_found() {
    let steps = find(|call, seen| {
        if matches!(call, Call::BatchGetInto { .. })
            && let (Some(code), Some(memory)) = (seen.codes.last(), seen.memory.last_mut())
            && *code > 0
        {
            *memory ^= 1;
        }
    });
    assert!(steps.len() <= 2, "{steps:?}");
}
