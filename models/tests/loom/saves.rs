//! Saving, waiting and closing: the production uploader on the checker's threads.
//!
//! The executor's thread runs the driver and everything it starts; the others are the engine, the clock and
//! the store's card. What is explored begins when the worker has started.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use loom::thread;
use springtide::{
    connector::{
        Config, DropReason, Role, SaveCounters, SaveEntry, SaveOutcome, SaveReport, Ticket, Worker,
    },
    env::Time,
    pool::Usage,
};
use springtide_models::{
    executor::block_on,
    world::{Gate, ModelClock, ModelEnv, ModelStore, World, at, config, tensor},
};

/// A producer's worker and what it runs in.
struct Producer {
    world: World,
    worker: Worker<ModelEnv>,
}

impl Producer {
    /// A started worker. What follows is explored.
    fn start(config: Config, clock: ModelClock, store: ModelStore) -> Self {
        loom::stop_exploring();
        let world = World::start(1, clock, store);
        let worker = block_on(Worker::start(world.env.clone(), config, None)).unwrap();
        loom::explore();
        Self { world, worker }
    }

    /// With a pool of so many units, at a clock that stands still.
    fn with_units(units: u64) -> Self {
        Self::start(config(Role::Producer, units), ModelClock::frozen(), ModelStore::empty())
    }

    /// Drains, and gives everything back. The counters must add up and nothing may be left in use.
    fn close(self) -> (SaveCounters, Usage) {
        let report = block_on(self.worker.close(Time::NEVER));
        assert_eq!((report.abandoned, report.leaked_bytes), (0, 0), "{report:?}");
        let counters = self.worker.counters();
        assert_eq!(counters.check(), Ok(()));
        assert_eq!(counters.open, 0, "{counters:?}");
        let pool = self.worker.pool().unwrap().clone();
        drop(self.worker);
        // The driver may still be putting away the bytes of the last upload.
        self.world.stop();
        pool.verify().unwrap();
        let usage = pool.usage();
        assert_eq!((usage.filling, usage.in_flight, usage.pinned, usage.quarantined), (0, 0, 0, 0));
        (counters, usage)
    }
}

fn save(worker: &Worker<ModelEnv>, identifier: &str) -> Ticket {
    worker.save(identifier, tensor(7), ()).expect("a producer saves")
}

fn wait(worker: &Worker<ModelEnv>, deadline: Time) -> SaveReport {
    block_on(worker.wait_for_save(deadline))
}

/// What became of a ticket, which the entries list once.
fn outcome(entries: &[SaveEntry], ticket: Ticket) -> SaveOutcome {
    let mut ours = entries.iter().filter(|entry| entry.ticket == ticket);
    let first = ours.next().expect("a report lists every ticket opened before it");
    assert!(ours.next().is_none(), "{ticket} is listed twice: {entries:?}");
    first.outcome
}

model! {
    /// A wait without a deadline ends with the store: no wake-up is lost between the tasks and the engine.
    fn wait_against_store_preempt3() {
        let producer = Producer::with_units(1);
        let ticket = save(&producer.worker, "a");
        let report = wait(&producer.worker, Time::NEVER);
        assert_eq!(outcome(&report.entries, ticket), SaveOutcome::Stored);
        let (counters, usage) = producer.close();
        assert_eq!((counters.stored, counters.puts, usage.resident), (1, 1, usage.total));
    }
}

model! {
    /// A wait ends at its deadline whatever the store does, and a ticket ends once.
    fn wait_against_deadline_and_store_preempt2() {
        let (clock, gate) = (ModelClock::by_hand(), Gate::closed());
        let store = ModelStore::empty().with_puts_behind(gate.clone());
        let producer = Producer::start(config(Role::Producer, 1), clock.clone(), store);
        let ticket = save(&producer.worker, "a");
        let hands = thread::spawn(move || {
            clock.move_to(at(10));
            gate.open();
        });
        let report = wait(&producer.worker, at(10));
        let first = outcome(&report.entries, ticket);
        assert!(matches!(first, SaveOutcome::TimedOut | SaveOutcome::Stored), "{first}");
        hands.join().unwrap();
        let again = wait(&producer.worker, at(10));
        assert!(again.entries.is_empty(), "{ticket} is reported again: {again:?}");
        let (counters, _) = producer.close();
        assert_eq!(counters.stored + counters.timed_out, 1);
        assert_eq!(counters.late, counters.timed_out, "the item became readable all the same");
    }
}

