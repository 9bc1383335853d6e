//! The fast engine: all hosts on one runtime, over a network in memory.
//!
//! The runtime's clock stands still while any task can run and jumps to the next timer when none can, so a
//! simulated second costs what happens in it and nothing else. A message is an event with a time of its own
//! instead of one of the next tick; everything else (timers with a grain of a millisecond, tasks in the order in
//! which they were woken, all on one thread) is as under turmoil.

use std::{sync::Arc, time::Duration};

use springtide::env::Time;
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use super::{
    clock::SimClock,
    engine::{Engine, Processes, next_life},
    host::World,
    memory::Net,
    network::Wire,
};

/// A runtime whose time jumps, whose draws depend on the seed alone, and in which a panic is not swallowed.
fn runtime(seed: u64) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // Without it the simulator refuses to start.
    #[cfg(tokio_unstable)]
    builder
        .rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()))
        .unhandled_panic(tokio::runtime::UnhandledPanic::ShutdownRuntime);
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.build().expect("a runtime without I/O")
}

/// All hosts on one runtime.
pub struct Fast {
    world: Arc<World>,
    processes: Processes,
    net: Net,
    start: Instant,
    runtime: Runtime,
}

impl Fast {
    /// All hosts of `world`'s plan.
    pub fn new(world: &Arc<World>, processes: &Processes) -> Self {
        let plan = &world.plan;
        let runtime = runtime(plan.seed);
        let start = {
            let _inside = runtime.enter();
            Instant::now()
        };
        let net = Net::new(&plan.hosts(), Duration::from_millis(plan.link.latency_ms));
        let (world, processes) = (Arc::clone(world), processes.clone());
        let mut fast = Self { world, processes, net, start, runtime };
        fast.world.plan.hosts().iter().for_each(|host| fast.start(host));
        fast
    }

    fn start(&mut self, host: &str) {
        let _inside = self.runtime.enter();
        let wire = Wire::Memory(self.net.of(host));
        let clock = SimClock::Fast(self.start);
        let (process, software) = next_life(host, &self.world, &self.processes, clock, wire);
        process.spawn(software);
    }
}

impl Engine for Fast {
    fn elapsed(&self) -> Time {
        let _inside = self.runtime.enter();
        Time::from_origin(self.start.elapsed())
    }

    fn step(&mut self, until: Time) -> Result<(), String> {
        // No software ends: what the other engine reports of its hosts cannot happen here.
        self.runtime.block_on(self.net.carry(self.start + until.since_origin()));
        Ok(())
    }

    fn crash(&mut self, host: &str) {
        let _inside = self.runtime.enter();
        self.net.stop(host);
        if let Some(process) = self.processes.get(host) {
            process.bury();
        }
    }

    fn bounce(&mut self, host: &str) {
        {
            let _inside = self.runtime.enter();
            self.net.restart(host);
        }
        self.start(host);
    }

    fn partition(&mut self, a: &str, b: &str) {
        self.net.cut(a, b);
        self.net.cut(b, a);
    }

    fn partition_oneway(&mut self, from: &str, to: &str) {
        self.net.cut(from, to);
    }

    fn repair(&mut self, a: &str, b: &str) {
        self.net.mend(a, b);
        self.net.mend(b, a);
    }

    fn repair_oneway(&mut self, from: &str, to: &str) {
        self.net.mend(from, to);
    }

    fn hold(&mut self, a: &str, b: &str) {
        self.net.hold(a, b);
        self.net.hold(b, a);
    }

    fn release(&mut self, a: &str, b: &str) {
        let _inside = self.runtime.enter();
        self.net.release(a, b);
        self.net.release(b, a);
    }

    fn set_latency(&mut self, a: &str, b: &str, latency: Duration) {
        self.net.set_latency(a, b, latency);
        self.net.set_latency(b, a, latency);
    }
}

impl Drop for Fast {
    fn drop(&mut self) {
        // The end of the world is no event of it: nothing is sent when its streams end.
        self.net.close();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use springtide::env::Clock;

    use super::*;
    use crate::{
        event::Event,
        oracle::testing::time,
        plan::{Plan, Workload},
        recorder::{Keep, Recorder},
        world::process::Process,
    };

    fn fast() -> (Fast, Arc<World>, Processes) {
        let plan = Plan::base("fast", Workload::W1);
        let world = Arc::new(World::new(plan.clone(), Recorder::new(&plan, Keep::Everything)));
        let processes = Processes::default();
        (Fast::new(&world, &processes), world, processes)
    }

    /// Runs `task` on the client's host.
    fn run(fast: &mut Fast, processes: &Processes, task: springtide::env::Task) -> Process {
        let process = processes.get("client").unwrap();
        {
            let _inside = fast.runtime.enter();
            process.spawn(task);
        }
        process
    }

    #[test]
    fn time_jumps_exactly_as_far_as_it_is_told() {
        let (mut fast, ..) = fast();
        assert_eq!(fast.elapsed(), Time::ZERO);
        for until in [1, 7, 50, 1_000, 1_001] {
            fast.step(time(until)).unwrap();
            assert_eq!(fast.elapsed(), time(until));
        }
    }

    #[test]
    fn a_panic_of_a_host_comes_out_of_the_step() {
        let (mut fast, _, processes) = fast();
        let clock = SimClock::Fast(fast.start);
        let task = async move {
            clock.sleep(Duration::from_millis(3)).await;
            panic!("the host panics");
        };
        run(&mut fast, &processes, Box::pin(task));
        fast.step(time(2)).unwrap();
        let step = catch_unwind(AssertUnwindSafe(|| fast.step(time(9))));
        assert!(step.is_err());
        assert_eq!(fast.elapsed(), time(3));
        std::mem::forget(fast);
    }

    #[test]
    fn a_host_that_lets_no_time_pass_is_noticed() {
        let (mut fast, _, processes) = fast();
        let clock = SimClock::Fast(fast.start);
        let task = async move {
            loop {
                clock.now();
            }
        };
        run(&mut fast, &processes, Box::pin(task));
        let step = catch_unwind(AssertUnwindSafe(|| fast.step(time(2))));
        let message = step.unwrap_err().downcast::<&'static str>().map_or("", |message| *message);
        assert!(message.contains("panic"), "{message}");
        std::mem::forget(fast);
    }

    #[test]
    fn a_crashed_host_is_gone_at_once_and_starts_its_next_life() {
        let (mut fast, world, processes) = fast();
        fast.step(time(100)).unwrap();
        let held = Arc::new(());
        let task = {
            let held = Arc::clone(&held);
            async move {
                let _held = held;
                std::future::pending().await
            }
        };
        let process = run(&mut fast, &processes, Box::pin(task));
        fast.step(time(200)).unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        process.kill();
        fast.crash("client");
        assert_eq!(Arc::strong_count(&held), 1);
        fast.step(time(300)).unwrap();
        fast.bounce("client");
        fast.step(time(400)).unwrap();
        assert_eq!(processes.get("client").unwrap().life(), 1);
        let started = world.recorder.with(|recording| {
            let of_client = recording.events.iter().filter(|event| event.host == "client");
            of_client.filter(|event| event.event == Event::Started).count()
        });
        assert_eq!(started, 2);
    }
}
