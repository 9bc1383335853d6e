//! Loading under seven threads: engines that ask, ranks that copy, a store that fails, a pool too small.

use std::time::Duration;

use shuttle::thread;
use springtide::{
    connector::{
        Availability, Config, Header, ItemRequest, LoadTarget, Namespace, Proof, Role, Scheduler,
        Worker,
    },
    env::Clock,
};
use springtide_models::{
    executor::block_on,
    world::{ModelClock, ModelEnv, ModelStore, World, at, config, tensor},
};

use crate::{Time, below, fault, impatient};

const ITEMS: [&str; 4] = ["a", "b", "c", "d"];
const REQUESTS: u64 = 3;

/// What the bytes of an item are.
fn fill(identifier: &str) -> u8 {
    identifier.as_bytes()[0]
}

/// A store that has every item but the last.
fn store(namespace: &Namespace) -> ModelStore {
    let store = ModelStore::empty();
    for identifier in &ITEMS[..3] {
        let key = namespace.key(identifier);
        let header = Header::new(&key, namespace.spec(1).unwrap(), Proof::None).encode();
        store.insert(key, [header.as_slice(), &tensor(fill(identifier)).to_vec()].concat());
    }
    store
}

/// One engine's scheduler and its worker: asks, takes what is promised into steps, copies, acknowledges.
struct Engine {
    name: u64,
    scheduler: Scheduler<ModelEnv>,
    worker: Worker<ModelEnv>,
}

impl Engine {
    fn run(&self) {
        for number in 0..REQUESTS {
            let request = format!("{}-{number}", self.name);
            self.serve(&request, ITEMS[below(4) as usize]);
            self.scheduler.request_finished(&request);
        }
    }

    fn serve(&self, request: &str, identifier: &str) {
        let items = [ItemRequest { identifier: identifier.to_owned(), rows: 1 }];
        while self.scheduler.ensure_available(request, &items) == Availability::Wait {
            if below(4) == 0 {
                // The client has gone.
                return;
            }
            thread::yield_now();
        }
        // The scheduler answers for the request that was asked for last, which may be the other engine's.
        if self.scheduler.has_item(identifier) {
            self.scheduler.allocated(request, identifier);
        }
        let orders = self.scheduler.build_step(&[identifier.to_owned()]).orders;
        for order in orders {
            let (id, wanted) = (order.id, fill(&order.identifier));
            let target = tensor(0);
            let load = LoadTarget { order, tensor: target.clone(), free: () };
            let deliveries = block_on(self.worker.load(vec![load]));
            // Stale only if the other engine's worker has acknowledged it meanwhile.
            if deliveries[0].result.is_ok() {
                assert_eq!(target.to_vec(), tensor(wanted).to_vec(), "foreign bytes");
            }
            self.scheduler.acknowledge(0, &[id]);
        }
    }
}

/// Two engines load through a process of two threads, while time goes on and, perhaps, somebody shuts the
/// process down.
fn engines_load(faulty: bool, shutdown: bool) {
    let config: Config = impatient(config(Role::Consumer, 2));
    let store = store(&Namespace::new(&config.namespace));
    let store = if faulty { store.with_faults(fault) } else { store };
    let clock = ModelClock::by_hand();
    let world = World::start(2, clock.clone(), store);
    let scheduler = block_on(Scheduler::start(world.env.clone(), config.clone())).unwrap();
    let engines: Vec<_> = (0..2)
        .map(|name| {
            let mapper = scheduler.mapper();
            let worker = Worker::start(world.env.clone(), config.clone(), mapper);
            let worker = block_on(worker).unwrap();
            let engine = Engine { name, scheduler: scheduler.clone(), worker };
            thread::spawn(move || engine.run())
        })
        .collect();
    let time = Time::start(clock.clone());
    if shutdown {
        block_on(scheduler.close(at(600)));
    }
    engines.into_iter().for_each(|engine| engine.join().unwrap());
    let report = block_on(scheduler.close(clock.now() + Duration::from_secs(10)));
    // A second close repeats the report of the first, whose drain may have run out of time.
    let abandoned = if shutdown { report.abandoned } else { 0 };
    assert_eq!((report.abandoned, report.leaked_bytes), (abandoned, 0), "{report:?}");
    time.stop();
    check_rest(world, scheduler);
}

/// The counters add up, and nothing is left in use.
fn check_rest(world: World, scheduler: Scheduler<ModelEnv>) {
    let counters = scheduler.counters();
    assert_eq!(counters.check(), Ok(()));
    assert_eq!((counters.waiting, counters.orders), (0, counters.acknowledged), "{counters:?}");
    let gauges = scheduler.gauges();
    assert_eq!((gauges.requests, gauges.orders), (0, 0), "{gauges:?}");
    let pool = scheduler.pool().unwrap().clone();
    drop(scheduler);
    world.stop();
    pool.release_quarantine();
    pool.verify().unwrap();
    pool.scrub().unwrap();
    let usage = pool.usage();
    assert_eq!((usage.filling, usage.in_flight, usage.pinned, usage.quarantined), (0, 0, 0, 0));
}

campaign! {
    200 fn engines_load_from_a_good_store() {
        engines_load(false, false);
    }
}

campaign! {
    200 fn engines_load_from_a_faulty_store() {
        engines_load(true, false);
    }
}

campaign! {
    200 fn engines_load_while_the_process_shuts_down() {
        engines_load(true, true);
    }
}
