//! The workers of a step: each rank loads in a process of its own and tells when it is done.
//!
//! Ranks do not wait for each other. The scheduler hears of each as it finishes, so a fast rank's
//! acknowledgement comes while a slow one still copies.

use std::time::Duration;

use springtide::{
    connector::{LoadOrder, LoadTarget, OrderId, StepPlan, StepWork, Worker},
    env::{Clock, Task},
};
use tokio::sync::mpsc;

use crate::{
    subjects::{Delivered, Step, WorkerSide},
    world::{
        device::{SimDevice, SimEvent, SimTensor},
        host::{Host, SimEnv},
    },
};

/// What one rank did in a step.
#[derive(Debug)]
pub struct Loaded {
    /// The rank.
    pub rank: u32,
    /// How each item went.
    pub items: Vec<Delivered>,
    /// Orders of earlier steps, to be acknowledged once more.
    pub done: Vec<OrderId>,
    /// Items to be saved once more.
    pub save_again: Vec<String>,
}

/// Starts a step's loads on every rank; they arrive in the order in which the ranks finish.
pub fn load(host: &Host, workers: &[WorkerSide], step: &Step) -> mpsc::UnboundedReceiver<Loaded> {
    let (done, loaded) = mpsc::unbounded_channel();
    for (rank, worker) in (0..).zip(workers) {
        let done = done.clone();
        // A scheduler that has gone hears nothing any more.
        let task: Task = match (worker.clone(), step) {
            (WorkerSide::Springtide(worker), Step::Springtide(plan)) => {
                let (plan, free) = receive(host, plan);
                Box::pin(async move {
                    let StepWork { load, done: copied, save_again } = worker.due(&plan);
                    let items = load_rank(&worker, load, free).await;
                    let _ = done.send(Loaded { rank, items, done: copied, save_again });
                })
            }
            (WorkerSide::Pr30468(worker), Step::Pr30468(items)) => {
                let items = items.clone();
                Box::pin(async move {
                    let items = worker.load(items).await;
                    let (done_again, save_again) = Default::default();
                    let _ = done.send(Loaded { rank, items, done: done_again, save_again });
                })
            }
            _ => unreachable!("both sides of a connector are of one subject"),
        };
        host.process.spawn(task);
    }
    loaded
}

/// What a step has a producer's worker save once more. A design that names nothing gets all that its engine
/// holds.
pub fn save_again(worker: &WorkerSide, step: &Step, held: Vec<String>) -> Vec<String> {
    match (worker, step) {
        (WorkerSide::Springtide(worker), Step::Springtide(plan)) => {
            worker.due(&pickled(plan)).save_again
        }
        _ => held,
    }
}

/// What vLLM pickles is data: a plan that does not survive it is no plan.
fn pickled(plan: &StepPlan) -> StepPlan {
    let pickled = serde_json::to_string(plan).expect("a step plan is plain data");
    serde_json::from_str(&pickled).expect("what was written is read")
}

/// A plan as a rank receives it, and when the memory that it loads into is free.
fn receive(host: &Host, plan: &StepPlan) -> (StepPlan, SimEvent) {
    let plan = pickled(plan);
    let device = SimDevice::new(host.process.clone(), host.world.desk.clone());
    let now = host.clock.now();
    // The last kernel that reads the memory may still run.
    let idle = plan.orders.is_empty();
    let free = SimEvent(if idle { now } else { device.launch(now, Duration::ZERO) });
    (plan, free)
}

async fn load_rank(
    worker: &Worker<SimEnv>,
    orders: Vec<LoadOrder>,
    free: SimEvent,
) -> Vec<Delivered> {
    let tensors: Vec<SimTensor> = orders.iter().map(|order| SimTensor::empty(order.spec)).collect();
    let targets: Vec<LoadTarget<SimDevice>> = orders
        .iter()
        .zip(&tensors)
        .map(|(order, tensor)| LoadTarget { order: order.clone(), tensor: tensor.clone(), free })
        .collect();
    let deliveries = worker.load(targets).await;
    let orders = orders.into_iter().zip(tensors).zip(deliveries);
    let delivered = orders.map(|((order, tensor), delivery)| Delivered {
        identifier: order.identifier,
        result: match delivery.result {
            Ok(()) => Ok((tensor, Some(delivery.order))),
            Err(error) => Err(error.to_string()),
        },
    });
    delivered.collect()
}
