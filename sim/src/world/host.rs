//! What the software of a host has at hand, and what all hosts share.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fake_store::{
    faults::Faults,
    master::{EventKind, RemovedBy, SegmentEnd},
};
use springtide::{
    connector::{Namespace, NamespaceParts, Secret},
    env::{Clock, Env, Task, TensorSpec},
};

use super::{
    clock::SimClock,
    desk::Desk,
    device::SimDevice,
    network::{Links, SimNetwork, Wire},
    process::Process,
    store::SimStore,
    way::Way,
};
use crate::{
    contents::Contents,
    event::Event,
    hosts::{instance::Registered, store::MasterHandle, stranger::Errands},
    plan::{Apart, Plan},
    recorder::Recorder,
    subjects::{Subject, pr30468},
};

/// What all hosts of a world share. A real deployment shares none of it: the plan and the recorder are the
/// simulator's own, the rest is where the injector and the oracles reach in.
pub struct World {
    /// The plan.
    pub plan: Plan,
    /// Where everything is reported.
    pub recorder: Recorder,
    /// The links between hosts.
    pub links: Links,
    /// Faults of devices.
    pub desk: Desk,
    /// Faults of the store.
    pub faults: Faults,
    /// What items hold.
    pub contents: Contents,
    /// The namespaces by model.
    pub namespaces: Vec<NamespaceParts>,
    prefixes: Vec<(String, String)>,
    /// The connectors that run, by host.
    pub instances: Mutex<BTreeMap<String, Registered>>,
    /// What the stranger is to do.
    pub stranger: Errands,
    /// The master's state, which outlives its process for the oracles.
    pub master: MasterHandle,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("plan", &self.plan.name).finish_non_exhaustive()
    }
}

impl World {
    /// An empty world for `plan`.
    pub fn new(plan: Plan, recorder: Recorder) -> Self {
        let models = plan.topology.namespaces * (1 + u32::from(plan.topology.mismatch));
        let namespaces: Vec<NamespaceParts> =
            (0..models).map(|model| parts(&plan, model)).collect();
        let prefixes = namespaces
            .iter()
            .zip(0..)
            .map(|(parts, model): (_, u32)| {
                let prefix = format!("{}/", Namespace::new(parts).fingerprint());
                (prefix, format!("m{model}/"))
            })
            .collect();
        let (links, desk, faults) = Default::default();
        Self {
            plan,
            recorder,
            links,
            desk,
            faults,
            contents: Contents::default(),
            namespaces,
            prefixes,
            instances: Mutex::default(),
            stranger: Errands::default(),
            master: MasterHandle::default(),
        }
    }

    /// A key as the timeline writes it: `m0/item007`.
    pub fn short(&self, key: &str) -> String {
        let short = |(prefix, short): &(String, String)| {
            key.strip_prefix(prefix.as_str()).map(|rest| format!("{short}{rest}"))
        };
        self.prefixes.iter().find_map(short).unwrap_or_else(|| key.to_owned())
    }

    /// The key of an item of a model.
    pub fn key(&self, model: u32, item: &str) -> springtide::env::Key {
        if self.plan.subject == Subject::Pr30468 {
            return pr30468::key(item);
        }
        Namespace::new(&self.namespaces[model as usize]).key(item)
    }

    /// The model that an instance serves. Where producers and consumers do not match, the consumers' models
    /// are numbered behind the producers'.
    pub fn model_of(&self, host: &Host) -> u32 {
        let topology = &self.plan.topology;
        let apart = topology.mismatch && host.process.host().starts_with("prefill");
        host.number() % topology.namespaces + if apart { topology.namespaces } else { 0 }
    }

    /// Type and shape of an item.
    pub fn spec(&self, rows: u64) -> TensorSpec {
        Namespace::new(&self.namespaces[0]).spec(rows).expect("a plan's rows are in range")
    }

    /// How long the encoder works on an item.
    pub fn encode_time(&self, rows: u64) -> Duration {
        Duration::from_micros(self.plan.engine.encode_us_per_row * rows)
    }

