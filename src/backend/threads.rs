//! A bounded set of threads for calls that block.
//!
//! Stores whose calls block (a disk, the C ABI of Mooncake) run them here. A job owns the buffers that it
//! moves; whoever asked for it may stop waiting, the job goes on and gives them back itself. The queue is
//! bounded by the callers: the connector limits its operations in flight.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send + 'static>;

/// Threads that run blocking jobs. Clones share them; they end with the last clone.
#[derive(Clone)]
pub(super) struct Threads {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    idle: Condvar,
}

struct State {
    /// `None` once closed.
    jobs: Option<Sender<Job>>,
    /// Jobs queued or running.
    open: usize,
}

/// The jobs' threads have been closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store is closed")]
pub(super) struct Closed;

impl Threads {
    /// Starts `count` threads named `name`.
    ///
    /// # Errors
    /// As the operating system refuses a thread.
    pub(super) fn start(name: &str, count: usize) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for n in 0..count {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name(format!("{name}-{n}")).spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    match job {
                        Ok(job) => job(),
                        Err(mpsc::RecvError) => return,
                    }
                }
            })?;
        }
        let state = Mutex::new(State { jobs: Some(jobs), open: 0 });
        Ok(Self { shared: Arc::new(Shared { state, idle: Condvar::new() }) })
    }

    /// Takes a place in the queue, so that a job can be made which will run for sure: what it owns (buffers)
    /// is given up only then.
    ///
    /// # Errors
    /// [`Closed`].
    pub(super) fn reserve(&self) -> Result<Place, Closed> {
        let mut state = self.shared.lock();
        let jobs = state.jobs.clone().ok_or(Closed)?;
        state.open += 1;
        Ok(Place { jobs, open: Open(Arc::clone(&self.shared)) })
    }

    /// Runs `job` on one of the threads. Dropping the receiver does not stop it.
    ///
    /// # Errors
    /// [`Closed`], with the job dropped unrun.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Closed> {
        Ok(self.reserve()?.run(job))
    }

    /// Refuses further jobs.
    pub(super) fn close(&self) {
        self.shared.lock().jobs = None;
    }

    /// Blocks until no job is queued or running.
    pub(super) fn wait_idle(&self) {
        let mut state = self.shared.lock();
        while state.open > 0 {
            state = self.shared.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends when no job is queued or running. The wait itself is on a thread of its own.
    ///
    /// # Errors
    /// As the operating system refuses a thread.
    pub(super) fn idle(&self, name: &str) -> std::io::Result<oneshot::Receiver<()>> {
        let (sender, receiver) = oneshot::channel();
        let threads = self.clone();
        thread::Builder::new().name(format!("{name}-close")).spawn(move || {
            threads.wait_idle();
            let _ = sender.send(());
        })?;
        Ok(receiver)
    }
}

/// A place in the queue. Dropping it unused gives it back.
pub(super) struct Place {
    jobs: Sender<Job>,
    open: Open,
}

impl Place {
    /// Runs `job` on one of the threads. Dropping the receiver does not stop it.
    pub(super) fn run<T: Send + 'static>(
        self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let Self { jobs, open } = self;
        let job = Box::new(move || {
            let _open = open;
            // A panic drops what the job owns (the pool quarantines it) and must not cost a thread.
            if let Ok(result) = panic::catch_unwind(AssertUnwindSafe(job)) {
                // Whoever has stopped waiting leaves the result, with its buffers, to be dropped here.
                drop(sender.send(result));
            }
        });
        // The threads end when every sender has gone: not while this one is here.
        let sent = jobs.send(job);
        debug_assert!(sent.is_ok(), "the threads ended before their queue");
        receiver
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a job as over, also when it panics.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
        self.0.idle.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicking_job_costs_neither_its_thread_nor_the_count() {
        let threads = Threads::start("test", 1).unwrap();
        let lost = threads.run(|| panic!("on purpose")).unwrap();
        assert!(lost.await.is_err());
        assert_eq!(threads.run(|| 7).unwrap().await, Ok(7));
        threads.close();
        assert!(matches!(threads.run(|| 8), Err(Closed)));
        threads.idle("test").unwrap().await.unwrap();
    }

    #[tokio::test]
    async fn idle_waits_for_what_runs() {
        let threads = Threads::start("test", 2).unwrap();
        let (release, held) = mpsc::channel::<()>();
        let running = threads.run(move || held.recv()).unwrap();
        let mut idle = threads.idle("test").unwrap();
        assert!(idle.try_recv().is_err());
        drop(running);
        release.send(()).unwrap();
        idle.await.unwrap();
    }
}
