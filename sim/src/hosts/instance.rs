//! One serving instance's connector: a scheduler and a worker a rank, as vLLM has them, with what the
//! simulator knows about them.
//!
//! A connector that does not start leaves its engine degraded, not dead: it encodes everything and saves
//! nothing.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use springtide::{
    backend::{Link, LinkState},
    connector::{
        Availability, CloseReport, Config, ItemRequest, LoadConfig, LoadCounters, Role, SaveConfig,
        SaveCounters, StartError,
    },
    env::{Clock, Env},
    pool::{Backing, EvictionPolicy, Pool, PoolConfig},
};
use tokio::sync::Notify;

use super::{cache::EncoderCache, store::StoreClient};
use crate::{
    event::Event,
    plan::Eviction,
    subjects::{SaveReported, SchedulerSide, Start, WorkerSide},
    world::{
        desk::Ambush,
        device::{SimDevice, SimEvent, SimTensor},
        host::{Host, SimEnv},
        store::Tally,
        way::Way,
    },
};

/// What the injector and the observers hold of an instance.
#[derive(Clone)]
pub struct Registered {
    /// The scheduler's side, unless the connector did not start.
    pub scheduler: Option<SchedulerSide>,
    /// The workers' side, by rank.
    pub workers: Vec<WorkerSide>,
    /// What was asked of the store: by the scheduler, and by each worker.
    pub tallies: Vec<Arc<Tally>>,
    /// The links to the store, if there are any: the scheduler's, then the workers'.
    pub links: Vec<Link<StoreClient>>,
    /// Tickets opened, as the engine counted them.
    pub tickets: Arc<std::sync::atomic::AtomicU64>,
    /// Tells the engine to end.
    pub closing: Closing,
    /// Tells the connector to shut down while its engine goes on.
    pub shutdown: Closing,
    /// How the shutdowns went.
    pub closed: Arc<Mutex<Vec<CloseReport>>>,
}

impl Registered {
    /// The pools of the instance, with who owns each.
    pub fn pools(&self) -> Vec<(&'static str, Pool)> {
        let scheduler = self.scheduler.as_ref().and_then(SchedulerSide::pool);
        let worker = self.workers.first().and_then(WorkerSide::pool);
        let named = |name| move |pool: &Pool| (name, pool.clone());
        scheduler.map(named("scheduler")).into_iter().chain(worker.map(named("worker"))).collect()
    }

    /// Whether what the links say of the store can be: it comes up before it goes down, and is up or not.
    ///
    /// # Errors
    /// The numbers that contradict each other, in words.
    pub fn check_links(&self) -> Result<(), String> {
        for link in &self.links {
            // A link that is closed was one or the other.
            let (counters, state) = (link.counters(), link.state());
            let up = counters.came_up.checked_sub(counters.went_down);
            let agrees = match state {
                LinkState::Up => up == Some(1),
                LinkState::Absent | LinkState::Down => up == Some(0),
                LinkState::Closed => up.is_some_and(|up| up <= 1),
            };
            if !agrees {
                return Err(format!("a link that is {} has {counters:?}", state.name()));
            }
        }
        Ok(())
    }

    /// Counters of rank 0 and of the scheduler.
    pub fn counters(&self) -> (SaveCounters, LoadCounters) {
        let saves = self.workers.first().and_then(WorkerSide::counters).unwrap_or_default();
        let loads = self.scheduler.as_ref().and_then(SchedulerSide::counters).unwrap_or_default();
        (saves, loads)
    }
}

/// A signal to end.
#[derive(Clone, Debug, Default)]
pub struct Closing(Arc<(AtomicBool, Notify)>);

impl Closing {
    /// Gives the signal.
    pub fn signal(&self) {
        self.0.0.store(true, Ordering::Relaxed);
        self.0.1.notify_waiters();
    }

