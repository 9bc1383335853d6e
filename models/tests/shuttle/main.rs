//! The pool and the connector under four to eight threads, where loom cannot go.
//!
//! Shuttle draws schedules at random, uniformly and with few preemptions in unlikely places (PCT). All
//! atomics are sequentially consistent here: what a weak memory may show is loom's part. Every choice of the
//! models themselves is drawn from shuttle too, so that a schedule replays whole.

#![cfg(all(springtide_model, feature = "shuttle", not(feature = "loom")))]

/// A test that runs its body under so many schedules of each kind.
macro_rules! campaign {
    ($executions:literal fn $name:ident() $body:block) => {
        #[test]
        fn $name() {
            springtide_models::campaign::campaign(stringify!($name), $executions, || $body);
        }
    };
}

mod consumer;
mod pool;
mod producer;

use std::time::Duration;

use shuttle::{rand::Rng as _, thread};
use springtide::{connector::Config, env::ErrorCode};
use springtide_model_sync::{Arc, AtomicU64, Ordering};
use springtide_models::world::{Fault, ModelClock, at};

/// A number below `bound`, of shuttle's choice.
fn below(bound: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..bound)
}

/// What goes wrong with an item, if anything.
fn fault() -> Option<Fault> {
    Some(match below(10) {
        0 => Fault::Fails(ErrorCode::NoAvailableHandle),
        1 => Fault::Fails(ErrorCode::RpcTimeout),
        2 => Fault::Fails(ErrorCode::InvalidParams),
        3 => Fault::Uncertain(ErrorCode::TransferFail),
        4 => Fault::Silent,
        _ => return None,
    })
}

/// Calls of the store that get no answer are let go of within the time that a model takes.
fn impatient(config: Config) -> Config {
    Config { io_timeout: Duration::from_millis(300), ..config }
}

/// Time that goes on beside the model's threads.
struct Time {
    stopped: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

impl Time {
    /// A thread that moves the clock in steps of 10 ms.
    fn start(clock: ModelClock) -> Self {
        let stopped = Arc::new(AtomicU64::new(0));
        let until = Arc::clone(&stopped);
        let thread = thread::spawn(move || {
            for step in 1.. {
                if until.load(Ordering::Relaxed) == 1 {
                    return;
                }
                assert!(step < 5_000, "the model takes longer than any of its deadlines");
                clock.move_to(at(step * 10));
                thread::yield_now();
            }
        });
        Self { stopped, thread }
    }

    fn stop(self) {
        self.stopped.store(1, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
