//! The store's own calls: a step makes as many batch calls at a time as the cell has, and waits for all.
//!
//! Where the store's calls block, they are made as they are, each from a thread of its own, without the
//! adapter that the connector uses; elsewhere each from a task.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use springtide::{
    backend::Blocking,
    env::{Clock, Env, ErrorCode, GetItem, Key, Outcome, PutItem, Store, StoreError},
    pool::{Lease, Transfer},
    runtime::TokioClock,
};
use tokio::sync::oneshot;

use super::{Taken, bed::Bed, cpu_time};
use crate::{failure::Failure, stores::Target};

const RAW: &str = "raw";

/// Which call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Put,
    Get,
}

/// Who makes the calls of one lane: as many at a time as there are lanes.
struct Lane {
    leases: Vec<Lease>,
    /// Keys of its items, by step.
    keys: Vec<Vec<Key>>,
    took: Vec<Duration>,
}

/// A lane after a step.
type Step = Result<Lane, Broken>;

/// The buffer of one item after a call.
type End = Result<Lease, ErrorCode>;

/// A call that failed, and its memory is gone with it.
#[derive(Debug)]
struct Broken {
    call: Call,
    key: Option<Key>,
    code: ErrorCode,
}

impl<T: Target> Bed<'_, T> {
    /// Puts the items of each step.
    pub(super) async fn put(&mut self) -> Result<Taken, Failure> {
        let leases = std::mem::take(&mut self.put_leases);
        let (taken, leases) = self.calls(Call::Put, leases).await?;
        self.put_leases = leases;
        for step in 0..self.cell.steps {
            for item in 0..self.cell.items() {
                let key = self.key(RAW, step, item);
                self.has_stored(key);
            }
        }
        Ok(taken)
    }

    /// Gets the items of each step.
    pub(super) async fn get(&mut self) -> Result<Taken, Failure> {
        let leases = std::mem::take(&mut self.get_leases);
        let (taken, leases) = self.calls(Call::Get, leases).await?;
        self.get_leases = leases;
        Ok(taken)
    }

    async fn calls(&self, call: Call, leases: Vec<Lease>) -> Result<(Taken, Vec<Lease>), Failure> {
        let store = match call {
            Call::Put => self.producer.store(),
            Call::Get => self.consumer.store(),
        };
        let lanes = self.lanes(leases);
        let (started, cpu) = (self.clock.now(), cpu_time());
        let lanes = match self.target.blocking(store) {
            Some(calls) => on_threads(calls, call, lanes, self.clock),
            None => self.in_tasks(store, call, lanes).await,
        };
        let (total, cpu) = (self.clock.now() - started, cpu_time() - cpu);
        let (mut each, mut leases) = (Vec::new(), Vec::new());
        for lane in lanes {
            let lane = lane.map_err(|broken| self.told(&broken))?;
            each.extend(lane.took);
            leases.extend(lane.leases);
        }
        Ok((Taken { total, cpu, each }, leases))
    }

    fn lanes(&self, mut leases: Vec<Lease>) -> Vec<Lane> {
        let (batch, steps) = (self.cell.batch, self.cell.steps);
        let keys = |lane: usize, step| {
            (0..batch).map(|item| self.key(RAW, step, lane * batch + item)).collect()
        };
        (0..self.cell.concurrency)
            .map(|lane| Lane {
                leases: leases.drain(..batch.min(leases.len())).collect(),
                keys: (0..steps).map(|step| keys(lane, step)).collect(),
                took: Vec::with_capacity(steps),
            })
            .collect()
    }

    /// Each lane in a task, with a barrier between the steps.
    async fn in_tasks(&self, store: &T::Store, call: Call, lanes: Vec<Lane>) -> Vec<Step> {
        let barrier = Arc::new(tokio::sync::Barrier::new(lanes.len()));
        let mut ends = Vec::new();
        for lane in lanes {
            let (sender, end) = oneshot::channel();
            let (store, clock, barrier) = (store.clone(), self.clock, Arc::clone(&barrier));
            drop(self.handle.spawn(async move {
                // A lane that has failed comes to the barrier all the same, so that none waits for it.
                let steps = lane.keys.len();
                let mut lane = Ok(lane);
                for step in 0..steps {
                    barrier.wait().await;
                    lane = match lane {
                        Ok(lane) => one_call(&store, call, lane, step, clock).await,
                        broken => broken,
                    };
                }
                let _nobody_waits = sender.send(lane);
            }));
            ends.push(end);
        }
        let mut lanes = Vec::new();
        for end in ends {
            let lost = Broken { call, key: None, code: ErrorCode::Internal };
            lanes.push(end.await.unwrap_or(Err(lost)));
        }
        lanes
    }

    fn told(&self, broken: &Broken) -> Failure {
        if broken.code == ErrorCode::NoAvailableHandle {
            return Failure::failed(self.target.no_room());
        }
        let call = if broken.call == Call::Put { "put" } else { "get" };
        let key = broken.key.as_ref().map(ToString::to_string).unwrap_or_default();
        Failure::failed(format!("the store's own {call} of {key}: {}", broken.code))
    }
}