    /// Whether it was given.
    pub fn is_signalled(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Ends with `other` or the signal; true for `other`.
    pub async fn or(&self, other: impl Future<Output = ()>) -> bool {
        let mut signalled = std::pin::pin!(self.0.1.notified());
        signalled.as_mut().enable();
        if self.is_signalled() {
            return false;
        }
        tokio::select! {
            biased;
            () = signalled => false,
            () = other => true,
        }
    }
}

/// The connector of one instance.
pub struct Instance {
    host: Host,
    /// The model that the instance serves.
    pub model: u32,
    /// Its device.
    pub device: SimDevice,
    registered: Registered,
    /// Keys of open tickets.
    keys: BTreeMap<String, String>,
}

impl Instance {
    /// Starts the connector of this host.
    pub async fn start(host: &Host) -> Self {
        let model = host.world.model_of(host);
        let role = role(host);
        let mut registered = Registered {
            scheduler: None,
            workers: Vec::new(),
            tallies: Vec::new(),
            links: Vec::new(),
            tickets: Arc::default(),
            closing: Closing::default(),
            shutdown: Closing::default(),
            closed: Arc::default(),
        };
        if let Err(error) = connect(host, role, model, &mut registered).await {
            (registered.scheduler, registered.workers) = (None, Vec::new());
            host.record(Event::Degraded { reason: error.to_string() });
        }
        let name = host.process.host().to_owned();
        host.world.instances().insert(name, registered.clone());
        host.process.spawn(Box::pin(shut_down(host.clone(), registered.clone())));
        let device = SimDevice::new(host.process.clone(), host.world.desk.clone());
        Self { host: host.clone(), model, device, registered, keys: BTreeMap::new() }
    }

    /// Calls the scheduler's side, if there is one.
    pub fn scheduler_call<R>(&self, call: impl FnOnce(&SchedulerSide) -> R) -> Option<R> {
        self.registered.scheduler.as_ref().map(call)
    }

    /// Asks for the items that a request needs, if there is a connector to ask.
    pub async fn ensure_available(
        &self,
        request: &str,
        items: &[ItemRequest],
    ) -> Option<Availability> {
        match &self.registered.scheduler {
            Some(scheduler) => Some(scheduler.ensure_available(request, items).await),
            None => None,
        }
    }

    /// The workers' side.
    pub fn workers(&self) -> &[WorkerSide] {
        &self.registered.workers
    }

    /// Ends with `work`, true, or when the instance is to end, false.
    pub async fn more(&self, work: impl Future<Output = ()>) -> bool {
        self.registered.closing.or(work).await
    }

    /// Hands an item to every rank's worker.
    pub fn save(&mut self, item: &str, tensor: &SimTensor, ready: SimEvent) {
        let twice =
            self.host.world.desk.hit(self.host.process.host(), self.host.clock.now(), |a| {
                (*a == Ambush::DoubleSave).then_some(())
            });
        let workers = self.registered.workers.iter().enumerate();
        let times = 1 + usize::from(twice.is_some());
        for (rank, worker) in workers.flat_map(|worker| std::iter::repeat_n(worker, times)) {
            let Some(ticket) = worker.save(item, tensor.clone(), ready) else { continue };
            if rank > 0 {
                let reason = format!("rank {rank} opened a ticket for {item}");
                self.host.record(Event::EngineDied { reason });
            }
            self.registered.tickets.fetch_add(1, Ordering::Relaxed);
            let key = self.host.world.short(self.host.world.key(self.model, item).as_str());
            self.keys.insert(ticket.clone(), key.clone());
            self.host.record(Event::SaveOpened { key, ticket });
        }
    }

    /// Hands an item that the connector named once more to the workers, if the engine's own cache holds it.
    pub fn save_again(&mut self, cache: &EncoderCache, item: &str) {
        if let Some(tensor) = cache.tensor(item, 0) {
            self.save(item, tensor, SimEvent(tensor.written_at()));
        }
    }

    /// The end of a step: waits for the saves, reports how each ended.
    pub async fn wait_for_save(&mut self, limit: Duration) {
        let Some(worker) = self.registered.workers.first() else { return };
        let deadline = self.host.clock.now() + limit;
        self.host.record(Event::WaitBegan { deadline });
        let report = worker.wait_for_save(&self.host, deadline).await;
        self.host.record(Event::WaitEnded { deadline });
        for SaveReported { ticket, key, end } in report {
            if self.keys.remove(&ticket).as_ref() != Some(&key) {
                let reason = format!("the report names {ticket} for {key}, which was not open");
                self.host.record(Event::EngineDied { reason });
            }
            self.host.record(Event::SaveEnded { key, ticket, end });
        }
        // All tickets were opened before the wait, so its report has to name each.
        let unreported = std::mem::take(&mut self.keys);
        if let Some((ticket, key)) = unreported.into_iter().next() {
            self.host.record(Event::NotReported { key, ticket });
        }
    }

