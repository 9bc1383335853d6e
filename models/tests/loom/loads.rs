//! Looking up, loading and promising: the production fetcher on the checker's threads.
//!
//! The executor's thread runs the driver and everything it starts; the model's own threads are the engine's
//! scheduler and its workers. The engine asks again as long as it is told to wait, as vLLM's scheduler does.

use loom::thread;
use springtide::{
    connector::{
        Availability, Config, Header, ItemRequest, LoadOrder, LoadTarget, Namespace, Proof, Role,
        Scheduler, Worker,
    },
    env::{Key, Time},
    pool::Mapper,
};
use springtide_models::{
    executor::block_on,
    world::{Gate, ModelClock, ModelEnv, ModelStore, World, config, tensor},
};

/// The items of these models by name, with what their bytes are.
const ITEMS: [(&str, u8); 2] = [("a", 1), ("b", 2)];

/// A consumer's scheduler and what it runs in.
struct Consumer {
    world: World,
    config: Config,
    scheduler: Scheduler<ModelEnv>,
}

impl Consumer {
    /// A started scheduler over a store that has every item, with a pool that holds one and has `resident`
    /// in it. What follows is explored.
    fn start(ranks: u32, store: ModelStore, resident: Option<&str>) -> Self {
        loom::stop_exploring();
        let config = Config { tensor_parallel: ranks, ..config(Role::Consumer, 1) };
        let namespace = Namespace::new(&config.namespace);
        for (identifier, fill) in ITEMS {
            let key = namespace.key(identifier);
            store.insert(key.clone(), object(&namespace, &key, fill));
        }
        let world = World::start(1, ModelClock::frozen(), store);
        let scheduler = block_on(Scheduler::start(world.env.clone(), config.clone())).unwrap();
        if let Some(identifier) = resident {
            assert!(wait_for(&scheduler, "before", identifier));
            scheduler.request_finished("before");
        }
        loom::explore();
        Self { world, config, scheduler }
    }

    /// A worker of the engine that copies from the scheduler's region.
    fn worker(&self) -> Worker<ModelEnv> {
        let mapper: Option<Mapper> = self.scheduler.mapper();
        block_on(Worker::start(self.world.env.clone(), self.config.clone(), mapper)).unwrap()
    }

    /// Drains, and gives everything back: the counters add up, and no pin or transfer is left.
    fn close(self) {
        let report = block_on(self.scheduler.close(Time::NEVER));
        assert_eq!((report.abandoned, report.leaked_bytes), (0, 0), "{report:?}");
        let counters = self.scheduler.counters();
        assert_eq!(counters.check(), Ok(()));
        assert_eq!(counters.waiting, 0, "{counters:?}");
        let pool = self.scheduler.pool().unwrap().clone();
        drop(self.scheduler);
        self.world.stop();
        pool.verify().unwrap();
        let usage = pool.usage();
        assert_eq!((usage.filling, usage.in_flight, usage.pinned, usage.quarantined), (0, 0, 0, 0));
    }
}

fn object(namespace: &Namespace, key: &Key, fill: u8) -> Vec<u8> {
    let header = Header::new(key, namespace.spec(1).unwrap(), Proof::None);
    [header.encode().as_slice(), &tensor(fill).to_vec()].concat()
}

fn ask(scheduler: &Scheduler<ModelEnv>, request: &str, identifier: &str) -> Availability {
    scheduler
        .ensure_available(request, &[ItemRequest { identifier: identifier.to_owned(), rows: 1 }])
}

/// Asks for an item as long as the scheduler says to wait; whether it is promised then.
fn wait_for(scheduler: &Scheduler<ModelEnv>, request: &str, identifier: &str) -> bool {
    while ask(scheduler, request, identifier) == Availability::Wait {
        thread::yield_now();
    }
    scheduler.has_item(identifier)
}

/// Takes a promised item into a step.
fn order(scheduler: &Scheduler<ModelEnv>, request: &str, identifier: &str) -> Vec<LoadOrder> {
    scheduler.allocated(request, identifier);
    scheduler.build_step(&[]).orders
}

/// Copies orders to the device; the bytes that arrived.
fn copy(worker: &Worker<ModelEnv>, orders: Vec<LoadOrder>) -> Vec<Vec<u8>> {
    let targets = orders.into_iter().map(|order| (order, tensor(0)));
    let targets: Vec<_> = targets.collect();
    let tensors: Vec<_> = targets.iter().map(|(_, tensor)| tensor.clone()).collect();
    let loads = targets.into_iter().map(|(order, tensor)| LoadTarget { order, tensor, free: () });
    for delivery in block_on(worker.load(loads.collect())) {
        assert_eq!(delivery.result, Ok(()), "a promised item was not delivered");
    }
    tensors.iter().map(|tensor| tensor.to_vec()).collect()
}

