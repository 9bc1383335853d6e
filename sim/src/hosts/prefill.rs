//! The engine model of a prefill instance: vLLM's scheduler loop and its workers.
//!
//! Each step makes the connector's calls in vLLM's order: ask for each candidate's items, ask item by item
//! what will be delivered, allocate, build the step, send it to every rank, load, encode the rest, acknowledge,
//! finish. The connector's *yes* is a promise: an item that was promised and is not there kills the engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use springtide::{
    connector::{Availability, ItemDecision, OrderId},
    env::{Clock, Time},
};

use super::{
    cache::EncoderCache,
    encoder::item_requests,
    instance::Instance,
    ranks::{self, Loaded},
    server::{Arrival, Queue, accept},
};
use crate::{
    event::Event,
    plan::Item,
    subjects::{Delivered, Step},
    world::{
        device::{SimEvent, SimTensor},
        host::Host,
    },
};

/// Runs a prefill instance until the end of the world.
pub async fn run(host: Host) {
    let queue = Queue::default();
    host.process.spawn(Box::pin(accept(host.clone(), queue.clone())));
    let instance = Instance::start(&host).await;
    let items_max = host.world.plan.engine.cache_items_max as usize;
    let engine = Prefill {
        cache: EncoderCache::new(items_max),
        waiting: Vec::new(),
        running: Vec::new(),
        unheard: Vec::new(),
        instance,
        host,
    };
    engine.run(queue).await;
}

struct Prefill {
    host: Host,
    instance: Instance,
    cache: EncoderCache,
    waiting: Vec<Active>,
    running: Vec<Active>,
    /// What ranks have acknowledged and the scheduler has not heard yet.
    unheard: Vec<(u32, Vec<OrderId>)>,
}

/// A request in the engine.
struct Active {
    arrival: Arrival,
    name: String,
    /// When the connector was first asked for its items.
    asked: Option<Time>,
    told_to_wait: bool,
    steps_left: u32,
    preempted: bool,
}

impl Active {
    fn new(arrival: Arrival) -> Self {
        let (name, steps_left) = (arrival.job.name(), arrival.job.decode_steps);
        Self { arrival, name, asked: None, told_to_wait: false, steps_left, preempted: false }
    }
}

/// What a scheduling pass decided.
#[derive(Default)]
struct Pass {
    /// Promised by the connector, with the rows that the engine expects.
    loads: BTreeMap<String, u64>,
    /// To be encoded here.
    encodes: Vec<Item>,
    /// Requests that run in this step.
    requests: usize,
}

impl Prefill {
    async fn run(mut self, queue: Queue) {
        loop {
            if self.waiting.is_empty() && self.running.is_empty() {
                self.hear();
                if !self.instance.more(queue.arrived()).await {
                    break;
                }
            } else if !self.instance.more(std::future::ready(())).await {
                break;
            }
            self.waiting.extend(queue.take(usize::MAX).into_iter().map(Active::new));
            self.step().await;
        }
        self.hear();
        // The end of an engine is the end of its requests.
        for active in self.waiting.iter().chain(&self.running) {
            self.instance.scheduler_call(|scheduler| scheduler.request_finished(&active.name));
        }
        self.instance.close().await;
    }

    async fn step(&mut self) {
        let begun = self.host.clock.now();
        self.drop_aborted();
        if self.waiting.iter().any(|active| active.arrival.job.fresh) {
            self.cache.drop_idle();
            // An empty step: the connector learns what has been freed before it is asked.
            let freed = self.cache.take_freed();
            self.instance.scheduler_call(|scheduler| scheduler.build_step(&freed));
        }
        let mut pass = Pass::default();
        let finished = self.schedule_running(&mut pass).await;
        self.schedule_waiting(&mut pass).await;
        let freed = self.cache.take_freed();
        let step = self.instance.scheduler_call(|scheduler| scheduler.build_step(&freed));
        self.hear();
        // A step without tokens calls no worker; what it would have carried is sent again.
        if pass.requests > 0 {
            self.execute(&pass, step).await;
        }
        for active in finished {
            self.end(&active.name);
            active.arrival.finish();
        }
        let step = Duration::from_millis(self.host.world.plan.engine.step_ms);
        self.host.clock.sleep_until(begun + step).await;
    }

