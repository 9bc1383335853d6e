//! Carries the faults of a plan out: each begins at its time and ends at its time, between two steps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fake_store::{
    faults::{Action, Point, Rule, RuleId, When},
    protocol::{Call, ClientId, Code, Request},
};
use springtide::{
    env::Time,
    pool::{AllocError, Contiguity, Lease},
};

use super::{
    desk::Ambush,
    engine::{Engine, Processes},
    host::World,
    process::Process,
};
use crate::{
    event::Event,
    hosts::{store::client_id, stranger::Errand},
    plan::{Fault, MessageFate, Moment, Op, Scheduled},
    subjects::Subject,
};

/// The injector of a run.
pub struct Injector {
    world: Arc<World>,
    processes: Processes,
    /// Beginnings and ends that have not come yet, by time and order.
    agenda: BTreeMap<(u64, usize, Turn), Scheduled>,
    /// What a fault has to take back at its end.
    active: BTreeMap<usize, Undo>,
}

/// Which of the two; a fault without a length begins before it ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Begin,
    End,
}

enum Undo {
    Bounce(String),
    Resume(Process),
    Repair { a: String, b: String },
    RepairOneway { from: String, to: String },
    Release { a: String, b: String },
    Latency { a: String, b: String },
    Rules(Vec<RuleId>),
    Lease,
    Leases { _held: Vec<Lease> },
    Nothing,
}

impl Injector {
    /// The injector for `world`'s plan.
    pub fn new(world: Arc<World>, processes: Processes) -> Self {
        let mut agenda = BTreeMap::new();
        for (index, scheduled) in world.plan.faults.iter().enumerate() {
            let until = scheduled.at_ms + scheduled.fault.for_ms();
            agenda.insert((scheduled.at_ms, index, Turn::Begin), scheduled.clone());
            agenda.insert((until, index, Turn::End), scheduled.clone());
        }
        Self { world, processes, agenda, active: BTreeMap::new() }
    }

    /// When something is due next, in milliseconds.
    pub fn next(&self) -> Option<u64> {
        self.agenda.first_key_value().map(|((at, ..), _)| *at)
    }

