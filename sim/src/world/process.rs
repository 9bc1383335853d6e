//! A process of the simulation: one life of a host's software, which can stand still and die.
//!
//! Everything that a host runs, the connector's tasks included, runs through [`Process::spawn`]. While the
//! process is paused none of its tasks is polled; their wakers are kept and called when it goes on, so a
//! stop-the-world of any length loses no wake-up. A process that is killed is marked dead *before* turmoil
//! drops its futures: destructors run there, as they would not in a real crash, and the injected world
//! refuses whatever they try. Tasks of hardware (a copy engine) go on through a pause and end with the host.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use springtide::env::Task;

/// One life of a host's software. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Process(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    host: String,
    life: u64,
    dead: AtomicBool,
    paused: AtomicBool,
    parked: Mutex<Vec<Waker>>,
}

impl Process {
    /// Life number `life` of `host`'s software, running.
    pub fn new(host: &str, life: u64) -> Self {
        Self(Arc::new(Inner {
            host: host.to_owned(),
            life,
            dead: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            parked: Mutex::new(Vec::new()),
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
        spawn_on_host(self.wrap(task));
    }

    /// Runs a task of the host's hardware, which a pause of the process does not stop.
    pub fn spawn_hardware(&self, task: Task) {
        spawn_on_host(task);
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
        let process = Process::new("host", 0);
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
    fn a_dead_process_is_never_polled() {
        let process = Process::new("host", 0);
        let mut cx = Context::from_waker(Waker::noop());
        let mut task = Box::pin(process.wrap(async { panic!("polled after death") }));
        process.kill();
        assert_eq!(task.as_mut().poll(&mut cx), Poll::<()>::Pending);
    }
}
