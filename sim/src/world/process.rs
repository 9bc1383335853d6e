//! A process of the simulation: one life of a host's software, which can stand still and die.
//!
//! Everything that a host runs, the connector's tasks included, runs through [`Process::spawn`]. While the
//! process is paused none of its tasks is polled; their wakers are kept and called when it goes on, so a
//! stop-the-world of any length loses no wake-up. A process that is killed is marked dead *before* its
//! futures are dropped: destructors run there, as they would not in a real crash, and the injected world
//! refuses whatever they try. Tasks of hardware (a copy engine) go on through a pause and end with the host.
//!
//! A runtime drops its tasks in an order that depends on their numbers, which count over all runtimes of the
//! operating system's process. So that connections end in the same order in every run, the futures are kept
//! here and dropped in the order in which they were spawned.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use springtide::env::Task;

use super::{clock::SimClock, watchdog};

/// One life of a host's software. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Process(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    host: String,
    life: u64,
    clock: SimClock,
    dead: AtomicBool,
    paused: AtomicBool,
    parked: Mutex<Vec<Waker>>,
    tasks: Mutex<Tasks>,
}

/// The futures of a process's tasks, by the order of their spawning; one that is being polled is absent.
#[derive(Default)]
struct Tasks {
    next: u64,
    futures: BTreeMap<u64, Task>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.futures.keys()).finish()
    }
}

impl Process {
    /// Life number `life` of `host`'s software, running by `clock`.
    pub fn new(host: &str, life: u64, clock: SimClock) -> Self {
        Self(Arc::new(Inner {
            host: host.to_owned(),
            life,
            clock,
            dead: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            parked: Mutex::new(Vec::new()),
            tasks: Mutex::default(),
        }))
    }

    /// The host.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// How many lives the host had before.
    pub fn life(&self) -> u64 {
        self.0.life
    }

    /// The clock it runs by.
    pub fn clock(&self) -> SimClock {
        self.0.clock
    }

    /// Whether it has been killed.
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::Relaxed)
    }

    /// Marks it dead. The caller drops its futures next.
    pub fn kill(&self) {
        self.0.dead.store(true, Ordering::Relaxed);
    }

    /// Stops polling its tasks.
    pub fn pause(&self) {
        self.0.paused.store(true, Ordering::Relaxed);
    }

    /// Polls its tasks again, those first that were woken first.
    pub fn resume(&self) {
        self.0.paused.store(false, Ordering::Relaxed);
        let parked = std::mem::take(&mut *self.0.parked.lock().expect("no panic while held"));
        parked.into_iter().for_each(Waker::wake);
    }

    /// `future`, but still while this process is paused, and for ever once it is dead.
    pub fn wrap<F: Future>(&self, future: F) -> Pausable<F> {
        Pausable { process: self.clone(), future: Box::pin(future) }
    }

    /// Runs a task of this process on the current host.
    pub fn spawn(&self, task: Task) {
        spawn_on_host(self.wrap(self.keep(task)));
    }

    /// Runs a task of the host's hardware, which a pause of the process does not stop.
    pub fn spawn_hardware(&self, task: Task) {
        spawn_on_host(self.keep(task));
    }

    fn keep(&self, task: Task) -> Kept {
        let mut tasks = self.tasks();
        let number = tasks.next;
        tasks.next += 1;
        tasks.futures.insert(number, task);
        Kept { process: self.clone(), number }
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.0.tasks.lock().expect("no panic while held")
    }

    /// Drops what is left of a dead process, in order.
    pub(super) fn bury(&self) {
        loop {
            // Not under the lock: a destructor may end other tasks.
            let first = self.tasks().futures.pop_first();
            if first.is_none() {
                return;
            }
        }
    }
}

/// The runtime's side of a task: its future is kept by the process.
#[derive(Debug)]
struct Kept {
    process: Process,
    number: u64,
}

impl Future for Kept {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut task) = self.process.tasks().futures.remove(&self.number) else {
            return Poll::Ready(());
        };
        let polled = task.as_mut().poll(cx);
        if polled.is_pending() {
            self.process.tasks().futures.insert(self.number, task);
        }
        polled
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.process.is_dead() {
            self.process.bury();
        } else {
            let task = self.process.tasks().futures.remove(&self.number);
            drop(task);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the simulation's tasks start")]
fn spawn_on_host(task: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(task));
}

/// A future of a process that can be paused.
#[derive(Debug)]
pub struct Pausable<F> {
    process: Process,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Pausable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.process.is_dead() {
            return Poll::Pending;
        }
        if self.process.0.paused.load(Ordering::Relaxed) {
            let mut parked = self.process.0.parked.lock().expect("no panic while held");
            parked.push(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(elapsed) = self.process.clock().elapsed() {
            watchdog::look(elapsed);
        }
        self.future.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Counting(AtomicUsize);

    impl std::task::Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_paused_process_keeps_its_wakers() {
        let process = Process::new("host", 0, SimClock::Turmoil);
        let woken = Arc::new(Counting(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut task = Box::pin(process.wrap(async { 7 }));

        process.pause();
        assert_eq!(task.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        process.resume();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(task.as_mut().poll(&mut cx), Poll::Ready(7));
    }

    #[test]
    fn a_dead_process_drops_its_futures_in_the_order_of_their_spawning() {
        struct Noting(u32, Arc<Mutex<Vec<u32>>>);
        impl Drop for Noting {
            fn drop(&mut self) {
                self.1.lock().unwrap().push(self.0);
            }
        }
        let (process, dropped) =
            (Process::new("host", 0, SimClock::Turmoil), Arc::new(Mutex::new(Vec::new())));
        let mut tasks: Vec<Kept> = (0..4)
            .map(|n| {
                let noting = Noting(n, Arc::clone(&dropped));
                process.keep(Box::pin(async move {
                    let _noting = noting;
                    std::future::pending().await
                }))
            })
            .collect();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut tasks[2]).poll(&mut cx).is_pending());
        drop(tasks.remove(1));
        assert_eq!(*dropped.lock().unwrap(), [1], "alive: only its own");
        process.kill();
        tasks.reverse();
        drop(tasks);
        assert_eq!(*dropped.lock().unwrap(), [1, 0, 2, 3]);
    }

    #[test]
    fn a_dead_process_is_never_polled() {
        let process = Process::new("host", 0, SimClock::Turmoil);
        let mut cx = Context::from_waker(Waker::noop());
        let mut task = Box::pin(process.wrap(async { panic!("polled after death") }));
        process.kill();
        assert_eq!(task.as_mut().poll(&mut cx), Poll::<()>::Pending);
    }
}
