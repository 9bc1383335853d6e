//! The two sides of a connector, whichever it is.

use springtide::{
    connector::{
        Availability, CloseReport, Config, ItemDecision, ItemRequest, LoadCounters, MissReason,
        OrderId, SaveCounters, Scheduler, StartError, StepPlan, Ticket, Worker,
    },
    env::Time,
    pool::{Mapper, Pool},
};

use super::{Subject, pr30468};
use crate::{
    event::SaveEnd,
    hosts::encoder::save_end,
    world::{
        device::{SimEvent, SimTensor},
        host::{Host, SimEnv},
    },
};

/// The side of a connector that lives in the engine's scheduler process.
#[derive(Clone)]
pub enum SchedulerSide {
    /// The production code.
    Springtide(Scheduler<SimEnv>),
    /// The other design.
    Pr30468(pr30468::Scheduler),
}

/// The side of a connector that lives in one worker of the engine.
#[derive(Clone)]
pub enum WorkerSide {
    /// The production code.
    Springtide(Worker<SimEnv>),
    /// The other design.
    Pr30468(pr30468::Worker),
}

/// What a step carries from the scheduler's side to the workers'.
#[derive(Clone, Debug)]
pub enum Step {
    /// Orders.
    Springtide(StepPlan),
    /// Identifiers of items to load.
    Pr30468(Vec<String>),
}

/// One item of a step that a worker has loaded, or not.
#[derive(Debug)]
pub struct Delivered {
    /// The engine's name for it.
    pub identifier: String,
    /// The tensor that holds it and what to acknowledge, if anything; or why there is none.
    pub result: Result<(SimTensor, Option<OrderId>), String>,
}

/// What a wait says of one save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveReported {
    /// The ticket.
    pub ticket: String,
    /// The object.
    pub key: String,
    /// How the save ended, as far as the connector knows.
    pub end: SaveEnd,
}

/// The environment and configuration that one side starts with.
#[derive(Debug)]
pub struct Start {
    /// The process.
    pub host: Host,
    /// Its world.
    pub env: SimEnv,
    /// The configuration in springtide's words.
    pub config: Config,
}

impl SchedulerSide {
    /// Starts the scheduler's side of the plan's subject.
    ///
    /// # Errors
    /// As the subject's own start.
    pub async fn start(start: Start) -> Result<Self, StartError> {
        Ok(match start.host.world.plan.subject {
            Subject::Springtide => {
                Self::Springtide(Scheduler::start(start.env, start.config).await?)
            }
            Subject::Pr30468 => Self::Pr30468(pr30468::Scheduler::start(start)),
        })
    }

    /// What workers of the same process map, if anything.
    pub fn mapper(&self) -> Option<Mapper> {
        match self {
            Self::Springtide(scheduler) => scheduler.mapper(),
            Self::Pr30468(_) => None,
        }
    }

    /// Springtide's pool.
    pub fn pool(&self) -> Option<&Pool> {
        match self {
            Self::Springtide(scheduler) => scheduler.pool(),
            Self::Pr30468(_) => None,
        }
    }

    /// Asks for the items that a request needs. Springtide answers at once; a design whose lookup blocks the
    /// scheduler takes its time.
    pub async fn ensure_available(&self, request: &str, items: &[ItemRequest]) -> Availability {
        match self {
            Self::Springtide(scheduler) => scheduler.ensure_available(request, items),
            Self::Pr30468(scheduler) => {
                scheduler.has_caches(items).await;
                Availability::Ready
            }
        }
    }

    /// Whether the item is promised.
    pub fn has_item(&self, identifier: &str) -> bool {
        match self {
            Self::Springtide(scheduler) => scheduler.has_item(identifier),
            Self::Pr30468(scheduler) => scheduler.has_item(identifier),
        }
    }

    /// What was decided about an item of a request.
    pub fn decision(&self, request: &str, identifier: &str) -> Option<ItemDecision> {
        match self {
            Self::Springtide(scheduler) => scheduler.decision(request, identifier),
            // It knows one reason only: the store said that the key does not exist.
            Self::Pr30468(_) => Some(ItemDecision::Local(MissReason::Absent)),
        }
    }

    /// The engine has allocated its own cache for the item.
    pub fn allocated(&self, request: &str, identifier: &str) {
        match self {
            Self::Springtide(scheduler) => scheduler.allocated(request, identifier),
            Self::Pr30468(scheduler) => scheduler.allocated(identifier),
        }
    }

    /// Ends a scheduling pass.
    pub fn build_step(&self, freed: &[String]) -> Step {
        match self {
            Self::Springtide(scheduler) => Step::Springtide(scheduler.build_step(freed)),
            Self::Pr30468(scheduler) => Step::Pr30468(scheduler.take_loads()),
        }
    }

