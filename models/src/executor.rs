//! Tasks on the checker's threads: as much of a runtime as the connector needs.
//!
//! Tasks wait in one queue, in the order in which they were woken; each of the executor's threads takes the
//! first and polls it. Which thread runs when is the checker's choice. A future that nobody wakes is not
//! polled again, so a lost wake-up ends in threads that all wait, which the checkers report as a deadlock.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::pin,
    sync::Weak,
    task::{Context, Poll, Wake, Waker},
};

use springtide::env::Task;
use springtide_model_sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, thread};

/// Runs tasks on threads of the checker. Clones share it.
#[derive(Clone)]
pub struct Executor(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes threads that have nothing to poll.
    ready: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    tasks: BTreeMap<u64, Slot>,
    ready: VecDeque<u64>,
    stopped: bool,
}

/// A task; its future is away while a thread polls it.
struct Slot {
    future: Option<Task>,
    /// It is in the queue, or to be put there after the poll that is under way.
    woken: bool,
}

/// The threads of an [`Executor`], to be stopped.
#[must_use = "threads that are not joined outlive their model"]
pub struct Threads {
    executor: Executor,
    handles: Vec<thread::JoinHandle<()>>,
}

impl Executor {
    /// An executor on `threads` threads of its own.
    pub fn start(threads: usize) -> (Self, Threads) {
        let shared = Shared { state: Mutex::new(State::default()), ready: Condvar::new() };
        let executor = Self(Arc::new(shared));
        let handles = (0..threads)
            .map(|_| {
                let executor = executor.clone();
                thread::spawn(move || executor.run())
            })
            .collect();
        (executor.clone(), Threads { executor, handles })
    }

    /// Puts a task behind those that are ready. After a stop it is dropped.
    pub fn spawn(&self, task: Task) {
        let mut state = self.lock();
        if state.stopped {
            return;
        }
        let id = state.next;
        state.next += 1;
        state.tasks.insert(id, Slot { future: Some(task), woken: true });
        state.ready.push_back(id);
        drop(state);
        self.0.ready.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some((id, future)) = self.next() {
            self.poll(id, future);
        }
    }

    /// The next task to poll; `None` after a stop.
    fn next(&self) -> Option<(u64, Task)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(id) = state.ready.pop_front() {
                let slot = state.tasks.get_mut(&id);
                let future = slot.and_then(|slot| {
                    slot.woken = false;
                    slot.future.take()
                });
                return Some((id, future.expect("a ready task has its future")));
            }
            state = self.0.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn poll(&self, id: u64, mut future: Task) {
        let waker = Waker::from(Arc::new(TaskWaker { shared: Arc::downgrade(&self.0), id }));
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut state = self.lock();
        if ended {
            state.tasks.remove(&id);
        } else if let Some(slot) = state.tasks.get_mut(&id) {
            slot.future = Some(future);
            if slot.woken {
                state.ready.push_back(id);
                drop(state);
                self.0.ready.notify_one();
            }
        }
    }
}

impl Threads {
    /// Stops all threads, each after the poll that it is in, and drops the tasks that have not ended.
    pub fn stop(self) {
        let tasks = {
            let mut state = self.executor.lock();
            state.stopped = true;
            std::mem::take(&mut state.tasks)
        };
        self.executor.0.ready.notify_all();
        for handle in self.handles {
            handle.join().expect("a thread of the executor panicked");
        }
        drop(tasks);
    }
}

struct TaskWaker {
    /// Weak, since the queue keeps the tasks, and they keep their wakers.
    shared: Weak<Shared>,
    id: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { tasks, ready, .. } = &mut *state;
        let Some(slot) = tasks.get_mut(&self.id).filter(|slot| !slot.woken) else { return };
        slot.woken = true;
        if slot.future.is_some() {
            ready.push_back(self.id);
            drop(state);
            shared.ready.notify_one();
        }
    }
}

/// Polls a future to its end on the calling thread, which sleeps between wake-ups.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Arc::new(Parker { woken: Mutex::new(false), changed: Condvar::new() });
    let waker = Waker::from(Arc::clone(&parker));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        parker.park();
    }
}

struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn park(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*woken {
            woken = self.changed.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
        *woken = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
