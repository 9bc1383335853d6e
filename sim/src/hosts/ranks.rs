//! The workers of a step: each rank loads in a process of its own and tells when it is done.
//!
//! Ranks do not wait for each other. The scheduler hears of each as it finishes, so a fast rank's
//! acknowledgement comes while a slow one still copies.

use std::time::Duration;

use springtide::{
    connector::{Delivery, LoadOrder, LoadTarget, StepPlan, Worker},
    env::Clock,
};
use tokio::sync::mpsc;

use crate::world::{
    device::{SimDevice, SimEvent, SimTensor},
    host::{Host, SimEnv},
};

/// What one rank did in a step.
#[derive(Debug)]
pub struct Loaded {
    /// The rank.
    pub rank: u32,
    /// Each order with the tensor that received it and how that went.
    pub orders: Vec<(LoadOrder, SimTensor, Delivery)>,
}

/// Starts a step's loads on every rank; they arrive in the order in which the ranks finish.
pub fn load(
    host: &Host,
    workers: &[Worker<SimEnv>],
    plan: &StepPlan,
) -> mpsc::UnboundedReceiver<Loaded> {
    // What vLLM pickles is data: a plan that does not survive it is no plan.
    let pickled = serde_json::to_string(plan).expect("a step plan is plain data");
    let (done, loaded) = mpsc::unbounded_channel();
    let device = SimDevice::new(host.process.clone(), host.world.desk.clone());
    for (rank, worker) in (0..).zip(workers) {
        let plan: StepPlan = serde_json::from_str(&pickled).expect("what was written is read");
        let now = host.clock.now();
        // The last kernel that reads the memory may still run.
        let idle = plan.orders.is_empty();
        let free = SimEvent(if idle { now } else { device.launch(now, Duration::ZERO) });
        let (worker, done) = (worker.clone(), done.clone());
        host.process.spawn(Box::pin(async move {
            // A scheduler that has gone hears nothing any more.
            let _ = done.send(load_rank(rank, &worker, plan.orders, free).await);
        }));
    }
    loaded
}

async fn load_rank(
    rank: u32,
    worker: &Worker<SimEnv>,
    orders: Vec<LoadOrder>,
    free: SimEvent,
) -> Loaded {
    let tensors: Vec<SimTensor> = orders.iter().map(|order| SimTensor::empty(order.spec)).collect();
    let targets: Vec<LoadTarget<SimDevice>> = orders
        .iter()
        .zip(&tensors)
        .map(|(order, tensor)| LoadTarget { order: order.clone(), tensor: tensor.clone(), free })
        .collect();
    let deliveries = worker.load(targets).await;
    let orders = orders.into_iter().zip(tensors).zip(deliveries);
    Loaded { rank, orders: orders.map(|((order, tensor), end)| (order, tensor, end)).collect() }
}