    /// The end of the instance: shuts the connector down, unless that has been done.
    pub async fn close(&self) {
        if !self.registered.shutdown.is_signalled() {
            close(&self.host, &self.registered).await;
        }
    }
}

/// Shuts the connector down when it is told to, whatever its engine does.
async fn shut_down(host: Host, registered: Registered) {
    if !registered.shutdown.or(std::future::pending()).await {
        close(&host, &registered).await;
    }
}

/// Shuts an instance's connector down within half of the plan's close phase, the workers after the scheduler.
async fn close(host: &Host, registered: &Registered) {
    let limit = Duration::from_millis(host.world.plan.phases.close_ms / 2);
    let deadline = host.clock.now() + limit;
    host.record(Event::CloseBegan { deadline });
    let mut reports = Vec::new();
    if let Some(scheduler) = &registered.scheduler {
        reports.push(scheduler.close(deadline).await);
    }
    for worker in &registered.workers {
        reports.push(worker.close(deadline).await);
    }
    host.record(Event::CloseEnded { deadline });
    registered.closed.lock().expect("no panic while held").extend(reports);
}

fn role(host: &Host) -> Role {
    match host.process.host().starts_with("encoder") {
        true => Role::Producer,
        false if host.world.plan.connector.prefill_saves => Role::Both,
        false => Role::Consumer,
    }
}

/// Starts the scheduler and the workers, each with a store client of its own.
async fn connect(
    host: &Host,
    role: Role,
    model: u32,
    registered: &mut Registered,
) -> Result<(), StartError> {
    let mut start = |part, rank| {
        let way = Way::open(host, part);
        registered.links.extend(way.link().cloned());
        let env = SimEnv::new(host.clone(), way);
        registered.tallies.push(Arc::clone(env.store().tally()));
        Start { host: host.clone(), env, config: config(host, role, model, rank) }
    };
    let scheduler = SchedulerSide::start(start(0, 0)).await?;
    let mapper = scheduler.mapper();
    registered.scheduler = Some(scheduler);
    for rank in 0..host.world.plan.topology.tensor_parallel {
        let worker = WorkerSide::start(start(1 + rank, rank), mapper.clone()).await?;
        registered.workers.push(worker);
    }
    Ok(())
}

/// The connector's configuration by the plan.
fn config(host: &Host, role: Role, model: u32, rank: u32) -> Config {
    let world = &host.world;
    let plan = &world.plan.connector;
    let ms = Duration::from_millis;
    let bytes = match role {
        Role::Producer => plan.encoder_pool_bytes,
        Role::Consumer | Role::Both => plan.prefill_pool_bytes,
    };
    Config {
        role,
        namespace: world.namespaces[model as usize].clone(),
        rank,
        tensor_parallel: world.plan.topology.tensor_parallel,
        encode_once: false,
        pool: PoolConfig {
            bytes,
            unit_payload: plan.unit_payload_bytes as u32,
            max_extents: plan.extents_max as usize,
            backing: Backing::Anonymous,
            eviction: match plan.eviction {
                Eviction::Fifo => EvictionPolicy::Fifo,
                Eviction::Lru => EvictionPolicy::Lru,
                Eviction::S3Fifo => EvictionPolicy::S3Fifo,
            },
            quarantine_max: bytes * plan.quarantine_permille / 1000,
        },
        saves: SaveConfig {
            deadline: ms(plan.save_deadline_ms),
            batch_bytes_max: plan.batch_bytes_max,
            batch_items_max: plan.batch_items_max as usize,
            in_flight_bytes_max: plan.in_flight_bytes_max,
            queue_items_max: plan.queue_items_max as usize,
            retry_pause: ms(plan.retry_pause_ms),
            retry_pause_max: ms(plan.retry_pause_ms * 16),
            attempts_max: plan.attempts_max,
        },
        loads: LoadConfig {
            deadline: ms(plan.load_deadline_ms),
            absent_ttl: ms(plan.absent_ttl_ms),
            failed_ttl: ms(plan.failed_ttl_ms),
            retry_pause: ms(plan.retry_pause_ms),
            attempts_max: plan.attempts_max,
            batch_bytes_max: plan.batch_bytes_max,
            batch_items_max: plan.batch_items_max as usize,
            in_flight_bytes_max: plan.in_flight_bytes_max,
            ..LoadConfig::default()
        },
        io_timeout: ms(plan.io_timeout_ms),
        payload_checksum: plan.payload_checksum,
    }
}
