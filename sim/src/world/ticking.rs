//! The engine on turmoil, and the one place that makes a turmoil simulation.
//!
//! Seed and epoch are set, latencies are constant (turmoil's own draws decide nothing), buffers are large
//! enough for a host that stands still, and messages are never lost at random: turmoil's TCP does not
//! retransmit.

use std::{sync::Arc, time::Duration};

use springtide::env::Time;

use super::{
    clock::SimClock,
    engine::{Engine, Processes, next_life},
    host::World,
    network::Wire,
};
use crate::plan::Plan;

/// Connections that a host may not have accepted yet, and segments that it may not have read.
const CAPACITY: usize = 1 << 16;

/// All hosts under turmoil, stepped tick by tick.
pub struct Ticking(turmoil::Sim<'static>);

impl Ticking {
    /// All hosts of `world`'s plan.
    pub fn new(world: &Arc<World>, processes: &Processes) -> Self {
        let plan = &world.plan;
        let mut sim = builder(plan).build();
        for name in plan.hosts() {
            let (world, processes) = (Arc::clone(world), processes.clone());
            let host = name.clone();
            sim.host(name, move || {
                let (clock, wire) = (SimClock::Turmoil, Wire::Turmoil);
                let (process, software) = next_life(&host, &world, &processes, clock, wire);
                async move {
                    process.wrap(software).await;
                    Ok(())
                }
            });
        }
        Self(sim)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one constructor")]
#[expect(clippy::disallowed_types, reason = "turmoil's epoch is a SystemTime; it is constant")]
fn builder(plan: &Plan) -> turmoil::Builder {
    let latency = Duration::from_millis(plan.link.latency_ms);
    // Room behind the end: the run stops by itself.
    let duration = Duration::from_millis(plan.phases.end_at() + 60_000);
    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(plan.seed)
        .epoch(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .tick_duration(Duration::from_millis(plan.link.tick_ms))
        .simulation_duration(duration)
        .min_message_latency(latency)
        .max_message_latency(latency)
        .tcp_capacity(CAPACITY);
    builder
}

impl Engine for Ticking {
    fn elapsed(&self) -> Time {
        Time::from_origin(self.0.elapsed())
    }

    fn step(&mut self, _until: Time) -> Result<(), String> {
        self.0.step().map(|_| ()).map_err(|error| error.to_string())
    }

    fn crash(&mut self, host: &str) {
        self.0.crash(host);
    }

    fn bounce(&mut self, host: &str) {
        self.0.bounce(host);
    }

    fn partition(&mut self, a: &str, b: &str) {
        self.0.partition(a, b);
    }

    fn partition_oneway(&mut self, from: &str, to: &str) {
        self.0.partition_oneway(from, to);
    }

    fn repair(&mut self, a: &str, b: &str) {
        self.0.repair(a, b);
    }

    fn repair_oneway(&mut self, from: &str, to: &str) {
        self.0.repair_oneway(from, to);
    }

    fn hold(&mut self, a: &str, b: &str) {
        self.0.hold(a, b);
    }

    fn release(&mut self, a: &str, b: &str) {
        self.0.release(a, b);
    }

    fn set_latency(&mut self, a: &str, b: &str, latency: Duration) {
        self.0.set_link_latency(a, b, latency);
    }
}
