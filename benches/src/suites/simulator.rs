//! How much faster than the clock on the wall the simulator is.

use std::{collections::BTreeMap, time::Duration};

use springtide_sim::{campaign::run_fresh, generate::generate, recorder::Keep};

use super::Scale;
use crate::{
    measure::now,
    report::{Row, Section},
};

/// What the runs with one number of hosts took.
#[derive(Default)]
struct Group {
    plans: u32,
    simulated: Duration,
    wall: Duration,
}

/// Random plans, one after the other on one core, by the number of their hosts.
pub(super) fn run(scale: Scale) -> Section {
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for seed in 0..scale.pick(20, 200) {
        let plan = generate(seed);
        let started = now();
        let outcome = run_fresh(&plan, Keep::Nothing);
        let group = groups.entry(plan.hosts().len()).or_default();
        group.plans += 1;
        group.simulated += outcome.simulated;
        group.wall += now() - started;
    }
    let rows = groups.into_iter().map(|(hosts, group)| {
        let (simulated, wall) = (group.simulated.as_secs_f64(), group.wall.as_secs_f64());
        let plans = f64::from(group.plans);
        Row {
            what: format!("{hosts} hosts, {plans} plans"),
            ours: format!("{:.1} s a plan, {:.1} plans/s", simulated / plans, plans / wall),
            rival: "the clock on the wall".into(),
            theirs: format!("{:.2} s a plan", wall / plans),
            ratio: simulated / wall,
            quartiles: None,
            goal: None,
        }
    });
    Section {
        suite: "simulator",
        about: "Simulated seconds a second and plans a second, random plans with faults, on one core.",
        rows: rows.collect(),
    }
}