    /// Decode steps: each moves on by one. Returns the requests that end with this step.
    async fn schedule_running(&mut self, pass: &mut Pass) -> Vec<Active> {
        let mut finished = Vec::new();
        for mut active in std::mem::take(&mut self.running) {
            if active.arrival.job.preempt && !active.preempted {
                self.cache.preempt(&active.name);
                active.preempted = true;
                self.waiting.insert(0, active);
                continue;
            }
            // vLLM asks on every decode step, too; nothing of the request is left to deliver.
            self.instance.ensure_available(&active.name, &[]).await;
            pass.requests += 1;
            active.steps_left = active.steps_left.saturating_sub(1);
            match active.steps_left {
                0 => finished.push(active),
                _ => self.running.push(active),
            }
        }
        finished
    }

    /// Prefills: every waiting request whose items are decided, in order of arrival.
    async fn schedule_waiting(&mut self, pass: &mut Pass) {
        let requests_max = self.host.world.plan.engine.batch_requests_max as usize;
        let mut still_waiting = Vec::new();
        let mut candidates = std::mem::take(&mut self.waiting).into_iter();
        for mut active in candidates.by_ref() {
            let items = &active.arrival.job.items;
            let missing = self.missing(items);
            let has_room = self.cache.has_room_for(items.iter().map(|item| item.id.as_str()));
            if pass.requests >= requests_max || !has_room {
                // Those behind are not even asked for.
                still_waiting.push(active);
                break;
            }
            if self.is_available(&mut active).await {
                self.admit(&mut active, &missing, pass);
                self.running.push(active);
            } else {
                still_waiting.push(active);
            }
        }
        still_waiting.extend(candidates);
        self.waiting = still_waiting;
    }

    /// The distinct items that the engine's own cache lacks.
    fn missing(&self, items: &[Item]) -> Vec<Item> {
        let mut seen = BTreeSet::new();
        let mut missing = Vec::new();
        for item in items {
            if !self.cache.holds(&item.id) && seen.insert(&item.id) {
                missing.push(item.clone());
            }
        }
        missing
    }

    async fn is_available(&self, active: &mut Active) -> bool {
        let items = item_requests(&active.arrival.job.items);
        active.asked.get_or_insert(self.host.clock.now());
        let availability = self.instance.ensure_available(&active.name, &items).await;
        let waits = availability == Some(Availability::Wait);
        if waits && !active.told_to_wait {
            active.told_to_wait = true;
            self.host.record(Event::Waiting { request: active.arrival.job.request });
        }
        !waits
    }

    /// Schedules a prefill: what is promised is loaded, the rest is encoded.
    fn admit(&mut self, active: &mut Active, missing: &[Item], pass: &mut Pass) {
        let request = active.arrival.job.request;
        // What the engine has already is held first, so that it is not what makes room.
        for item in active.arrival.job.items.iter().filter(|item| !missing.contains(item)) {
            self.cache.allocate(&item.id, &active.name);
        }
        for item in missing {
            let key = self.host.world.key(self.instance.model, &item.id);
            let key = self.host.world.short(key.as_str());
            let promised = self.instance.scheduler_call(|s| s.has_item(&item.id)) == Some(true);
            if promised {
                self.host.record(Event::Hit { request, key });
                pass.loads.insert(item.id.clone(), item.rows);
            } else {
                let asked = active.asked.unwrap_or(Time::ZERO);
                let reason = self.reason(&active.name, &item.id);
                self.host.record(Event::Miss { request, key, reason, asked });
                pass.encodes.push(item.clone());
            }
            self.cache.allocate(&item.id, &active.name);
            self.instance.scheduler_call(|s| s.allocated(&active.name, &item.id));
        }
        pass.requests += 1;
        active.steps_left = active.steps_left.max(1);
    }

    /// Why the connector declined an item of a request.
    fn reason(&self, request: &str, item: &str) -> String {
        match self.instance.scheduler_call(|scheduler| scheduler.decision(request, item)) {
            None => "no connector".to_owned(),
            Some(Some(ItemDecision::Local(reason))) => reason.to_string(),
            // After a preemption the connector learns only with the next step what the engine has freed.
            Some(_) => "not asked for".to_owned(),
        }
    }