async fn one_call<S: Store>(
    store: &S,
    call: Call,
    mut lane: Lane,
    step: usize,
    clock: TokioClock,
) -> Step {
    let keys = lane.keys[step].clone();
    let pairs = keys.iter().cloned().zip(lane.leases.drain(..));
    let started = clock.now();
    let ends: Vec<End> = match call {
        Call::Put => {
            let items = pairs.map(|(key, lease)| PutItem { key, source: lease.into_transfer() });
            let outcomes = store.put(items.collect()).await;
            outcomes.into_iter().map(ended).collect()
        }
        Call::Get => {
            let items = pairs.map(|(key, lease)| GetItem { key, dest: lease.into_transfer() });
            let outcomes = store.get(items.collect()).await;
            outcomes.into_iter().map(ended).collect()
        }
    };
    lane.took.push(clock.now() - started);
    lane.take_back(call, keys, ends)
}

/// Each lane on a thread, with a barrier between the steps; a single one on this thread.
fn on_threads(calls: &dyn Blocking, call: Call, lanes: Vec<Lane>, clock: TokioClock) -> Vec<Step> {
    let barrier = Barrier::new(lanes.len());
    let run = |lane: Lane| {
        let steps = lane.keys.len();
        let mut lane = Ok(lane);
        for step in 0..steps {
            barrier.wait();
            lane = match lane {
                Ok(lane) => one_blocking_call(calls, call, lane, step, clock),
                broken => broken,
            };
        }
        lane
    };
    if lanes.len() == 1 {
        return lanes.into_iter().map(run).collect();
    }
    let run = &run;
    thread::scope(|scope| {
        let lanes: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(move || run(lane))).collect();
        let lost = |_| Err(Broken { call, key: None, code: ErrorCode::Internal });
        lanes.into_iter().map(|lane| lane.join().unwrap_or_else(lost)).collect()
    })
}

fn one_blocking_call(
    calls: &dyn Blocking,
    call: Call,
    mut lane: Lane,
    step: usize,
    clock: TokioClock,
) -> Step {
    let keys = lane.keys[step].clone();
    let pairs = keys.iter().cloned().zip(lane.leases.drain(..));
    let started = clock.now();
    let (took, ends): (_, Vec<End>) = match call {
        Call::Put => {
            let items: Vec<PutItem> =
                pairs.map(|(key, lease)| PutItem { key, source: lease.into_transfer() }).collect();
            let results = contained(|| calls.put(&items));
            let took = clock.now() - started;
            (took, items.into_iter().zip(results).map(|(item, r)| end(item.source, r)).collect())
        }
        Call::Get => {
            let items: Vec<GetItem> =
                pairs.map(|(key, lease)| GetItem { key, dest: lease.into_transfer() }).collect();
            let results = contained(|| calls.get(&items));
            let took = clock.now() - started;
            (took, items.into_iter().zip(results).map(|(item, r)| end(item.dest, r)).collect())
        }
    };
    lane.took.push(took);
    lane.take_back(call, keys, ends)
}

/// The results of a call; none if it panics, so that no other lane waits for this one for ever.
fn contained<R>(call: impl FnOnce() -> Vec<R>) -> Vec<R> {
    panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_default()
}

/// What a call says of a buffer. Without success the buffer is dropped, and so quarantined: the measurement is
/// over, and nobody knows whether it is still read or written.
fn end<T>(buffer: Transfer, result: Result<T, ErrorCode>) -> End {
    result.map(|_| buffer.finish())
}

fn ended<T>(outcome: Outcome<T>) -> End {
    match outcome {
        Outcome::Ended { buffer, result: Ok(_) } => Ok(buffer),
        Outcome::Ended { result: Err(StoreError { code, .. }), .. } => Err(code),
        Outcome::Uncertain { error, .. } => Err(error.code),
    }
}

impl Lane {
    /// Takes the memory of a call that succeeded for the next step.
    fn take_back(mut self, call: Call, keys: Vec<Key>, ends: Vec<End>) -> Step {
        let mut ends = ends.into_iter();
        for key in keys {
            match ends.next().unwrap_or(Err(ErrorCode::Internal)) {
                Ok(lease) => self.leases.push(lease),
                Err(code) => return Err(Broken { call, key: Some(key), code }),
            }
        }
        Ok(self)
    }
}
