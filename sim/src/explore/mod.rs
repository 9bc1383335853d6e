//! Small worlds, explored whole: every order of engine calls, answers of the store, outcomes and deadlines.
//!
//! A world is a few production connectors on a scripted store ([`worlds`]). An execution starts it anew and
//! takes one step after the other until nothing is left to happen; the search goes back to the last place
//! where something else could have happened and executes the world again from its start. What holds in every
//! execution holds in that world, which sampling cannot say.
//!
//! Sleep sets spare executions that differ only in the order of steps that do not concern each other: a step
//! that was explored already is not taken again until one has been taken that depends on it.

mod env;
mod executor;
mod hosts;
mod store;
mod worlds;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::Serialize;

use self::worlds::{Run, Step};
pub use self::worlds::{SmallWorld, WORLDS};
use crate::{
    oracle::{Illegal, OracleId},
    plan::{Plan, Workload},
    world::{engine::EngineKind, panics},
};

/// What came of exploring a world.
#[derive(Clone, Debug, Serialize)]
pub struct Explored {
    /// The world.
    pub world: &'static str,
    /// Executions to their end.
    pub executions: u64,
    /// Branches that were left because what they lead to had been seen.
    pub pruned: u64,
    /// Distinct states.
    pub states: usize,
    /// Steps of the longest execution.
    pub steps: usize,
    /// Whether everything was explored.
    pub exhausted: bool,
    /// The first execution that broke a promise.
    pub violation: Option<Broken>,
}

/// An execution that broke a promise.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// The promise.
    pub oracle: OracleId,
    /// How it was broken.
    pub message: String,
    /// The steps that lead there.
    pub path: Vec<String>,
}

/// A place in the present execution.
struct Node {
    enabled: Vec<Step>,
    /// What need not be taken here.
    asleep: BTreeSet<Step>,
    taken: Step,
}

impl Node {
    /// The next step to take here that is not asleep, if there is one.
    fn awake(&self) -> Option<Step> {
        self.enabled.iter().find(|step| !self.asleep.contains(step)).cloned()
    }

    /// What need not be taken after this node's step.
    fn asleep_after(&self) -> BTreeSet<Step> {
        self.asleep.iter().filter(|step| step.is_independent_of(&self.taken)).cloned().collect()
    }
}

/// Explores a world, with at most `executions_max` executions.
pub fn explore(world: SmallWorld, executions_max: u64) -> Explored {
    // Whatever panics is a finding with its path; the hook keeps quiet about it.
    panics::collect(&Plan::base(world.name, Workload::W6), EngineKind::default());
    let mut explored = Explored {
        world: world.name,
        executions: 0,
        pruned: 0,
        states: 0,
        steps: 0,
        exhausted: false,
        violation: None,
    };
    let mut states = BTreeSet::new();
    let mut path: Vec<Node> = Vec::new();
    while explored.executions + explored.pruned < executions_max {
        let executed = catch_unwind(AssertUnwindSafe(|| execute(world, &mut path, &mut states)));
        let executed = executed.unwrap_or_else(|_| {
            let message = panics::take().unwrap_or_default();
            Err(Illegal::new(OracleId::I8, format!("a panic: {message}")))
        });
        explored.steps = explored.steps.max(path.len());
        explored.states = states.len();
        match executed {
            Ok(true) => explored.executions += 1,
            Ok(false) => explored.pruned += 1,
            Err(Illegal { oracle, message }) => {
                let path = path.iter().map(|node| node.taken.text()).collect();
                explored.violation = Some(Broken { oracle, message, path });
                return explored;
            }
        }
        if !go_back(&mut path) {
            explored.exhausted = true;
            return explored;
        }
    }
    explored
}

/// Takes the steps of `path`, and goes on to an end; false for an end where all that could happen is asleep.
fn execute(
    world: SmallWorld,
    path: &mut Vec<Node>,
    states: &mut BTreeSet<u64>,
) -> Result<bool, Illegal> {
    let mut run = Run::start(world);
    for node in path.iter() {
        run.take(&node.taken)?;
    }
    loop {
        states.insert(run.state());
        let enabled = run.enabled();
        if enabled.is_empty() {
            run.end()?;
            return Ok(true);
        }
        let asleep = path.last().map(Node::asleep_after).unwrap_or_default();
        let Some(taken) = enabled.iter().find(|step| !asleep.contains(step)).cloned() else {
            return Ok(false);
        };
        path.push(Node { enabled, asleep, taken: taken.clone() });
        run.take(&taken)?;
    }
}

/// Turns `path` to the next execution; false when there is none.
fn go_back(path: &mut Vec<Node>) -> bool {
    while let Some(node) = path.last_mut() {
        node.asleep.insert(node.taken.clone());
        if let Some(next) = node.awake() {
            node.taken = next;
            return true;
        }
        path.pop();
    }
    false
}