    /// The workers' part of a step: loads on every rank, each acknowledged as it ends, and local encodes.
    async fn execute(&mut self, pass: &Pass, step: Option<Step>) {
        let mut again = Vec::new();
        if let Some(step) = step {
            let mut loads = ranks::load(&self.host, self.instance.workers(), &step);
            while let Some(mut loaded) = loads.recv().await {
                again.append(&mut loaded.save_again);
                // The end of a request may come while the step that copies for it is under way.
                self.drop_aborted();
                self.take(pass, loaded);
            }
        }
        for item in again {
            self.instance.save_again(&self.cache, &item);
        }
        self.keep_promises(pass);
        self.encode(pass).await;
    }

    /// Takes what a rank has loaded, and acknowledges it to the scheduler.
    fn take(&mut self, pass: &Pass, loaded: Loaded) {
        let rank = loaded.rank;
        let mut delivered: Vec<OrderId> = loaded.done;
        for Delivered { identifier, result } in loaded.items {
            let key = self.host.world.key(self.instance.model, &identifier);
            let key = self.host.world.short(key.as_str());
            match result {
                Ok((tensor, order)) => {
                    let rows = pass.loads.get(&identifier).copied();
                    self.check(key, rank, &identifier, rows, &tensor);
                    self.cache.fill(&identifier, rank, tensor);
                    delivered.extend(order);
                }
                Err(reason) => {
                    self.host.record(Event::NotDelivered { key, rank, reason });
                }
            }
        }
        self.unheard.push((rank, delivered));
        if !self.host.world.plan.engine.schedules_ahead {
            self.hear();
        }
    }

    /// The scheduler hears what the ranks have acknowledged.
    fn hear(&mut self) {
        for (rank, delivered) in std::mem::take(&mut self.unheard) {
            self.instance.scheduler_call(|scheduler| scheduler.acknowledge(rank, &delivered));
        }
    }

    /// Compares a delivered tensor with what its producer made. What is delivered again has no request that
    /// says how many rows it expects.
    fn check(&self, key: String, rank: u32, item: &str, rows: Option<u64>, tensor: &SimTensor) {
        let world = &self.host.world;
        let spec = tensor.spec();
        let expected = rows.map_or(spec, |rows| world.spec(rows));
        let models = (self.instance.model, world.namespaces.len() as u32);
        let bytes = tensor.bytes(self.host.clock.now());
        let check = world.contents.check(models, item, expected, (spec, &bytes));
        self.host.record(Event::Delivered { key, rank, spec, check });
    }

    /// The engine dies for a promised item that is not there.
    fn keep_promises(&self, pass: &Pass) {
        for item in pass.loads.keys() {
            for (rank, _) in (0..).zip(self.instance.workers()) {
                if self.cache.tensor(item, rank).is_none() {
                    let reason = format!("{item} was promised and is not there on rank {rank}");
                    self.host.record(Event::EngineDied { reason });
                }
            }
        }
    }

    /// Encodes what was declined, and saves it where the role says so.
    async fn encode(&mut self, pass: &Pass) {
        let world = self.host.world.clone();
        let mut busy_until = self.host.clock.now();
        for item in &pass.encodes {
            busy_until = self.instance.device.launch(busy_until, world.encode_time(item.rows));
            let spec = world.spec(item.rows);
            let bytes = world.contents.of(self.instance.model, &item.id, spec.bytes());
            let tensor = SimTensor::new(spec, bytes, busy_until);
            for rank in 0..world.plan.topology.tensor_parallel {
                self.cache.fill(&item.id, rank, tensor.clone());
            }
            if world.plan.connector.prefill_saves {
                self.instance.save(&item.id, &tensor, SimEvent(busy_until));
            }
        }
        self.host.clock.sleep_until(busy_until).await;
        if world.plan.connector.prefill_saves {
            self.instance.wait_for_save(Duration::from_millis(world.plan.engine.wait_ms)).await;
        }
    }

    fn drop_aborted(&mut self) {
        for list in [&mut self.waiting, &mut self.running] {
            let (gone, stay): (Vec<_>, Vec<_>) =
                std::mem::take(list).into_iter().partition(|active| active.arrival.is_aborted());
            *list = stay;
            for active in gone {
                self.cache.release(&active.name);
                self.instance.scheduler_call(|s| s.request_finished(&active.name));
            }
        }
    }

    fn end(&mut self, name: &str) {
        self.cache.release(name);
        self.instance.scheduler_call(|scheduler| scheduler.request_finished(name));
    }
}
