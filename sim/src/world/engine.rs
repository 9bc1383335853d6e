//! What moves a world: time, the hosts' tasks, and the links between hosts.
//!
//! Two engines run the same hosts. [`ticking`], on turmoil, gives each host a runtime and a network stack of
//! its own and steps all of them at every tick; [`fast`] runs all hosts on one runtime over a
//! network in memory, and its time jumps from event to event. Whoever steps a run, injects faults or looks at
//! it knows only this module.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::ValueEnum;
use serde::Serialize;
use springtide::env::{Task, Time};

use super::{
    clock::SimClock,
    fast,
    host::{Host, World},
    network::Wire,
    process::Process,
    ticking,
};
use crate::{event::Event, hosts};

/// Which engine runs a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// A runtime and a network stack for each host, stepped tick by tick
    #[default]
    Turmoil,
    /// One runtime and a network in memory, from event to event
    Fast,
}

impl EngineKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turmoil => "turmoil",
            Self::Fast => "fast",
        }
    }
}

/// Moves the hosts of a world. A host's panic comes out of the call that ran it.
pub trait Engine {
    /// Simulated time.
    fn elapsed(&self) -> Time;

    /// Runs the hosts: an engine that steps in ticks by one tick, the other up to `until`, which lies ahead.
    ///
    /// # Errors
    /// When the software of a host ends, which it never should.
    fn step(&mut self, until: Time) -> Result<(), String>;

    /// Drops the software of a host whose process was killed. Nothing reaches the host until it is started
    /// again.
    fn crash(&mut self, host: &str);

    /// Starts the next life of a host.
    fn bounce(&mut self, host: &str);

    /// Loses everything that is and will be under way between two hosts, both ways.
    fn partition(&mut self, a: &str, b: &str);

    /// Loses everything that is and will be under way from one host to another.
    fn partition_oneway(&mut self, from: &str, to: &str);

    /// Ends a partition. What was lost stays lost.
    fn repair(&mut self, a: &str, b: &str);

    /// Ends a one-way partition.
    fn repair_oneway(&mut self, from: &str, to: &str);

    /// Keeps everything that is and will be under way between two hosts.
    fn hold(&mut self, a: &str, b: &str);

    /// Delivers what was kept.
    fn release(&mut self, a: &str, b: &str);

    /// Sets the latency of what is sent between two hosts from now on.
    fn set_latency(&mut self, a: &str, b: &str, latency: Duration);
}

/// The present process of each host.
#[derive(Clone, Debug, Default)]
pub struct Processes(Arc<Mutex<BTreeMap<String, Process>>>);

impl Processes {
    /// The process of a host that has started.
    pub fn get(&self, host: &str) -> Option<Process> {
        self.0.lock().expect("no panic while held").get(host).cloned()
    }

    /// The process of a host's next life.
    fn next_life(&self, host: &str, clock: SimClock) -> Process {
        let mut processes = self.0.lock().expect("no panic while held");
        let life = processes.get(host).map_or(0, |process| process.life() + 1);
        let process = Process::new(host, life, clock);
        processes.insert(host.to_owned(), process.clone());
        process
    }
}

/// An engine with all hosts of `world`'s plan, none of which has run yet, and their processes.
pub fn build(kind: EngineKind, world: &Arc<World>) -> (Box<dyn Engine>, Processes) {
    let processes = Processes::default();
    let engine: Box<dyn Engine> = match kind {
        EngineKind::Turmoil => Box::new(ticking::Ticking::new(world, &processes)),
        EngineKind::Fast => Box::new(fast::Fast::new(world, &processes)),
    };
    (engine, processes)
}

/// The next life of a host: its process and its software, not yet running.
pub(super) fn next_life(
    name: &str,
    world: &Arc<World>,
    processes: &Processes,
    clock: SimClock,
    wire: Wire,
) -> (Process, Task) {
    let process = processes.next_life(name, clock);
    let host = Host::new(process.clone(), Arc::clone(world), wire);
    (process, software(host))
}

fn software(host: Host) -> Task {
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
