//! Saving under eight threads, with a store that fails, loses calls and leaves their end unknown.

use std::{collections::BTreeMap, time::Duration};

use shuttle::thread;
use springtide::{
    connector::{Config, Role, SaveConfig, SaveEntry, SaveOutcome, Ticket, Worker},
    env::{Clock, Time},
};
use springtide_models::{
    executor::block_on,
    world::{ModelClock, ModelEnv, ModelStore, World, at, config, tensor},
};

use crate::{below, fault, impatient};

const ENGINES: u64 = 3;
const SAVES: u64 = 3;

fn limits() -> Config {
    let mut config = impatient(config(Role::Producer, 3));
    config.saves = SaveConfig {
        queue_items_max: 3,
        batch_items_max: 2,
        attempts_max: 3,
        ..SaveConfig::default()
    };
    config
}

/// Saves some items and waits for some of them, as an engine's steps do: the tickets, and what was reported.
fn engine(worker: &Worker<ModelEnv>, clock: &ModelClock) -> (Vec<Ticket>, Vec<SaveEntry>) {
    let (mut tickets, mut entries) = (Vec::new(), Vec::new());
    for _ in 0..SAVES {
        let identifier = ["a", "b", "c", "d"][below(4) as usize];
        tickets.extend(worker.save(identifier, tensor(7), ()));
        if below(2) == 0 {
            let deadline = clock.now() + Duration::from_millis(below(100));
            entries.extend(block_on(worker.wait_for_save(deadline)).entries);
        }
    }
    (tickets, entries)
}

/// Three engines save with a process of three threads, while time goes on and, perhaps, somebody shuts the
/// process down.
fn engines_save(store: ModelStore, shutdown: bool) {
    let clock = ModelClock::by_hand();
    let world = World::start(3, clock.clone(), store);
    let worker = block_on(Worker::start(world.env.clone(), limits(), None)).unwrap();
    let engines: Vec<_> = (0..ENGINES)
        .map(|_| {
            let (worker, clock) = (worker.clone(), clock.clone());
            thread::spawn(move || engine(&worker, &clock))
        })
        .collect();
    let time = crate::Time::start(clock.clone());
    if shutdown {
        block_on(worker.close(at(200)));
    }
    let (mut tickets, mut entries) = (Vec::new(), Vec::new());
    for engine in engines {
        let (opened, reported) = engine.join().unwrap();
        tickets.extend(opened);
        entries.extend(reported);
    }
    entries.extend(block_on(worker.wait_for_save(Time::ZERO)).entries);
    check_reports(&worker, &tickets, &entries);
    let report = block_on(worker.close(clock.now() + Duration::from_secs(10)));
    assert_eq!(report.leaked_bytes, 0, "{report:?}");
    assert!(report.abandoned == 0 || shutdown, "{report:?}");
    time.stop();
    check_rest(world, worker);
}

/// Every ticket was reported, with one outcome; more than once only to waits that ran side by side. The
/// counters say the same.
fn check_reports(worker: &Worker<ModelEnv>, tickets: &[Ticket], entries: &[SaveEntry]) {
    let mut outcomes = BTreeMap::new();
    for entry in entries {
        let first = *outcomes.entry(entry.ticket).or_insert(entry.outcome);
        assert_eq!(first, entry.outcome, "{} ended twice", entry.ticket);
    }
    assert_eq!(outcomes.len(), tickets.len());
    assert!(tickets.iter().all(|ticket| outcomes.contains_key(ticket)), "{tickets:?} {entries:?}");
    let count = |wanted| outcomes.values().filter(|outcome| **outcome == wanted).count() as u64;
    let counters = worker.counters();
    assert_eq!(counters.check(), Ok(()));
    assert_eq!((counters.opened, counters.open), (tickets.len() as u64, 0));
    assert_eq!(counters.stored, count(SaveOutcome::Stored));
    assert_eq!(counters.timed_out, count(SaveOutcome::TimedOut));
}

/// Nothing is left in use when the process has ended and its client is fenced.
fn check_rest(world: World, worker: Worker<ModelEnv>) {
    let pool = worker.pool().unwrap().clone();
    drop(worker);
    world.stop();
    pool.release_quarantine();
    pool.verify().unwrap();
    pool.scrub().unwrap();
    let usage = pool.usage();
    assert_eq!((usage.filling, usage.in_flight, usage.pinned, usage.quarantined), (0, 0, 0, 0));
}

campaign! {
    200 fn engines_save_to_a_good_store() {
        engines_save(ModelStore::empty(), false);
    }
}

campaign! {
    200 fn engines_save_to_a_faulty_store() {
        engines_save(ModelStore::empty().with_faults(fault), false);
    }
}

campaign! {
    200 fn engines_save_while_the_process_shuts_down() {
        engines_save(ModelStore::empty().with_faults(fault), true);
    }
}