model! {
    /// A wait ends at its deadline although the store does not answer, and the item is stored all the same.
    fn wait_against_silent_store_preempt2() {
        let (clock, gate) = (ModelClock::by_hand(), Gate::closed());
        let store = ModelStore::empty().with_puts_behind(gate.clone());
        let producer = Producer::start(config(Role::Producer, 1), clock.clone(), store);
        let ticket = save(&producer.worker, "a");
        let hands = thread::spawn(move || clock.move_to(at(10)));
        let report = wait(&producer.worker, at(10));
        assert_eq!(outcome(&report.entries, ticket), SaveOutcome::TimedOut);
        hands.join().unwrap();
        gate.open();
        let (counters, usage) = producer.close();
        assert_eq!((counters.timed_out, counters.late, usage.resident), (1, 1, usage.total));
    }
}

model! {
    /// Two who wait at once are both told.
    fn two_waits_against_store_preempt2() {
        let producer = Producer::with_units(1);
        let ticket = save(&producer.worker, "a");
        let worker = producer.worker.clone();
        let other = thread::spawn(move || wait(&worker, Time::NEVER));
        let ours = wait(&producer.worker, Time::NEVER).entries;
        let theirs = other.join().unwrap().entries;
        // Whoever began after the other's report has nothing to wait for.
        assert!(!ours.is_empty() || !theirs.is_empty());
        for entries in [ours, theirs].iter().filter(|entries| !entries.is_empty()) {
            assert_eq!(outcome(entries, ticket), SaveOutcome::Stored);
        }
        producer.close();
    }
}

model! {
    /// What a wait that is given up would have reported is the next one's.
    fn abandoned_wait_against_store_preempt2() {
        let producer = Producer::with_units(1);
        let ticket = save(&producer.worker, "a");
        let mut entries = {
            let mut given_up = pin!(producer.worker.wait_for_save(Time::NEVER));
            match given_up.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(report) => report.entries,
                Poll::Pending => Vec::new(),
            }
        };
        entries.extend(wait(&producer.worker, Time::NEVER).entries);
        assert_eq!(outcome(&entries, ticket), SaveOutcome::Stored);
        producer.close();
    }
}

model! {
    /// Saves of one item at once are one upload, and each has its ticket.
    fn same_item_twice_preempt2() {
        let producer = Producer::with_units(2);
        let worker = producer.worker.clone();
        let other = thread::spawn(move || save(&worker, "a"));
        let ours = save(&producer.worker, "a");
        let theirs = other.join().unwrap();
        let report = wait(&producer.worker, Time::NEVER);
        for ticket in [ours, theirs] {
            assert!(outcome(&report.entries, ticket).is_readable(), "{report}");
        }
        let (counters, _) = producer.close();
        assert_eq!((counters.puts, counters.stored + counters.already_there), (1, 2));
    }
}

model! {
    /// The queue is bounded: a save too many is dropped, says so, and holds no memory.
    fn bounded_queue_preempt2() {
        let gate = Gate::closed();
        let mut limits = config(Role::Producer, 2);
        limits.saves.queue_items_max = 1;
        let store = ModelStore::empty().with_puts_behind(gate.clone());
        let producer = Producer::start(limits, ModelClock::frozen(), store);
        let worker = producer.worker.clone();
        let other = thread::spawn(move || save(&worker, "a"));
        let ours = save(&producer.worker, "b");
        let theirs = other.join().unwrap();
        gate.open();
        let entries = wait(&producer.worker, Time::NEVER).entries;
        let mut ends = [ours, theirs].map(|ticket| outcome(&entries, ticket));
        ends.sort();
        assert_eq!(ends, [SaveOutcome::Stored, SaveOutcome::Dropped(DropReason::QueueFull)]);
        let (counters, usage) = producer.close();
        assert_eq!((counters.puts, usage.resident), (1, usage.total / 2));
    }
}

model! {
    /// A shutdown drains what was accepted and refuses what comes later; it ends, and gives everything back.
    fn close_against_save_preempt2() {
        let producer = Producer::with_units(1);
        let worker = producer.worker.clone();
        let shutdown = thread::spawn(move || block_on(worker.close(Time::NEVER)));
        let ticket = save(&producer.worker, "a");
        let end = outcome(&wait(&producer.worker, Time::NEVER).entries, ticket);
        let closed = SaveOutcome::Dropped(DropReason::Closed);
        assert!(end == closed || end == SaveOutcome::Stored, "{end}");
        let report = shutdown.join().unwrap();
        assert_eq!((report.abandoned, report.leaked_bytes), (0, 0), "{report:?}");
        producer.close();
    }
}
