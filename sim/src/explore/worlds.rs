//! The small worlds, and one of them as it goes.

use std::sync::{Arc, Mutex};

use springtide::{
    connector::{Header, PayloadChecksum, Role},
    env::{Clock, Key},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    env::{HandClock, HandEnv, Row, spec},
    executor::{Executor, lock},
    hosts::{Call, Host},
    store::{Answer, CallId, Client, Cluster},
};
use crate::oracle::{Illegal, OracleId};

/// Steps in which everything ends that has begun.
const DRAIN_STEPS: u32 = 1_000;

/// A few hosts with a few calls each.
#[derive(Clone, Copy, Debug)]
pub struct SmallWorld {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub text: &'static str,
    /// Items that a pool has room for.
    units: u64,
    hosts: &'static [(Role, &'static [Call])],
    /// Items that the store has at the start.
    stored: &'static [&'static str],
    /// How often time may move on to the next deadline before everything else has happened.
    ticks: u32,
    /// Answers that the store gives beside the right one.
    answers: &'static [Answer],
}

/// Every small world.
pub const WORLDS: &[SmallWorld] = &[
    SmallWorld {
        name: "two_producers_of_one_key",
        text: "two encoders save one item at once, and wait",
        units: 2,
        hosts: &[
            (Role::Producer, &[Call::Save("a"), Call::Wait(50)]),
            (Role::Producer, &[Call::Save("a"), Call::Wait(50)]),
        ],
        stored: &[],
        ticks: 1,
        answers: &[Answer::Fails, Answer::Uncertain],
    },
    SmallWorld {
        name: "save_and_evict",
        text: "two items through a pool of one, and one wait for both",
        units: 1,
        hosts: &[(Role::Producer, &[Call::Save("a"), Call::Save("b"), Call::Wait(50)])],
        stored: &[],
        ticks: 3,
        answers: &[Answer::Fails, Answer::Uncertain],
    },
    SmallWorld {
        name: "save_wait_close",
        text: "a shutdown at any point of a save and of the wait for it",
        units: 2,
        hosts: &[(Role::Producer, &[Call::Save("a"), Call::Wait(20), Call::Close(60)])],
        stored: &[],
        ticks: 4,
        answers: &[Answer::Fails, Answer::Uncertain],
    },
    SmallWorld {
        name: "load_and_evict",
        text: "two requests for two items through a pool of one",
        units: 1,
        hosts: &[(
            Role::Consumer,
            &[
                Call::Ask("r1", "a"),
                Call::Ask("r2", "b"),
                Call::Take("r1", "a"),
                Call::Take("r2", "b"),
            ],
        )],
        stored: &["a", "b"],
        ticks: 2,
        answers: &[Answer::Fails],
    },
    SmallWorld {
        name: "timed_out_put_and_reuse",
        text: "a put that the wait does not see end, and another item that wants its block",
        units: 1,
        hosts: &[(
            Role::Producer,
            &[Call::Save("a"), Call::Wait(10), Call::Save("b"), Call::Wait(10)],
        )],
        stored: &[],
        ticks: 3,
        answers: &[Answer::Uncertain],
    },
    SmallWorld {
        name: "two_loads_of_one_key",
        text: "two requests for one item whose get may fail, come damaged, or end uncertainly",
        units: 2,
        hosts: &[(
            Role::Consumer,
            &[
                Call::Ask("r1", "a"),
                Call::Ask("r2", "a"),
                Call::Take("r1", "a"),
                Call::Take("r2", "a"),
            ],
        )],
        stored: &["a"],
        ticks: 2,
        answers: &[Answer::Fails, Answer::Uncertain, Answer::Damaged],
    },
];

/// One step that a world can take. Its name does not depend on what other hosts did before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A host's engine makes its next call.
    Engine { host: usize, number: usize, text: String },
    /// The store answers a call.
    Answer { call: CallId, answer: Answer, name: &'static str, key: String },
    /// Time moves on to the next deadline.
    Time(u32),
}

impl Step {
    /// Whether two steps lead to the same state in either order. Hosts meet in the store only, under one
    /// key; time concerns everybody.
    pub(super) fn is_independent_of(&self, other: &Self) -> bool {
        let (Some(host), Some(others)) = (self.host(), other.host()) else { return false };
        let apart =
            |one: Option<&str>, two: Option<&str>| one.is_none() || two.is_none() || one != two;
        host != others && apart(self.key(), other.key())
    }

    fn host(&self) -> Option<usize> {
        match self {
            Self::Engine { host, .. } => Some(*host),
            Self::Answer { call, .. } => Some(call.host),
            Self::Time(_) => None,
        }
    }

