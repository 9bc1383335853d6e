//! The master behind its fault points.

use std::{collections::BTreeMap, sync::Mutex};

use springtide::env::{Clock, ErrorCode};

use super::{Broken, Health, Switch, pass};
use crate::{
    faults::{Faults, Occurrence, Point, When},
    master::{KnobError, Knobs, Master},
    memory::lock,
    protocol::{Call, ClientId, Code, Reply, Request},
};

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is answered.
    Reply(Reply),
    /// Executed or not, it is never answered.
    Silent,
    /// Executed or not, the connection ends.
    Disconnected,
}

/// A master that answers calls.
#[derive(Debug)]
pub struct MasterService<C> {
    clock: C,
    faults: Faults,
    health: Switch,
    master: Mutex<Master>,
}

impl<C: Clock> MasterService<C> {
    /// A new, empty master.
    ///
    /// # Errors
    /// [`KnobError`] as [`Master::new`] gives it.
    pub fn new(clock: C, faults: Faults, knobs: Knobs, seed: u64) -> Result<Self, KnobError> {
        let master = Mutex::new(Master::new(clock.now(), knobs, seed)?);
        Ok(Self { clock, faults, health: Switch::default(), master })
    }

    /// Looks at or works on the state machine itself.
    pub fn with<R>(&self, work: impl FnOnce(&mut Master) -> R) -> R {
        work(&mut lock(&self.master))
    }

    /// One turn of the master's loops, unless it is down or hung. To be called every
    /// [`crate::master::TICK`].
    pub fn tick(&self) {
        if self.health.get() == Health::Up {
            let now = self.clock.now();
            self.with(|master| master.tick(now));
        }
    }

    /// Loses everything, as a new process at the same address does.
    pub fn restart(&self) {
        let now = self.clock.now();
        self.with(|master| master.restart(now));
    }

    /// Stops or starts answering.
    pub fn set_health(&self, health: Health) {
        self.health.set(health);
    }

    /// Whether it answers.
    pub fn health(&self) -> Health {
        self.health.get()
    }

    /// Executes a call, with the faults before and after it. To be run to its end: a caller that gives up
    /// does not stop a call that has been sent.
    pub(crate) async fn call(&self, request: Request) -> Answer {
        let Request { client, call } = request;
        if self.health.gate().await.is_err() {
            return Answer::Disconnected;
        }
        match self.execute(client, call).await {
            Ok(reply) => Answer::Reply(reply),
            Err(Broken::Disconnected) => Answer::Disconnected,
            Err(_) => Answer::Silent,
        }
    }

    async fn execute(&self, client: ClientId, call: Call) -> Result<Reply, Broken> {
        let point = Point::of(&call);
        let keys: Vec<String> = call.keys().into_iter().map(str::to_owned).collect();
        let keyless = keys.is_empty();
        let points: Vec<String> = if keyless { vec![String::new()] } else { keys.clone() };

        let refused = self.pass_all(client, point, When::Before, &points).await?;
        if let (true, Some(code)) = (keyless, refused.get(&0)) {
            return Ok(call.failed(*code));
        }
        let template = call.failed(ErrorCode::Internal);
        // Dead or stopped while a fault held the call.
        self.health.gate().await?;
        let now = self.clock.now();
        let reply = self
            .with(|master| master.handle(now, Request { client, call: without(call, &refused) }));
        let reply = insert(reply, &refused);

        let failed = self.pass_all(client, point, When::After, &points).await?;
        Ok(match (keyless, failed.get(&0)) {
            (true, Some(code)) => overwrite(template, *code),
            _ => replace(reply, &failed),
        })
    }

    /// Passes the fault point once a key; the keys that failed.
    async fn pass_all(
        &self,
        client: ClientId,
        point: Point,
        when: When,
        keys: &[String],
    ) -> Result<BTreeMap<usize, ErrorCode>, Broken> {
        let mut failed = BTreeMap::new();
        for (i, key) in keys.iter().enumerate() {
            let occurrence = Occurrence { point, when, key, client, replica: 0 };
            match pass(&self.clock, &self.faults, occurrence).await {
                Ok(()) => {}
                Err(Broken::Code(code)) => {
                    failed.insert(i, code);
                }
                Err(broken) => return Err(broken),
            }
        }
        Ok(failed)
    }
}

/// The call without the items that failed before it.
fn without(call: Call, failed: &BTreeMap<usize, ErrorCode>) -> Call {
    fn rest<T>(items: Vec<T>, failed: &BTreeMap<usize, ErrorCode>) -> Vec<T> {
        let items = items.into_iter().enumerate();
        items.filter(|(i, _)| !failed.contains_key(i)).map(|(_, item)| item).collect()
    }
    match call {
        Call::PutStart { objects, config } => {
            Call::PutStart { objects: rest(objects, failed), config }
        }
        Call::UpsertStart { objects, config } => {
            Call::UpsertStart { objects: rest(objects, failed), config }
        }
        Call::PutEnd { keys } => Call::PutEnd { keys: rest(keys, failed) },
        Call::PutRevoke { keys } => Call::PutRevoke { keys: rest(keys, failed) },
        Call::Query { keys } => Call::Query { keys: rest(keys, failed) },
        Call::Size { keys } => Call::Size { keys: rest(keys, failed) },
        Call::Exist { keys } => Call::Exist { keys: rest(keys, failed) },
        Call::Remove { keys, force } => Call::Remove { keys: rest(keys, failed), force },
        other => other,
    }
}

/// Applies one change to the results of whatever reply it is.
macro_rules! each_result {
    ($reply:expr, $change:expr) => {
        match $reply {
            Reply::Started(results) => Reply::Started($change(results)),
            Reply::Done(results) => Reply::Done($change(results)),
            Reply::Found(results) => Reply::Found($change(results)),
            Reply::Exists(results) => Reply::Exists($change(results)),
            other => other,
        }
    };
}

/// Puts the results of the items that were left out in their places.
fn insert(reply: Reply, failed: &BTreeMap<usize, ErrorCode>) -> Reply {
    fn change<T>(
        results: Vec<Result<T, Code>>,
        failed: &BTreeMap<usize, ErrorCode>,
    ) -> Vec<Result<T, Code>> {
        let mut all = results;
        for (i, code) in failed {
            all.insert(*i, Err(Code(*code)));
        }
        all
    }
    each_result!(reply, |results| change(results, failed))
}

/// Overwrites the results of items that failed after their effect.
fn replace(reply: Reply, failed: &BTreeMap<usize, ErrorCode>) -> Reply {
    fn change<T>(
        mut results: Vec<Result<T, Code>>,
        failed: &BTreeMap<usize, ErrorCode>,
    ) -> Vec<Result<T, Code>> {
        for (i, code) in failed {
            results[*i] = Err(Code(*code));
        }
        results
    }
    each_result!(reply, |results| change(results, failed))
}

/// The failed answer of a call without keys, with this code.
fn overwrite(failed: Reply, code: ErrorCode) -> Reply {
    match failed {
        Reply::Removed(_) => Reply::Removed(Err(Code(code))),
        _ => Reply::Segment(Err(Code(code))),
    }
}
