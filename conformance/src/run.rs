//! Runs one sequence step by step on both arms and compares what is seen.
//!
//! Both arms live in one time. Nothing is compared near a moment at which an object changes by itself (a
//! lease ends, an unfinished put may be put again): the run waits until such a moment is over, and a call
//! that took so long that it reached into one ends the sequence as *near an edge*, which says nothing. How
//! near is too near follows the slowest call so far: somewhere within it the real master looked at its clock.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use crate::{
    arm::{Arm, Broken, Observed},
    compare::{Circumstances, Divergence, Verdict, compare},
    coverage::{Coverage, operation},
    fake::{Edge, EdgeKind, FakeArm, Knowledge, State},
    step::{Call, Event, Step, Wait, World},
    timeline::Timeline,
};

/// Around an edge, beyond the uncertainty of the calls themselves.
const MARGIN: Duration = Duration::from_millis(50);

/// How long the real store may take for what it does by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// How long nothing more may happen after an eviction, so that it counts as over: several rounds.
const QUIET: Duration = Duration::from_millis(60);

/// How a sequence ended.
#[derive(Debug)]
pub enum End {
    /// All of it was compared.
    Compared,
    /// A call took so long that the rest cannot be compared: which step, and how long.
    NearEdge(usize, Duration),
    /// The arms differ.
    Different(Difference),
}

/// Where and how the arms differ.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The number of the step, from 0.
    pub step: usize,
    /// What was done.
    pub what: String,
    /// In words.
    pub how: String,
    /// What the fake showed.
    pub fake: String,
    /// What the real store showed.
    pub real: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, what, how, fake, real } = self;
        write!(f, "step {step}, {what}: {how}\n  fake: {fake}\n  real: {real}")
    }
}

/// What was compared so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Objects that calls dealt with.
    pub operations: u64,
    /// Calls.
    pub calls: u64,
    /// Comparisons of all keys.
    pub key_lists: u64,
    /// The table of states and operations.
    pub coverage: Coverage,
    /// How often each divergence was used.
    pub divergences: BTreeMap<Divergence, u64>,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.calls += other.calls;
        self.key_lists += other.key_lists;
        self.coverage.add(&other.coverage);
        for (divergence, count) in &other.divergences {
            *self.divergences.entry(*divergence).or_default() += count;
        }
    }
}

/// Two arms of one world, and their time.
pub struct Bench<R, T> {
    world: World,
    fake: FakeArm,
    real: R,
    time: T,
    /// The slowest call of the running sequence.
    slack: Duration,
    around: Circumstances,
    /// When owners that are dead or stopped may be given up, for those that are.
    owners: BTreeMap<usize, Duration>,
    /// How many objects both arms had evicted when that was last compared.
    evicted: u64,
    /// Sequences so far: each has keys of its own.
    sequences: u64,
    tally: Tally,
}

impl<R: Arm, T: Timeline> Bench<R, T> {
    /// Two arms that have just started, `time` with them.
    pub fn new(world: World, fake: FakeArm, real: R, time: T) -> Self {
        Self {
            world,
            fake,
            real,
            time,
            slack: Duration::ZERO,
            around: Circumstances::default(),
            owners: BTreeMap::new(),
            evicted: 0,
            sequences: 0,
            tally: Tally::default(),
        }
    }

    /// The real arm.
    pub fn real(&self) -> &R {
        &self.real
    }

    /// What was compared since the last call.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Runs a sequence, and after it removes what it left.
    ///
    /// # Errors
    /// [`Broken::Harness`]: nothing can be said of the stores.
    pub fn run(&mut self, steps: &[Step]) -> Result<End, Broken> {
        self.sequences += 1;
        self.slack = Duration::ZERO;
        let prefix = format!("s{}/", self.sequences);
        for (number, step) in steps.iter().enumerate() {
            match self.step(number, step, &prefix)? {
                End::Compared => {}
                end => return Ok(end),
            }
        }
        Ok(End::Compared)
    }