    /// Carries out what is due.
    pub fn advance(&mut self, engine: &mut dyn Engine) {
        let now = engine.elapsed().as_millis();
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, index, _), Scheduled { fault, .. }) = entry.remove_entry();
            // Each fault stands in the agenda twice: for its beginning and for its end.
            match self.active.remove(&index) {
                Some(undo) => self.end(engine, &fault, undo),
                None => {
                    let undo = self.begin(engine, &fault);
                    self.active.insert(index, undo);
                }
            }
        }
    }

    fn begin(&mut self, engine: &mut dyn Engine, fault: &Fault) -> Undo {
        let (kind, text) = (fault.kind(), describe(fault));
        self.record(engine, "world", Event::FaultBegan { kind, text });
        let now = engine.elapsed();
        let until = now + Duration::from_millis(fault.for_ms());
        if let Some(undo) = self.begin_between(engine, fault) {
            return undo;
        }
        match fault {
            Fault::Crash { host, .. } => self.crash(engine, host),
            Fault::Pause { host, .. } => {
                let Some(process) = self.process(host) else { return Undo::Nothing };
                process.pause();
                self.record(engine, host, Event::Paused(true));
                Undo::Resume(process)
            }
            Fault::Panic { host, op, count, .. } => {
                self.lay(host, Ambush::Panic(*op), *count, until)
            }
            Fault::FailCopy { host, count, .. } => self.lay(host, Ambush::FailCopy, *count, until),
            Fault::SlowCopy { host, direction, late_ms, count, .. } => {
                self.lay(host, Ambush::SlowCopy(*direction, *late_ms), *count, until)
            }
            Fault::LateKernel { host, late_ms, count, .. } => {
                self.lay(host, Ambush::LateKernel(*late_ms), *count, until)
            }
            Fault::Messages {
                host,
                op,
                fate: MessageFate::Duplicate { after_ms },
                item,
                count,
                ..
            } => {
                let (item, after_ms) = (item.as_ref().map(|item| format!("/{item}")), *after_ms);
                let ambush = Ambush::Duplicate { point: point(*op), item, after_ms };
                self.lay(host, ambush, *count, until)
            }
            Fault::FillStore { object_bytes, objects, .. } => {
                let errand = Errand::Fill { bytes: *object_bytes, objects: *objects, until };
                self.world.stranger.send(errand);
                Undo::Nothing
            }
            Fault::ShortLease { ttl_ms, .. } => {
                self.lease(*ttl_ms);
                Undo::Lease
            }
            Fault::DoubleSave { host, count, .. } => {
                self.lay(host, Ambush::DoubleSave, *count, until)
            }
            Fault::EvictAll => self.at_master(now, Call::RemoveAll { force: false }),
            Fault::Remove { item } => {
                let models = 0..self.world.namespaces.len() as u32;
                let keys = models.map(|m| self.world.key(m, item).as_str().to_owned()).collect();
                self.at_master(now, Call::Remove { keys, force: true })
            }
            Fault::Plant { item, bytes, forged } => {
                let (key, bytes, forged) = (self.world.key(0, item), *bytes, *forged);
                self.world.stranger.send(Errand::Plant { key, bytes, forged });
                Undo::Nothing
            }
            Fault::HogPool { host, permille, .. } => {
                Undo::Leases { _held: self.hog(host, *permille) }
            }
            Fault::Close { host } => {
                if let Some(instance) = self.world.instances().get(host) {
                    instance.shutdown.signal();
                }
                Undo::Nothing
            }
            operations => Undo::Rules(self.rules(operations)),
        }
    }

    /// Begins a fault between two hosts; `None` if it is of another kind.
    fn begin_between(&mut self, engine: &mut dyn Engine, fault: &Fault) -> Option<Undo> {
        Some(match fault {
            Fault::Partition { a, b, .. } => {
                engine.partition(a, b);
                self.disturb(engine, [a, b], true);
                Undo::Repair { a: a.clone(), b: b.clone() }
            }
            Fault::PartitionOneway { from, to, .. } => {
                engine.partition_oneway(from, to);
                self.disturb(engine, [from, to], true);
                Undo::RepairOneway { from: from.clone(), to: to.clone() }
            }
            Fault::Hold { a, b, .. } => {
                engine.hold(a, b);
                self.disturb(engine, [a, b], true);
                Undo::Release { a: a.clone(), b: b.clone() }
            }
            Fault::Slow { a, b, latency_ms, .. } => {
                let latency = Duration::from_millis(*latency_ms);
                engine.set_latency(a, b, latency);
                self.disturb(engine, [a, b], true);
                Undo::Latency { a: a.clone(), b: b.clone() }
            }
            _ => return None,
        })
    }

    fn end(&mut self, engine: &mut dyn Engine, fault: &Fault, undo: Undo) {
        match undo {
            Undo::Bounce(host) => engine.bounce(&host),
            Undo::Resume(process) => {
                process.resume();
                self.record(engine, process.host(), Event::Paused(false));
            }
            Undo::Repair { a, b } => {
                engine.repair(&a, &b);
                self.world.links.reset(&a, &b);
                self.disturb(engine, [&a, &b], false);
            }
            Undo::RepairOneway { from, to } => {
                engine.repair_oneway(&from, &to);
                self.world.links.reset(&from, &to);
                self.disturb(engine, [&from, &to], false);
            }
            Undo::Release { a, b } => {
                engine.release(&a, &b);
                self.disturb(engine, [&a, &b], false);
            }
            Undo::Latency { a, b } => {
                let latency = Duration::from_millis(self.world.plan.link.latency_ms);
                engine.set_latency(&a, &b, latency);
                self.disturb(engine, [&a, &b], false);
            }
            Undo::Lease => self.lease(self.world.plan.store.lease_ttl_ms),
            Undo::Rules(rules) => rules.into_iter().for_each(|rule| self.world.faults.remove(rule)),
            Undo::Leases { .. } | Undo::Nothing => {}
        }
        if fault.for_ms() > 0 {
            let (kind, text) = (fault.kind(), describe(fault));
            self.record(engine, "world", Event::FaultEnded { kind, text });
        }
    }

    /// Kills a host: dead for the injected world first, then for the engine.
    fn crash(&mut self, engine: &mut dyn Engine, host: &str) -> Undo {
        let Some(process) = self.process(host).filter(|process| !process.is_dead()) else {
            return Undo::Nothing;
        };
        process.kill();
        self.record(engine, host, Event::Killed);
        let instance = self.world.instances().remove(host);
        if host == "master" {
            self.world.master.died(engine.elapsed());
        }
        engine.crash(host);
        drop(instance);
        Undo::Bounce(host.to_owned())
    }

    fn lay(&self, host: &str, ambush: Ambush, count: u32, until: Time) -> Undo {
        self.world.desk.lay(host, ambush, count, until);
        Undo::Nothing
    }

    /// Has the master execute a stranger's call.
    fn at_master(&self, now: Time, call: Call) -> Undo {
        let request = Request { client: ClientId(u64::MAX), call };
        // Without a master there is nobody to execute it.
        let _ = self.world.master.with(|master| master.handle(now, request));
        Undo::Nothing
    }

    /// Has the master give leases of this length from now on. One that is not there gives none.
    fn lease(&self, ttl_ms: u64) {
        self.world.master.with(|master| master.set_lease_ttl(ms(ttl_ms)));
    }

    /// Takes a share of an instance's free memory.
    fn hog(&self, host: &str, permille: u64) -> Vec<Lease> {
        let pools = self.world.instances().get(host).map(|instance| instance.pools());
        let mut held = Vec::new();
        for (_, pool) in pools.into_iter().flatten() {
            let mut wanted = pool.usage().total * permille / 1000;
            let mut piece = pool.usage().largest_free;
            while wanted >= pool.region().unit() && piece >= pool.region().unit() {
                piece = piece.min(wanted);
                match pool.allocate(piece, Contiguity::Required) {
                    Ok(lease) => {
                        wanted -= piece;
                        held.push(lease);
                    }
                    Err(AllocError::NoBytes { .. } | AllocError::NoShape { .. }) => piece /= 2,
                    Err(_) => break,
                }
            }
        }
        held
    }

    /// Lays rules for store operations.
    fn rules(&self, fault: &Fault) -> Vec<RuleId> {
        let (host, op, count, action, when) = match fault {
            Fault::Messages { host, op, fate, count, .. } => {
                let (action, when) = match fate {
                    MessageFate::LoseRequest => (Action::DropReply, When::Before),
                    MessageFate::LoseReply => (Action::DropReply, When::After),
                    MessageFate::Delay { by_ms } => (Action::Delay(ms(*by_ms)), When::Before),
                    MessageFate::DelayReply { by_ms } => (Action::Delay(ms(*by_ms)), When::After),
                    MessageFate::Duplicate { .. } => unreachable!("laid on the desk"),
                };
                (host, *op, *count, action, when)
            }
            Fault::StoreCode { host, op, code, moment, count, .. } => {
                (host, *op, *count, Action::Fail(Code::from(*code)), when(*moment))
            }
            Fault::Stall { host, op, stall_ms, count, .. } => {
                (host, *op, *count, Action::Delay(ms(*stall_ms)), When::Before)
            }
            Fault::Disconnect { host, op, moment, count, .. } => {
                (host, *op, *count, Action::Disconnect, when(*moment))
            }
            Fault::LateWrite { host, op, late_ms, count, .. } => {
                (host, *op, *count, Action::LateWrite(ms(*late_ms)), When::Before)
            }
            Fault::Broken { host, op, bytes, count, .. } => {
                (host, *op, *count, Action::PartialBytes(*bytes), When::Before)
            }
            Fault::ShortRead { host, missing, count, .. } => {
                (host, Op::GetTransfer, *count, Action::ShortRead(*missing), When::Before)
            }
            Fault::FlippedByte { host, op, position, count, .. } => {
                (host, *op, *count, Action::FlipByte(*position), When::Before)
            }
            Fault::ForeignBytes { host, op, count, .. } => {
                (host, *op, *count, Action::ForeignBytes, When::Before)
            }
            other => unreachable!("{other:?} hits no store operation"),
        };
        let item = match fault {
            Fault::Messages { item, .. }
            | Fault::StoreCode { item, .. }
            | Fault::Stall { item, .. }
            | Fault::LateWrite { item, .. }
            | Fault::FlippedByte { item, .. } => item.as_ref(),
            _ => None,
        };
        let mut rule = Rule::new(point(op), action).times(count.into());
        rule.when = when;
        rule.key = item.map(|item| format!("/{item}"));
        self.clients(host, op)
            .into_iter()
            .map(|client| {
                let rule = rule.clone().for_client(client);
                self.world
                    .faults
                    .add(rule)
                    .expect("a checked plan makes rules that can be executed")
            })
            .collect()
    }

    /// The store clients of a host that make such calls, of its present life. Registration happens at the
    /// start, so that of its next life is meant as well.
    fn clients(&self, host: &str, op: Op) -> Vec<ClientId> {
        let life = self.process(host).map_or(0, |process| process.life());
        let puts = matches!(op, Op::PutStart | Op::PutTransfer | Op::PutEnd | Op::PutRevoke);
        let plan = &self.world.plan;
        // An encoder's only pool is its worker's, a prefill instance's the scheduler's, if it has one.
        let loads_in_worker = plan.subject == Subject::Pr30468 && op != Op::Exists;
        let part = u32::from(host.starts_with("encoder") || puts || loads_in_worker);
        let mut clients = vec![client_id(plan, host, life, part)];
        if op == Op::Register {
            clients.push(client_id(plan, host, life + 1, part));
        }
        clients
    }

    /// Links to the client are what a request's way depends on.
    fn disturb(&self, engine: &dyn Engine, [a, b]: [&String; 2], begins: bool) {
        let other = match (a.as_str(), b.as_str()) {
            ("client", other) | (other, "client") => other,
            _ => return,
        };
        self.record(engine, other, Event::Disturbed(begins));
    }

    fn process(&self, host: &str) -> Option<Process> {
        self.processes.get(host)
    }

    fn record(&self, engine: &dyn Engine, host: &str, event: Event) {
        self.world.recorder.record(engine.elapsed(), host, event);
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn when(moment: Moment) -> When {
    match moment {
        Moment::Before => When::Before,
        Moment::After => When::After,
    }
}

fn point(op: Op) -> Point {
    match op {
        Op::PutStart => Point::PutStart,
        Op::PutTransfer => Point::Write,
        Op::PutEnd => Point::PutEnd,
        Op::PutRevoke => Point::PutRevoke,
        Op::Query => Point::Query,
        Op::GetTransfer => Point::Read,
        Op::Exists => Point::Exist,
        Op::Size => Point::Size,
        Op::Remove => Point::Remove,
        Op::Register => Point::Register,
        Op::Unregister => Point::Unregister,
    }
}

/// A fault as the timeline writes it: its JSON, which is short and has every field.
fn describe(fault: &Fault) -> String {
    serde_json::to_string(fault).expect("a fault is plain data").replace('"', "")
}