    /// A rank has copied these orders.
    pub fn acknowledge(&self, rank: u32, orders: &[OrderId]) {
        if let Self::Springtide(scheduler) = self {
            scheduler.acknowledge(rank, orders);
        }
    }

    /// A request has ended.
    pub fn request_finished(&self, request: &str) {
        if let Self::Springtide(scheduler) = self {
            scheduler.request_finished(request);
        }
    }

    /// What loading did, where it is counted.
    pub fn counters(&self) -> Option<LoadCounters> {
        match self {
            Self::Springtide(scheduler) => Some(scheduler.counters()),
            Self::Pr30468(_) => None,
        }
    }

    /// Whether springtide, with nothing under way, has timed each stage as often as it counts it.
    ///
    /// # Errors
    /// The numbers that differ, in words.
    pub fn check_times(&self) -> Result<(), String> {
        match self {
            Self::Springtide(scheduler) => scheduler.times().check(&scheduler.counters()),
            Self::Pr30468(_) => Ok(()),
        }
    }

    /// Bytes in running gets, where they are counted.
    pub fn in_flight_bytes(&self) -> Option<u64> {
        match self {
            Self::Springtide(scheduler) => Some(scheduler.gauges().in_flight_bytes),
            Self::Pr30468(_) => None,
        }
    }

    /// Shuts down.
    pub async fn close(&self, deadline: Time) -> CloseReport {
        match self {
            Self::Springtide(scheduler) => scheduler.close(deadline).await,
            Self::Pr30468(scheduler) => scheduler.close().await,
        }
    }
}

impl WorkerSide {
    /// Starts one rank's side of the plan's subject.
    ///
    /// # Errors
    /// As the subject's own start.
    pub async fn start(start: Start, mapper: Option<Mapper>) -> Result<Self, StartError> {
        Ok(match start.host.world.plan.subject {
            Subject::Springtide => {
                Self::Springtide(Worker::start(start.env, start.config, mapper).await?)
            }
            Subject::Pr30468 => Self::Pr30468(pr30468::Worker::start(start).await),
        })
    }

    /// Springtide's pool.
    pub fn pool(&self) -> Option<&Pool> {
        match self {
            Self::Springtide(worker) => worker.pool(),
            Self::Pr30468(_) => None,
        }
    }

    /// Begins to save an item; `None` where this side opens no ticket of its own.
    pub fn save(&self, item: &str, tensor: SimTensor, ready: SimEvent) -> Option<String> {
        match self {
            Self::Springtide(worker) => {
                worker.save(item, tensor, ready).as_ref().map(Ticket::to_string)
            }
            Self::Pr30468(worker) => worker.save(item, tensor),
        }
    }

    /// Waits for the saves begun before.
    pub async fn wait_for_save(&self, host: &Host, deadline: Time) -> Vec<SaveReported> {
        match self {
            Self::Springtide(worker) => {
                let report = worker.wait_for_save(deadline).await;
                let entries = report.entries.into_iter().map(|entry| SaveReported {
                    ticket: entry.ticket.to_string(),
                    key: host.world.short(entry.key.as_str()),
                    end: save_end(entry.outcome),
                });
                entries.collect()
            }
            Self::Pr30468(worker) => worker.wait_for_save().await,
        }
    }

    /// What saving did, where it is counted.
    pub fn counters(&self) -> Option<SaveCounters> {
        match self {
            Self::Springtide(worker) => Some(worker.counters()),
            Self::Pr30468(_) => None,
        }
    }

    /// Whether springtide's deliveries add up and, with nothing under way, it has timed each stage of a save as
    /// often as it counts it.
    ///
    /// # Errors
    /// The numbers that differ, in words.
    pub fn check_times(&self, all_ended: bool) -> Result<(), String> {
        let Self::Springtide(worker) = self else { return Ok(()) };
        worker.delivered().map_or(Ok(()), |delivered| delivered.check())?;
        if all_ended { worker.times().check(&worker.counters()) } else { Ok(()) }
    }

    /// Bytes in running puts, where they are counted.
    pub fn in_flight_bytes(&self) -> Option<u64> {
        match self {
            Self::Springtide(worker) => Some(worker.in_flight_bytes()),
            Self::Pr30468(_) => None,
        }
    }

    /// Shuts down.
    pub async fn close(&self, deadline: Time) -> CloseReport {
        match self {
            Self::Springtide(worker) => worker.close(deadline).await,
            Self::Pr30468(worker) => worker.close().await,
        }
    }
}