    /// Ends what a sequence left: unfinished puts, registrations, objects. Compared like everything else.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn clean_up(&mut self, steps: &[Step]) -> Result<End, Broken> {
        let prefix = format!("s{}/", self.sequences);
        let mut last = Vec::new();
        for step in steps {
            match step {
                Step::Call { client, call: Call::Start { key, .. } } => {
                    last.push((*client, Call::Revoke { key: key.clone() }));
                }
                Step::Call { client, call: Call::RegisterBuffer { at, .. } } => {
                    last.push((*client, Call::UnregisterBuffer { at: *at }));
                }
                _ => {}
            }
        }
        last.push((0, Call::RemoveAll { force: true }));
        let steps = last.into_iter().map(|(client, call)| Step::Call { client, call });
        for (number, step) in steps.chain([Step::Keys]).enumerate() {
            match self.step(number, &step, &prefix)? {
                End::Compared => {}
                end => return Ok(end),
            }
        }
        Ok(End::Compared)
    }

    fn step(&mut self, number: usize, step: &Step, prefix: &str) -> Result<End, Broken> {
        let difference = |(what, how, fake, real)| {
            End::Different(Difference { step: number, what, how, fake, real })
        };
        let ended = match step {
            Step::Call { client, call } => {
                let call = call.clone().prefixed(prefix);
                return Ok(match self.call(*client, &call)? {
                    Seen::Alike => End::Compared,
                    Seen::NearEdge(took) => End::NearEdge(number, took),
                    Seen::Unlike(how, fake, real) => {
                        difference((format!("client {client}: {call:?}"), how, fake, real))
                    }
                });
            }
            Step::Event(event) => self.event(*event)?,
            Step::Wait(wait) => self.wait(wait, prefix)?,
            Step::Keys => self.compare_keys()?,
        };
        Ok(match ended {
            None => End::Compared,
            Some((how, fake, real)) => difference((format!("{step:?}"), how, fake, real)),
        })
    }

    fn call(&mut self, client: usize, call: &Call) -> Result<Seen, Broken> {
        if let Some((how, fake, real)) = self.come_to_rest()? {
            return Ok(Seen::Unlike(how, fake, real));
        }
        let edges = self.fake.edges();
        let known = self.known(call);
        let started = self.now();
        let real = match self.real.call(client, call) {
            Ok(real) => real,
            Err(Broken::Died(last)) => {
                let alive = "it goes on".to_owned();
                return Ok(Seen::Unlike("the real client died".into(), alive, last));
            }
            Err(broken) => return Err(broken),
        };
        let ended = self.time.now();
        self.fake.reach(ended);
        let fake = self.fake.call(client, call)?;
        let ended = self.now().max(ended);
        self.slack = self.slack.max(ended - started);
        if self.reached_edge(call.reads(), &edges, started, ended) {
            return Ok(Seen::NearEdge(ended - started));
        }
        self.count(call, &known, &fake);
        match compare(call, self.around, &fake, &real) {
            Verdict::Equal => {}
            Verdict::Allowed(used) => {
                used.into_iter()
                    .for_each(|used| *self.tally.divergences.entry(used).or_default() += 1);
            }
            Verdict::Different(how) => {
                let how = format!("{how}; before it: {}", describe(&known));
                return Ok(Seen::Unlike(how, format!("{fake:?}"), format!("{real:?}")));
            }
        }
        Ok(match self.settle()? {
            None => Seen::Alike,
            Some((how, fake, real)) => Seen::Unlike(how, fake, real),
        })
    }

    /// What the fake knows of the objects that a call deals with: all, for a call without keys.
    fn known(&mut self, call: &Call) -> Vec<(String, Knowledge)> {
        let keys: Vec<String> = match call {
            Call::RemoveByRegex { .. } | Call::RemoveAll { .. } => self.all_keys(),
            _ => call.keys().into_iter().map(str::to_owned).collect(),
        };
        keys.into_iter()
            .map(|key| {
                let known = self.fake.knowledge(&key);
                (key, known)
            })
            .collect()
    }

    fn all_keys(&mut self) -> Vec<String> {
        self.fake.all_keys()
    }

    fn count(&mut self, call: &Call, known: &[(String, Knowledge)], fake: &Observed) {
        self.tally.calls += 1;
        self.tally.operations += call.operations();
        let keyless = call.keys().is_empty();
        for (item, (_, known)) in known.iter().enumerate() {
            let item = if keyless { 0 } else { item };
            self.tally.coverage.count(operation(call, item, *known, fake), *known);
        }
    }

    fn count_all(&mut self, operation: &'static str) {
        for key in self.all_keys() {
            let known = self.fake.knowledge(&key);
            self.tally.coverage.count(operation, known);
        }
    }

    /// The common time: a call that waits in the fake moves only the fake's clock.
    fn now(&mut self) -> Duration {
        let ahead = self.fake.ahead().max(self.real.ahead());
        self.time.wait_until(ahead);
        self.time.now()
    }

    /// Brings both arms to the common time.
    fn meet(&mut self) -> Duration {
        let now = self.now();
        self.fake.reach(now);
        self.real.reach(now);
        now
    }

    /// The time around an edge in which nothing is compared.
    fn zone(&self, edge: &Edge) -> (Duration, Duration) {
        (edge.at.saturating_sub(self.slack + MARGIN), edge.at + MARGIN)
    }

    /// Waits until no edge is near and no evictor at work: a call that begins then, and takes no longer than the
    /// slowest so far, ends before the next edge's zone begins.
    fn come_to_rest(&mut self) -> Result<Option<Unlike>, Broken> {
        loop {
            if let Some(unlike) = self.settle()? {
                return Ok(Some(unlike));
            }
            let now = self.meet();
            let zones = self.fake.edges().into_iter().map(|edge| self.zone(&edge));
            let zones = zones.map(|(from, to)| (from.saturating_sub(self.slack), to));
            let inside = zones.filter(|(from, to)| *from <= now && now < *to);
            let Some(until) = inside.map(|(_, to)| to).max() else { return Ok(None) };
            self.time.wait_until(until);
        }
    }

    /// Whether a call that was made between two moments may have seen the other side of an edge.
    fn reached_edge(
        &self,
        reads: bool,
        edges: &[Edge],
        started: Duration,
        ended: Duration,
    ) -> bool {
        if self.around.master_hangs || self.around.master_is_down {
            // Nobody looks at any clock.
            return false;
        }
        let lease = Duration::from_millis(self.world.lease_ttl_ms);
        let own_lease = reads && ended - started + MARGIN >= lease;
        let passed = |edge: &Edge| {
            let (from, to) = self.zone(edge);
            from <= ended && started < to
        };
        let given_up = self.owners.values().any(|at| *at <= ended);
        own_lease || given_up || edges.iter().any(passed)
    }

    fn event(&mut self, event: Event) -> Result<Option<Unlike>, Broken> {
        let now = self.meet();
        // Up to a second has passed since the owner's last ping, another one may since the master's last look.
        let given_up = Duration::from_secs(self.world.client_ttl_s).saturating_sub(SLOPPY);
        match event {
            Event::KillClient(number) | Event::StopClient(number) => {
                if matches!(event, Event::KillClient(_)) {
                    self.count_all("client dies");
                }
                if self.world.segments[number] > 0 {
                    self.owners.insert(number, now + given_up);
                }
            }
            Event::ContinueClient(number) | Event::StartClient(number) => {
                self.owners.remove(&number);
            }
            Event::StartMaster => {
                self.around.master_is_down = false;
                self.evicted = 0;
            }
            Event::StopMaster => {
                self.count_all("master hangs");
                self.around.master_hangs = true;
            }
            Event::ContinueMaster => self.around.master_hangs = false,
            Event::KillMaster => {
                self.count_all("master restarts");
                self.around.master_is_down = true;
            }
            Event::CloseClient(_) => {}
        }
        self.real.event(event)?;
        self.meet();
        self.fake.event(event)?;
        Ok(None)
    }

    fn wait(&mut self, wait: &Wait, prefix: &str) -> Result<Option<Unlike>, Broken> {
        let kind = match wait {
            Wait::Leases => EdgeKind::Lease,
            Wait::Discards => EdgeKind::Discard,
            Wait::SoftPins => EdgeKind::SoftPin,
            Wait::Size { key, code } => {
                return self.wait_for_size(&format!("{prefix}{key}"), *code);
            }
            Wait::Mounted => return self.wait_until_mounted(),
            Wait::Millis(millis) => {
                let until = self.now() + Duration::from_millis(*millis);
                self.time.wait_until(until);
                return self.settle();
            }
        };
        if kind == EdgeKind::Lease {
            self.count_all("lease ends");
        }
        let edges = self.fake.edges().into_iter().filter(|edge| edge.kind == kind);
        let last = edges.map(|edge| self.zone(&edge).1).max().unwrap_or_default();
        self.time.wait_until(last);
        self.settle()
    }

    /// Asks both arms for an object's length until both answer with `code`.
    fn wait_for_size(&mut self, key: &str, code: i64) -> Result<Option<Unlike>, Broken> {
        let known = self.fake.knowledge(key);
        let ttl = self.world.client_ttl_s.max(2 * self.world.release_s);
        let deadline = self.now() + Duration::from_secs(ttl) + PATIENCE;
        let size = Call::GetSize { key: key.to_owned() };
        let asker = usize::from(self.owners.contains_key(&0));
        loop {
            let real = self.real.call(asker, &size)?;
            self.meet();
            let fake = self.fake.call(asker, &size)?;
            if fake == real && fake.codes == [code] {
                break;
            }
            let now = self.now();
            if now > deadline {
                let how = format!("the length of {key} should come to be answered with {code}");
                return Ok(Some((how, format!("{fake:?}"), format!("{real:?}"))));
            }
            self.time.wait_until(now + LOOK);
            self.meet();
        }
        if known.state == State::Unreachable {
            self.tally.coverage.count("owner is given up", known);
            // What it had is gone in both arms.
            self.owners.clear();
        }
        Ok(None)
    }

    fn wait_until_mounted(&mut self) -> Result<Option<Unlike>, Broken> {
        let deadline = self.now() + PATIENCE;
        let expected: u64 = self.world.segments.iter().sum();
        loop {
            let now = self.meet();
            let (fake, real) = (self.fake.capacity()?, self.real.capacity()?);
            if (fake, real) == (expected, expected) {
                return Ok(None);
            }
            if now > deadline {
                let how = format!("expected {expected} bytes of segments");
                return Ok(Some((how, fake.to_string(), real.to_string())));
            }
            self.time.wait_until(now + LOOK);
        }
    }

    /// Waits until the evictors of both arms have done what they had to, and compares what is left.
    fn settle(&mut self) -> Result<Option<Unlike>, Broken> {
        let now = self.meet();
        if !self.fake.is_evicting() && self.fake.evicted()? == self.evicted {
            return Ok(None);
        }
        let before: Vec<(String, Knowledge)> = self.known(&Call::RemoveAll { force: true });
        let deadline = now + PATIENCE;
        loop {
            let next = self.now() + QUIET;
            self.time.wait_until(next);
            self.meet();
            let (fake, real) = (self.fake.evicted()?, self.real.evicted()?);
            let (fake_keys, real_keys) = (self.fake.keys()?, self.real.keys()?);
            if fake == real && fake_keys == real_keys {
                self.evicted = fake;
                break;
            }
            if self.now() > deadline {
                let show =
                    |evicted: u64, keys: &[String]| format!("{evicted} evicted, left {keys:?}");
                let how = "the evictors left other objects".to_owned();
                return Ok(Some((how, show(fake, &fake_keys), show(real, &real_keys))));
            }
        }
        before.iter().for_each(|(_, known)| self.tally.coverage.count("eviction", *known));
        Ok(None)
    }

    fn compare_keys(&mut self) -> Result<Option<Unlike>, Broken> {
        if let Some(unlike) = self.settle()? {
            return Ok(Some(unlike));
        }
        let (fake, real) = (self.fake.keys()?, self.real.keys()?);
        self.tally.key_lists += 1;
        let unlike = ("the keys differ".to_owned(), format!("{fake:?}"), format!("{real:?}"));
        Ok((fake != real).then_some(unlike))
    }
}

/// How much earlier than its time to live an owner may be given up, as far as this side can tell.
const SLOPPY: Duration = Duration::from_millis(1500);

/// How, in the fake, in the real store.
type Unlike = (String, String, String);

enum Seen {
    Alike,
    NearEdge(Duration),
    Unlike(String, String, String),
}

fn describe(known: &[(String, Knowledge)]) -> String {
    let one = |(key, known): &(String, Knowledge)| {
        let soft = if known.soft_pinned { ", soft pin" } else { "" };
        let hard = if known.hard_pinned { ", hard pin" } else { "" };
        format!("{key:?} {:?} of {} bytes{soft}{hard}", known.state, known.bytes)
    };
    known.iter().map(one).collect::<Vec<_>>().join("; ")
}
