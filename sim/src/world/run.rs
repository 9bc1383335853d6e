//! One run: a world from its plan, stepped to its end, judged on the way.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use springtide::{
    backend::{Link, LinkCounters},
    connector::{CloseReport, LoadCounters, SaveCounters},
    env::Time,
    pool::Usage,
};

use super::{
    engine::{self, Engine, EngineKind, Processes},
    host::World,
    injector::Injector,
    observer::{Look, Observer},
    panics,
};
use crate::{
    coverage::Coverage,
    event::Event,
    oracle::liveness::{OVER, SETTLED},
    plan::Plan,
    reach::Reach,
    recorder::{Keep, Recorded, Recorder, Violation},
    stats::Stats,
    trace::Trace,
};

/// What a run brought.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash over every event, and the timeline if it was kept.
    pub trace: Trace,
    /// Counts.
    pub stats: Stats,
    /// Rare states that were reached.
    pub reach: Reach,
    /// Faults that met states of a connector.
    pub coverage: Coverage,
    /// The first illegal event.
    pub violation: Option<Violation>,
    /// Simulated time.
    pub simulated: Duration,
    /// Every event, if they were kept.
    pub events: Vec<Recorded>,
    /// The instances at the end, by host.
    pub finals: BTreeMap<String, Final>,
}

/// An instance at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct Final {
    /// What saving did since the instance started.
    pub saves: SaveCounters,
    /// What loading did.
    pub loads: LoadCounters,
    /// Its pools, by owner.
    pub pools: BTreeMap<&'static str, Usage>,
    /// How its shutdowns went.
    pub closed: Vec<CloseReport>,
    /// What has happened to the store, as each of its links saw it: the scheduler's, then the workers'.
    pub links: Vec<LinkCounters>,
}

/// Runs a plan on an engine. Everything about the run is decided by these two.
///
/// # Panics
/// When the plan does not pass its own check: whoever reads or makes one checks it.
pub fn run(plan: &Plan, engine: EngineKind, keep: Keep) -> Outcome {
    plan.check().expect("a plan is checked before it runs");
    let recorder = Recorder::new(plan, keep);
    let world = Arc::new(World::new(plan.clone(), recorder.clone()));
    let (mut engine, processes) = engine::build(engine, &world);
    let stepped = catch_unwind(AssertUnwindSafe(|| steps(&mut *engine, &world, &processes)));
    let simulated = engine.elapsed();
    if stepped.is_err() {
        let message = panics::take().unwrap_or_else(|| "a panic without a message".to_owned());
        recorder.record(simulated, "world", Event::Panicked(message));
        // Its destructors would meet the state that the panic left.
        std::mem::forget(engine);
    } else {
        drop(engine);
    }
    let finals = finals(&world);
    // Instances hold their hosts, and hosts the world.
    world.instances().clear();
    recorder.with(|recording| Outcome {
        trace: std::mem::replace(&mut recording.trace, Trace::new(false)),
        stats: std::mem::take(&mut recording.stats),
        reach: std::mem::take(&mut recording.reach),
        coverage: std::mem::take(&mut recording.coverage),
        violation: recording.violation.take(),
        events: std::mem::take(&mut recording.events),
        simulated: simulated.since_origin(),
        finals,
    })
}

/// The phases with the times at which they begin.
fn phases(plan: &Plan) -> Vec<(u64, &'static str)> {
    let phases = &plan.phases;
    vec![
        (0, "warm up"),
        (phases.inject_at(), "inject"),
        (phases.heal_at(), "heal"),
        (phases.settle_at(), "settle"),
        (phases.verify_at(), SETTLED),
        (phases.close_at(), "close"),
        (phases.end_at(), OVER),
    ]
}

fn steps(engine: &mut dyn Engine, world: &Arc<World>, processes: &Processes) {
    let mut injector = Injector::new(Arc::clone(world), processes.clone());
    let mut observer = Observer::new(Arc::clone(world));
    let mut phases = phases(&world.plan).into_iter().peekable();
    loop {
        let now = engine.elapsed();
        while let Some((_, name)) = phases.next_if(|(at, _)| *at <= now.as_millis()) {
            enter(name, now, world, &mut observer);
            if name == OVER {
                return;
            }
        }
        injector.advance(engine);
        let due = phases.peek().map(|(at, _)| *at).into_iter().chain(injector.next());
        let due = due.map(|at| Time::from_origin(Duration::from_millis(at)));
        let until = due.fold(observer.next(), Time::min);
        if let Err(error) = engine.step(until) {
            let message = format!("a host ended: {error}");
            world.recorder.record(now, "world", Event::Panicked(message));
        }
        observer.look(engine.elapsed());
        if world.recorder.has_violation() {
            return;
        }
    }
}

/// What happens between two phases.
fn enter(name: &'static str, now: Time, world: &World, observer: &mut Observer) {
    let at_rest = name == SETTLED || name == OVER;
    observer.look_at_pools(now, if at_rest { Look::ToTheByte } else { Look::Closely });
    // What has not ended is told before what it still holds.
    world.recorder.record(now, "world", Event::Phase(name));
    if at_rest {
        observer.at_rest(now);
        observer.look_at_bounds(now);
    }
    match name {
        "heal" => world.faults.heal(),
        "close" => world.instances().values().for_each(|instance| instance.closing.signal()),
        _ => {}
    }
}

fn finals(world: &World) -> BTreeMap<String, Final> {
    let instances = world.instances();
    let finals = instances.iter().map(|(host, instance)| {
        let (saves, loads) = instance.counters();
        world.recorder.with(|recording| recording.reach.counters(&saves, &loads));
        let pools = instance.pools();
        let pools = pools.iter().map(|(owner, pool)| (*owner, pool.usage())).collect();
        let closed = instance.closed.lock().expect("no panic while held").clone();
        let links = instance.links.iter().map(Link::counters).collect();
        (host.clone(), Final { saves, loads, pools, closed, links })
    });
    finals.collect()
}