model! {
    /// A load reaches the request that asked for it: no wake-up is lost between the engine and the tasks.
    fn load_against_engine_preempt3() {
        let fetched = Gate::closed();
        let store = ModelStore::empty().with_gets_that_open(fetched.clone());
        let consumer = Consumer::start(1, store, None);
        assert_eq!(ask(&consumer.scheduler, "r", "a"), Availability::Wait);
        // Without being asked again, which would wake the tasks again.
        block_on(fetched.pass());
        assert!(wait_for(&consumer.scheduler, "r", "a"), "the store has it");
        consumer.scheduler.request_finished("r");
        consumer.close();
    }
}

model! {
    /// An item is looked up and pinned, or evicted for another; never both. What was promised is delivered,
    /// whatever is fetched meanwhile.
    fn resident_lookup_against_evict_preempt2() {
        let consumer = Consumer::start(1, ModelStore::empty(), Some("a"));
        let scheduler = consumer.scheduler.clone();
        // Its fetch evicts the resident, or finds it pinned.
        let other = thread::spawn(move || ask(&scheduler, "other", "b"));
        ask(&consumer.scheduler, "r", "a");
        other.join().unwrap();
        let worker = consumer.worker();
        if consumer.scheduler.has_item("a") {
            let orders = order(&consumer.scheduler, "r", "a");
            let ids: Vec<_> = orders.iter().map(|order| order.id).collect();
            assert_eq!(copy(&worker, orders), [tensor(1).to_vec()]);
            consumer.scheduler.acknowledge(0, &ids);
        }
        for request in ["r", "other"] {
            consumer.scheduler.request_finished(request);
        }
        drop(worker);
        consumer.close();
    }
}

model! {
    /// Two requests for one item share one fetch, and each has its own pin.
    fn same_item_for_two_requests_preempt2() {
        let consumer = Consumer::start(1, ModelStore::empty(), None);
        let scheduler = consumer.scheduler.clone();
        let other = thread::spawn(move || ask(&scheduler, "other", "a"));
        ask(&consumer.scheduler, "r", "a");
        other.join().unwrap();
        for request in ["r", "other"] {
            assert!(wait_for(&consumer.scheduler, request, "a"), "the store has it");
        }
        let counters = consumer.scheduler.counters();
        assert_eq!((counters.exists, counters.loaded, counters.hits), (1, 1, 2));
        for request in ["r", "other"] {
            consumer.scheduler.request_finished(request);
        }
        consumer.close();
    }
}

model! {
    /// An order's memory stays until every rank has acknowledged it, and is given back then.
    fn acknowledge_against_evict_preempt2() {
        let consumer = Consumer::start(2, ModelStore::empty(), Some("a"));
        assert!(wait_for(&consumer.scheduler, "r", "a"));
        let orders = order(&consumer.scheduler, "r", "a");
        consumer.scheduler.request_finished("r");
        let worker = consumer.worker();
        let scheduler = consumer.scheduler.clone();
        let rank = thread::spawn(move || {
            let ids: Vec<_> = orders.iter().map(|order| order.id).collect();
            assert_eq!(copy(&worker, orders), [tensor(1).to_vec()]);
            scheduler.acknowledge(1, &ids);
        });
        let orders = consumer.scheduler.build_step(&[]).orders;
        let ids: Vec<_> = orders.iter().map(|order| order.id).collect();
        consumer.scheduler.acknowledge(0, &ids);
        ask(&consumer.scheduler, "other", "b");
        rank.join().unwrap();
        assert_eq!(consumer.scheduler.gauges().orders, 0);
        consumer.scheduler.request_finished("other");
        consumer.close();
    }
}

model! {
    /// A shutdown decides everything that waits, drains what runs and refuses what comes later.
    fn close_against_load_preempt2() {
        let consumer = Consumer::start(1, ModelStore::empty(), None);
        let scheduler = consumer.scheduler.clone();
        let shutdown = thread::spawn(move || block_on(scheduler.close(Time::NEVER)));
        wait_for(&consumer.scheduler, "r", "a");
        consumer.scheduler.request_finished("r");
        let report = shutdown.join().unwrap();
        assert_eq!((report.abandoned, report.leaked_bytes), (0, 0), "{report:?}");
        consumer.close();
    }
}
