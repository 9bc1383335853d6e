//! The engine model of an encoder instance.
//!
//! A step takes a batch of requests, launches an encode for every item that the engine's own cache lacks,
//! hands every item to the connector as vLLM's model runner does (fresh ones, and those in the cache again:
//! the republish path), waits for the saves and answers. The engine's own thread runs ahead of its device:
//! saves are ordered behind their kernels by events alone.

use std::time::Duration;

use springtide::{
    connector::{Availability, ItemRequest, SaveOutcome},
    env::{Clock, Time},
};

use super::{
    cache::EncoderCache,
    instance::Instance,
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
        for arrival in &batch {
            self.schedule(arrival).await;
            // An item that several requests of the step have in common is saved for each.
            for item in &arrival.job.items {
                self.encode_and_save(item, &arrival.job.name());
            }
            self.cache.release(&arrival.job.name());
        }
        self.instance.scheduler_call(|scheduler| {
            scheduler.build_step(&self.cache.take_freed());
        });
        let plan = &self.host.world.plan.engine;
        self.host.clock.sleep(Duration::from_millis(plan.step_ms)).await;
        self.instance.wait_for_save(Duration::from_millis(plan.wait_ms)).await;
        for arrival in batch {
            self.instance.scheduler_call(|s| s.request_finished(&arrival.job.name()));
            arrival.finish();
        }
    }

    /// The scheduler's side of a producer: everything is available, nothing is promised.
    async fn schedule(&self, arrival: &Arrival) {
        let name = arrival.job.name();
        let items: Vec<ItemRequest> = item_requests(&arrival.job.items);
        let availability = self.instance.ensure_available(&name, &items).await;
        let promised = self.instance.scheduler_call(|scheduler| {
            let promised = items.iter().any(|item| scheduler.has_item(&item.identifier));
            items.iter().for_each(|item| scheduler.allocated(&name, &item.identifier));
            promised
        });
        if availability == Some(Availability::Wait) || promised == Some(true) {
            let reason = format!("a producer was promised items of {name}, or made to wait");
            self.host.record(Event::EngineDied { reason });
        }
    }

    /// Encodes an item unless the cache has it, and hands it to every rank's worker.
    fn encode_and_save(&mut self, item: &Item, request: &str) {
        if !self.cache.holds(&item.id) && !self.cache.has_room(1) {
            // More items in one step than the cache holds: as if the step had been split.
            self.cache.preempt(request);
        }
        self.cache.allocate(&item.id, request);
        let tensor = match self.cache.tensor(&item.id, 0) {
            Some(tensor) => tensor.clone(),
            None => self.encode(item),
        };
        let ready = SimEvent(tensor.written_at());
        self.instance.save(&item.id, &tensor, ready);
        self.cache.fill(&item.id, 0, tensor);
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
