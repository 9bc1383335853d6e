//! Tasks that run when they are told to, in the order in which they were woken: nothing is left to chance,
//! and nothing happens between two steps of the search.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Wake, Waker},
};

use springtide::env::Task;

/// Polls of one step; a task that wakes itself for ever is a finding, not a hang.
const POLLS_MAX: u32 = 100_000;

/// Runs tasks. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Executor(Arc<Mutex<Tasks>>);

#[derive(Default)]
struct Tasks {
    next: u64,
    /// A future is away while it is polled.
    futures: BTreeMap<u64, Option<Task>>,
    ready: VecDeque<u64>,
}

impl Executor {
    /// Puts a task behind those that are ready.
    pub(super) fn spawn(&self, task: Task) {
        let mut tasks = lock(&self.0);
        let id = tasks.next;
        tasks.next += 1;
        tasks.futures.insert(id, Some(task));
        tasks.ready.push_back(id);
    }

    /// Polls until nothing is ready.
    ///
    /// # Panics
    /// When that does not come.
    pub(super) fn run(&self) {
        for _ in 0..POLLS_MAX {
            let next = {
                let mut tasks = lock(&self.0);
                let Some(id) = tasks.ready.pop_front() else { return };
                tasks.futures.get_mut(&id).and_then(Option::take).map(|task| (id, task))
            };
            let Some((id, mut task)) = next else { continue };
            let waker = Waker::from(Arc::new(Woken { tasks: Arc::downgrade(&self.0), id }));
            let ended = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            let mut tasks = lock(&self.0);
            if ended {
                tasks.futures.remove(&id);
            } else if let Some(slot) = tasks.futures.get_mut(&id) {
                *slot = Some(task);
            }
        }
        panic!("tasks wake each other for ever: {POLLS_MAX} polls in one step");
    }

    /// Drops all tasks.
    pub(super) fn clear(&self) {
        let futures = std::mem::take(&mut lock(&self.0).futures);
        drop(futures);
    }
}

struct Woken {
    tasks: Weak<Mutex<Tasks>>,
    id: u64,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        if let Some(tasks) = self.tasks.upgrade() {
            let mut tasks = lock(&tasks);
            if !tasks.ready.contains(&self.id) {
                tasks.ready.push_back(self.id);
            }
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