    fn key(&self) -> Option<&str> {
        match self {
            Self::Answer { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The step in words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Engine { host, text, .. } => format!("host {host}: {text}"),
            Self::Answer { call, answer, name, key } => {
                let item = key.rsplit('/').next().unwrap_or(key);
                format!("host {}: {name} of {item}: {answer:?}", call.host).to_lowercase()
            }
            Self::Time(_) => "time moves on to the next deadline".to_owned(),
        }
    }
}

/// A small world as it goes.
pub(super) struct Run {
    world: SmallWorld,
    clock: HandClock,
    executor: Executor,
    cluster: Arc<Mutex<Cluster>>,
    hosts: Vec<Host>,
    ticks: u32,
}

impl Run {
    pub(super) fn start(world: SmallWorld) -> Self {
        let (clock, executor) = (HandClock::default(), Executor::default());
        let cluster: Arc<Mutex<Cluster>> = Arc::default();
        let hosts: Vec<Host> = world
            .hosts
            .iter()
            .enumerate()
            .map(|(host, (role, calls))| {
                let store = Client { host, cluster: Arc::clone(&cluster) };
                let env = HandEnv { clock: clock.clone(), store, executor: executor.clone() };
                Host::start(env, *role, world.units, calls)
            })
            .collect();
        for item in world.stored {
            let key = hosts[0].key(item);
            let bytes = object(&key, item);
            lock(&cluster).objects.insert(key, bytes);
        }
        Self { world, clock, executor, cluster, hosts, ticks: 0 }
    }

    /// What can happen next.
    pub(super) fn enabled(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (host, state) in self.hosts.iter().enumerate() {
            if let Some((number, call)) = state.next().map(|call| (state.made(), call)) {
                steps.push(Step::Engine { host, number, text: format!("{call:?}") });
            }
        }
        for (call, name, key, answers) in lock(&self.cluster).waiting() {
            let given = |answer: &&Answer| {
                matches!(answer, Answer::Ok | Answer::Late) || self.world.answers.contains(answer)
            };
            for answer in answers.iter().filter(given) {
                steps.push(Step::Answer { call, answer: *answer, name, key: key.clone() });
            }
        }
        if self.ticks < self.world.ticks && self.clock.next().is_some() {
            steps.push(Step::Time(self.ticks));
        }
        steps
    }

    /// Takes a step, and looks at what must hold.
    pub(super) fn take(&mut self, step: &Step) -> Result<(), Illegal> {
        match step {
            Step::Engine { host, .. } => self.hosts[*host].call()?,
            Step::Answer { call, answer, .. } => lock(&self.cluster).answer(*call, *answer),
            Step::Time(_) => {
                self.ticks += 1;
                self.tick();
            }
        }
        self.settle()
    }

    /// Everything that has begun ends: calls are answered, deadlines come. Then nothing may be held.
    pub(super) fn end(&mut self) -> Result<(), Illegal> {
        for _ in 0..DRAIN_STEPS {
            let waiting = lock(&self.cluster).waiting().into_iter().next();
            match waiting {
                Some((call, _, _, answers)) => lock(&self.cluster).answer(call, answers[0]),
                None if self.clock.next().is_some() => self.tick(),
                None => return self.hosts.iter().try_for_each(Host::check_rest),
            }
            self.settle()?;
        }
        let what = format!("not everything has ended after {DRAIN_STEPS} steps");
        Err(Illegal::new(OracleId::I5, what))
    }

    /// What tells this state from others.
    pub(super) fn state(&self) -> u64 {
        let hosts: Vec<String> = self.hosts.iter().map(Host::describe).collect();
        let state = format!("{} {:?} {hosts:?}", self.clock.now(), lock(&self.cluster));
        xxh3_64(state.as_bytes())
    }

    fn tick(&self) {
        if let Some(next) = self.clock.next() {
            self.clock.move_to(next);
        }
    }

    fn settle(&mut self) -> Result<(), Illegal> {
        self.executor.run();
        let mut cluster = lock(&self.cluster);
        cluster.check_sources();
        if let Some(what) = cluster.broken.take() {
            return Err(Illegal::new(OracleId::I3, what));
        }
        let objects = &cluster.objects;
        let stored = |key: &str| objects.contains_key(&Key::new(key));
        self.hosts.iter_mut().try_for_each(|host| host.check(stored))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.executor.clear();
    }
}

/// The object of an item, as its producer makes it.
fn object(key: &Key, item: &str) -> Vec<u8> {
    let payload = Row::of(item).bytes();
    let mut checksum = PayloadChecksum::default();
    checksum.update(&payload);
    let header = Header::new(key, spec(), Some(checksum.finish()));
    [header.encode().as_slice(), &payload].concat()
}