    /// Reports what the store made readable and what it lost since the last call.
    pub fn read_history(&self) {
        for entry in self.master.drain_history() {
            let key = self.short(&entry.key);
            let event = match entry.kind {
                EventKind::Stored { bytes, .. } => Event::Stored { key, bytes },
                kind if kind.is_loss() => Event::Lost { key, cause: cause(kind).to_owned() },
                _ => continue,
            };
            self.recorder.record(entry.at, "master", event);
        }
    }

    /// The connectors that run.
    pub fn instances(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.instances.lock().expect("no panic while held")
    }
}

/// What makes the bytes of a model's items.
fn parts(plan: &Plan, model: u32) -> NamespaceParts {
    let name = format!("model{model}");
    let common = NamespaceParts {
        model: "model".to_owned(),
        dtype: plan.engine.dtype,
        width: plan.engine.width,
        secret: plan.connector.secret.then(secret),
        ..NamespaceParts::default()
    };
    match plan.topology.apart {
        Apart::Model => NamespaceParts { model: name, ..common },
        Apart::Revision => NamespaceParts { revision: name, ..common },
        Apart::Adapter => NamespaceParts { adapter: name, ..common },
        Apart::Layout => NamespaceParts { layout: name, ..common },
    }
}

/// The secret of all instances.
fn secret() -> Secret {
    Secret::new(b"known to every instance").expect("long enough")
}

/// The cause of a loss; its first word names its kind.
fn cause(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Evicted { .. } => "evicted",
        EventKind::Overwriting { .. } => "being overwritten",
        EventKind::Removed { how: RemovedBy::Key, .. } => "removed",
        EventKind::Removed { .. } => "removed with others",
        EventKind::SegmentLost { end: SegmentEnd::Unmounted, .. } => "segment unmounted",
        EventKind::SegmentLost { end: SegmentEnd::ClientExpired, .. } => "segment expired",
        EventKind::SetAside { .. } => "unfinished and set aside",
        EventKind::Expired => "unfinished and expired",
        EventKind::Revoked { .. } => "revoked by its writer",
        EventKind::UpsertLost { .. } => "lost by a failed upsert",
        EventKind::Restarted => "restarted master",
        EventKind::Stored { .. } | EventKind::ReplicaLost { .. } => "not lost",
    }
}

/// What one process has at hand. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Host {
    /// The process.
    pub process: Process,
    /// Its clock.
    pub clock: SimClock,
    /// Its network.
    pub network: SimNetwork,
    /// What all share.
    pub world: Arc<World>,
}

impl Host {
    /// What `process` has at hand, where `wire` is its way to the others.
    pub fn new(process: Process, world: Arc<World>, wire: Wire) -> Self {
        let clock = process.clock();
        let network = SimNetwork::new(process.clone(), world.links.clone(), wire);
        Self { process, clock, network, world }
    }

    /// Reports an event of this host, behind what the store has done by now.
    pub fn record(&self, event: Event) {
        if !self.process.is_dead() {
            self.world.read_history();
            self.world.recorder.record(self.clock.now(), self.process.host(), event);
        }
    }

    /// The number at the end of the host's name.
    pub fn number(&self) -> u32 {
        let digits = self.process.host().trim_start_matches(|c: char| !c.is_ascii_digit());
        digits.parse().unwrap_or(0)
    }
}

/// The injected world of a connector in the simulation.
#[derive(Clone, Debug)]
pub struct SimEnv {
    host: Host,
    store: SimStore<Way>,
    device: SimDevice,
}

impl SimEnv {
    /// The environment of a connector with its own way to the store.
    pub fn new(host: Host, way: Way) -> Self {
        let device = SimDevice::new(host.process.clone(), host.world.desk.clone());
        Self { store: SimStore::new(way, host.clone()), device, host }
    }
}

impl Env for SimEnv {
    type Clock = SimClock;
    type Network = SimNetwork;
    type Store = SimStore<Way>;
    type Device = SimDevice;

    fn clock(&self) -> &SimClock {
        &self.host.clock
    }

    fn network(&self) -> &SimNetwork {
        &self.host.network
    }

    fn store(&self) -> &SimStore<Way> {
        &self.store
    }

    fn device(&self) -> &SimDevice {
        &self.device
    }

    fn spawn(&self, task: Task) {
        self.host.process.spawn(task);
    }
}
