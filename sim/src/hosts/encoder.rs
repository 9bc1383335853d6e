//! The engine model of an encoder instance.
//!
//! A step takes a batch of requests, offers the connector again what it names of the engine's own cache, launches
//! an encode for every item that the cache lacks and hands it to the connector, as vLLM's model runner does,
//! waits for the saves and answers. The engine's own thread runs ahead of its device:
//! saves are ordered behind their kernels by events alone.

use std::time::Duration;

use springtide::{
    connector::{Availability, ItemRequest, SaveOutcome},
    env::{Clock, Time},
};

use super::{
    cache::EncoderCache,
    instance::Instance,
    ranks,
    server::{Arrival, Queue, accept},
};
use crate::{
    event::{Event, SaveEnd},
    plan::Item,
    world::{
        device::{SimEvent, SimTensor},
        host::Host,
    },
};

/// Runs an encoder until the end of the world.
pub async fn run(host: Host) {
    let queue = Queue::default();
    host.process.spawn(Box::pin(accept(host.clone(), queue.clone())));
    let instance = Instance::start(&host).await;
    let items_max = host.world.plan.engine.cache_items_max as usize;
    let engine =
        Encoder { cache: EncoderCache::new(items_max), busy_until: Time::ZERO, instance, host };
    engine.run(queue).await;
}

/// What a scheduling pass decided.
#[derive(Default)]
struct Pass {
    /// To be encoded.
    fresh: Vec<Item>,
    /// In the engine's own cache already.
    held: Vec<String>,
    /// Who uses them until the end of the step.
    requests: Vec<String>,
}

struct Encoder {
    host: Host,
    instance: Instance,
    cache: EncoderCache,
    /// When the device has run all kernels that were launched.
    busy_until: Time,
}

impl Encoder {
    async fn run(mut self, queue: Queue) {
        let batch_max = self.host.world.plan.engine.batch_requests_max as usize;
        while self.instance.more(queue.arrived()).await {
            let batch = queue.take(batch_max);
            self.step(batch).await;
        }
        self.instance.close().await;
    }

    async fn step(&mut self, batch: Vec<Arrival>) {
        let (gone, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(Arrival::is_aborted);
        drop(gone);
        let mut pass = Pass::default();
        for arrival in &batch {
            self.schedule(arrival, &mut pass).await;
        }
        self.execute(pass);
        let plan = &self.host.world.plan.engine;
        self.host.clock.sleep(Duration::from_millis(plan.step_ms)).await;
        self.instance.wait_for_save(Duration::from_millis(plan.wait_ms)).await;
        for arrival in batch {
            self.instance.scheduler_call(|s| s.request_finished(&arrival.job.name()));
            arrival.finish();
        }
    }

    /// The scheduler's side of a producer: everything is available, nothing is promised.
    async fn schedule(&mut self, arrival: &Arrival, pass: &mut Pass) {
        let name = arrival.job.name();
        let items: Vec<ItemRequest> = item_requests(&arrival.job.items);
        let availability = self.instance.ensure_available(&name, &items).await;
        let promised =
            self.instance.scheduler_call(|s| items.iter().any(|item| s.has_item(&item.identifier)));
        if availability == Some(Availability::Wait) || promised == Some(true) {
            let reason = format!("a producer was promised items of {name}, or made to wait");
            self.host.record(Event::EngineDied { reason });
        }
        for item in &arrival.job.items {
            let is_held = self.cache.holds(&item.id);
            if !is_held && !self.cache.has_room(1) {
                // More items in one step than the cache holds: it is split.
                self.execute(std::mem::take(pass));
                self.cache.preempt(&name);
            }
            self.cache.allocate(&item.id, &name);
            if is_held {
                pass.held.push(item.id.clone());
            } else {
                self.instance.scheduler_call(|s| s.allocated(&name, &item.id));
                pass.fresh.push(item.clone());
            }
        }
        pass.requests.push(name);
    }

    /// The worker's side: what the connector names again is saved once more, what is fresh is encoded and saved.
    fn execute(&mut self, pass: Pass) {
        let freed = self.cache.take_freed();
        let step = self.instance.scheduler_call(|scheduler| scheduler.build_step(&freed));
        let worker = self.instance.workers().first();
        let again = match (worker, step) {
            (Some(worker), Some(step)) => ranks::save_again(worker, &step, pass.held),
            _ => Vec::new(),
        };
        for item in again {
            self.instance.save_again(&self.cache, &item);
        }
        for item in &pass.fresh {
            let tensor = self.encode(item);
            let ready = SimEvent(tensor.written_at());
            self.instance.save(&item.id, &tensor, ready);
            self.cache.fill(&item.id, 0, tensor);
        }
        for request in &pass.requests {
            self.cache.release(request);
        }
    }

    /// Launches the kernels for an item behind those that the device already has.
    fn encode(&mut self, item: &Item) -> SimTensor {
        let host = &self.host;
        let duration = host.world.encode_time(item.rows);
        let start = self.busy_until.max(host.clock.now());
        self.busy_until = self.instance.device.launch(start, duration);
        let spec = host.world.spec(item.rows);
        let bytes = host.world.contents.of(self.instance.model, &item.id, spec.bytes());
        SimTensor::new(spec, bytes, self.busy_until)
    }
}

/// The items of a request in the connector's words.
pub fn item_requests(items: &[Item]) -> Vec<ItemRequest> {
    let request = |item: &Item| ItemRequest { identifier: item.id.clone(), rows: item.rows };
    items.iter().map(request).collect()
}

/// An outcome of the connector in the simulator's words.
pub fn save_end(outcome: SaveOutcome) -> SaveEnd {
    match outcome {
        SaveOutcome::Stored => SaveEnd::Stored,
        SaveOutcome::AlreadyThere => SaveEnd::AlreadyThere,
        SaveOutcome::Dropped(reason) => SaveEnd::Dropped(reason.name().to_owned()),
        SaveOutcome::Failed(failure) => SaveEnd::Failed(failure.to_string()),
        SaveOutcome::TimedOut => SaveEnd::TimedOut,
    }
}
