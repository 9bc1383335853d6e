//! How much faster than the clock on the wall the simulator is, on each of its engines.

use std::{collections::BTreeMap, time::Duration};

use springtide_sim::{
    campaign::run_on, generate::generate, recorder::Keep, world::engine::EngineKind,
};

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
    /// On turmoil and on the fast engine.
    wall: [Duration; 2],
}

impl Group {
    fn speed(&self, engine: usize) -> String {
        let wall = self.wall[engine].as_secs_f64();
        let plans = f64::from(self.plans) / wall;
        format!("{:.0} simulated s/s, {plans:.1} plans/s", self.simulated.as_secs_f64() / wall)
    }
}

/// Random plans, one after the other on one core, by the number of their hosts. Each plan runs on both engines in
/// turn, so that both meet the same machine.
pub(super) fn run(scale: Scale) -> Section {
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for seed in 0..scale.pick(20, 200) {
        let plan = generate(seed);
        let group = groups.entry(plan.hosts().len()).or_default();
        group.plans += 1;
        for (engine, kind) in [EngineKind::Turmoil, EngineKind::Fast].into_iter().enumerate() {
            let started = now();
            let outcome = run_on(kind, &plan, Keep::Nothing);
            group.wall[engine] += now() - started;
            if kind == EngineKind::Fast {
                group.simulated += outcome.simulated;
            }
        }
    }
    let rows = groups.into_iter().map(|(hosts, group)| {
        let simulated = group.simulated.as_secs_f64() / f64::from(group.plans);
        Row {
            what: format!("{hosts} hosts, {} plans of {simulated:.1} s", group.plans),
            ours: format!("fast: {}", group.speed(1)),
            rival: "turmoil".into(),
            theirs: group.speed(0),
            ratio: group.wall[0].as_secs_f64() / group.wall[1].as_secs_f64(),
            quartiles: None,
            goal: None,
        }
    });
    Section {
        suite: "simulator",
        about: "Simulated seconds a second and plans a second of the two engines, random plans with faults, on \
                one core.",
        rows: rows.collect(),
    }
}
