//! The one place that makes a turmoil simulation.
//!
//! Seed and epoch are set, latencies are constant (turmoil's own draws decide nothing), buffers are large
//! enough for a host that stands still, and messages are never lost at random: turmoil's TCP does not
//! retransmit.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    host::{Host, World},
    process::Process,
};
use crate::{event::Event, hosts, plan::Plan};

/// Connections that a host may not have accepted yet, and segments that it may not have read.
const CAPACITY: usize = 1 << 16;

/// The running processes, by host.
pub type Processes = Arc<Mutex<BTreeMap<String, Process>>>;

/// A simulation with all hosts of `world`'s plan, none of them stepped yet.
pub fn build(world: &Arc<World>) -> (turmoil::Sim<'static>, Processes) {
    let plan = &world.plan;
    let mut sim = builder(plan).build();
    let processes = Processes::default();
    for name in plan.hosts() {
        let (world, processes) = (Arc::clone(world), Arc::clone(&processes));
        let host = name.clone();
        sim.host(name, move || start(&host, &world, &processes));
    }
    (sim, processes)
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

/// One life of a host.
fn start(
    name: &str,
    world: &Arc<World>,
    processes: &Processes,
) -> impl Future<Output = turmoil::Result> + use<> {
    let process = {
        let mut processes = processes.lock().expect("no panic while held");
        let life = processes.get(name).map_or(0, |process| process.life() + 1);
        let process = Process::new(name, life);
        processes.insert(name.to_owned(), process.clone());
        process
    };
    let host = Host::new(process.clone(), Arc::clone(world));
    let software = software(host);
    async move {
        process.wrap(software).await;
        Ok(())
    }
}

fn software(host: Host) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        host.record(Event::Started);
        let name = host.process.host().to_owned();
        match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "master" => hosts::store::master(host).await,
            "node" => hosts::store::node(host).await,
            "encoder" => hosts::encoder::run(host).await,
            "prefill" => hosts::prefill::run(host).await,
            _ => hosts::client::run(host).await,
        }
        // A host whose work is done stays up.
        std::future::pending().await
    })
}
