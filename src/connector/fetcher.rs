//! Fetches what requests want: the asynchronous shell around [`Loads`] and [`Requests`].
//!
//! One driver task turns the machine's actions into store calls, each in a task of its own. A fetched object
//! is validated before anybody can see it; a bad one is removed from the store, since a put over it would
//! not repair it.

use std::{iter, pin::pin, time::Duration};

use super::{
    calls::bounded,
    config::Config,
    key::Namespace,
    loads::{Action, FetchEnd, Loads},
    memory::{CloseReport, Memory, StartError},
    object::{self, HEADER_BYTES, Header, Rejection},
    payload,
    requests::{Acknowledged, Requests},
};
use crate::{
    env::{Clock, Env, ErrorCode, GetItem, Key, Outcome, Store, Time},
    log::{ItemId, shown},
    pool::{AllocError, Lease, QuarantineCause},
    sync::{Arc, Mutex, MutexGuard, Notify, PoisonError},
};

pub(super) struct Fetcher<E: Env> {
    env: E,
    config: Config,
    namespace: Namespace,
    pub(super) memory: Memory,
    state: Mutex<State>,
    /// Wakes the driver.
    pub(super) wake: Notify,
    /// Wakes those who wait for the drain.
    changed: Notify,
}

pub(super) struct State {
    pub(super) loads: Loads,
    pub(super) requests: Requests,
    running: usize,
    stopped: bool,
}

impl<E: Env> Fetcher<E> {
    /// Opens the pool and starts the driver.
    pub(super) async fn start(env: E, config: Config) -> Result<Arc<Self>, StartError> {
        let memory = Memory::open(&env, &config).await?;
        let fragments_per_item = config.pool.max_extents.min(memory.limits.buffers_per_object);
        let loads =
            Loads::new(config.loads.clone(), memory.limits.fragments_per_batch, fragments_per_item);
        let namespace = Namespace::new(&config.namespace);
        let requests = Requests::new(
            namespace.clone(),
            config.loads.deadline,
            if config.acknowledges_by_step() {
                Acknowledged::ByStep
            } else {
                Acknowledged::ByRanks(config.tensor_parallel)
            },
        );
        let fetcher = Arc::new(Self {
            env,
            config,
            namespace,
            memory,
            state: Mutex::new(State { loads, requests, running: 0, stopped: false }),
            wake: Notify::new(),
            changed: Notify::new(),
        });
        fetcher.env.spawn(Box::pin(Arc::clone(&fetcher).drive()));
        Ok(fetcher)
    }

    pub(super) fn now(&self) -> Time {
        self.env.clock().now()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held is a bug that must not turn into a second one here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops accepting, drains for at most half of the time left, closes the store, gives the memory back.
    pub(super) async fn close(&self, deadline: Time) -> CloseReport {
        {
            let mut state = self.lock();
            let State { loads, requests, .. } = &mut *state;
            loads.close();
            requests.close(loads);
        }
        let now = self.now();
        let drain_until = now + (deadline - now) / 2;
        let abandoned = loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let running = self.lock().running;
            if running == 0 || self.now() >= drain_until {
                break running;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.env.clock().sleep_until(drain_until) => {}
            }
        };
        self.stop();
        self.memory.close(&self.env, abandoned, true, deadline).await
    }

    /// Ends the driver. Running operations keep what they own.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.loads.close();
        state.stopped = true;
        drop(state);
        self.wake.notify_one();
    }

    // -- inside ----------------------------------------------------------------------------------------

    async fn drive(self: Arc<Self>) {
        loop {
            let mut wake = pin!(self.wake.notified());
            wake.as_mut().enable();
            let (action, wakeup) = {
                let mut state = self.lock();
                if state.stopped {
                    return;
                }
                let action = state.loads.next_action(self.now());
                state.running += usize::from(action.is_some());
                (action, state.loads.next_wakeup())
            };
            if let Some(action) = action {
                self.env.spawn(Box::pin(Arc::clone(&self).perform(action)));
                continue;
            }
            tokio::select! {
                biased;
                () = wake => {}
                () = self.env.clock().sleep_until(wakeup.unwrap_or(Time::NEVER)) => {}
            }
        }
    }

    async fn perform(self: Arc<Self>, action: Action) {
        match action {
            Action::Lookup(keys) => self.lookup(keys).await,
            Action::Size(key) => self.size(key).await,
            Action::Remove(key, rejection) => self.remove(key, rejection).await,
            Action::Fetch(batch) => self.fetch(batch).await,
        }
        self.performed();
    }

    /// A task of this fetcher is over.
    fn performed(&self) {
        self.lock().running -= 1;
        self.wake.notify_one();
        self.changed.notify_waiters();
    }

    /// Runs an event, then tells those whom it decides.
    fn event(&self, event: impl FnOnce(&mut Loads, Time)) {
        let now = self.now();
        let mut state = self.lock();
        let State { loads, requests, .. } = &mut *state;
        event(loads, now);
        requests.settle(loads, &self.memory.pool);
        drop(state);
        self.wake.notify_one();
    }

    async fn lookup(&self, keys: Vec<Key>) {
        let started = self.now();
        let limit = started + self.config.io_timeout;
        let call = || self.env.store().exists(keys.clone());
        let answers = bounded(&self.env, limit, call).await.unwrap_or_default();
        let took = self.now() - started;
        let mut answers = answers.into_iter();
        for key in keys {
            // A store that does not answer is no answer: the same as an unreachable one.
            let answer = answers.next().unwrap_or(Err(self.no_answer()));
            self.event(|loads, now| {
                loads.times.lookup.record(took);
                loads.looked_up(&key, answer, now);
            });
        }
    }

    async fn size(&self, key: Key) {
        let limit = self.now() + self.config.io_timeout;
        let call = || self.env.store().size(key.clone());
        let answer = bounded(&self.env, limit, call).await;
        let answer = answer.unwrap_or(Err(self.no_answer()));
        self.event(|loads, now| loads.sized(&key, answer, now));
    }

    fn no_answer(&self) -> crate::env::StoreError {
        crate::env::StoreError::new(ErrorCode::RpcTimeout, self.config.io_timeout)
    }

    async fn fetch(self: &Arc<Self>, batch: Vec<(Key, u64)>) {
        let items = self.allocate(batch);
        if items.is_empty() {
            return;
        }
        let keys: Vec<Key> = items.iter().map(|item| item.key.clone()).collect();
        let started = self.now();
        let limit = started + self.config.io_timeout;
        let call = || self.env.store().get(items);
        let outcomes = bounded(&self.env, limit, call).await.unwrap_or_default();
        let took = self.now() - started;
        let mut outcomes = outcomes.into_iter();
        let mut ends: Vec<_> = keys.into_iter().map(|key| (key, outcomes.next())).collect();
        let last = ends.pop();
        // What came together is validated side by side.
        for end in ends {
            self.lock().running += 1;
            let fetcher = Arc::clone(self);
            self.env.spawn(Box::pin(async move {
                fetcher.settle(iter::once(end), took).await;
                fetcher.performed();
            }));
        }
        self.settle(last.into_iter(), took).await;
    }

    /// Settles what has been fetched: nobody sees an item that is not valid.
    async fn settle(
        &self,
        ends: impl Iterator<Item = (Key, Option<Outcome<u64>>)> + Send,
        took: Duration,
    ) {
        for (key, outcome) in ends {
            // Keeps the item until those who wait for it have pinned it.
            let mut pin = None;
            let end = match outcome {
                None => FetchEnd::Lost,
                Some(Outcome::Uncertain { buffer, error }) => {
                    buffer.quarantine(QuarantineCause::Uncertain);
                    FetchEnd::Uncertain(error)
                }
                Some(Outcome::Ended { result: Err(error), .. }) => FetchEnd::Failed(error),
                Some(Outcome::Ended { buffer, result: Ok(bytes) }) => {
                    match self.validate(&key, &buffer, bytes).await {
                        Ok(()) => {
                            let published = buffer.publish(object::key_tag(&key));
                            FetchEnd::Loaded(pin.insert(published).handle())
                        }
                        Err(rejection) => FetchEnd::Rejected(rejection),
                    }
                }
            };
            self.event(|loads, now| {
                loads.times.get.record(took);
                loads.fetched(&key, end, now);
            });
        }
    }

    /// Memory for each item of a batch; those that get none are told so and do not hold up the others.
    fn allocate(&self, batch: Vec<(Key, u64)>) -> Vec<GetItem> {
        let mut items = Vec::with_capacity(batch.len());
        for (key, len) in batch {
            let lease = {
                let loads = &mut self.lock().loads;
                let evicted = &mut loads.counters.evicted;
                if self.memory.takes(len) {
                    self.memory.allocate(&mut loads.residents, len, evicted)
                } else {
                    Err(AllocError::TooLarge { len, max: self.memory.pool.region().len() })
                }
            };
            match lease {
                Ok(lease) => items.push(GetItem { key, dest: lease.into_transfer() }),
                Err(AllocError::TooLarge { .. }) => {
                    self.event(|loads, now| loads.fetched(&key, FetchEnd::TooLarge, now));
                }
                Err(_) => self.event(|loads, now| loads.no_room(&key, now)),
            }
        }
        items
    }

    /// Whether what has been fetched is what was asked for, and how long it took to know.
    async fn validate(&self, key: &Key, lease: &Lease, bytes: u64) -> Result<(), Rejection> {
        let started = self.now();
        let valid = self.compare(key, lease, bytes).await;
        self.lock().loads.times.validate.record(self.now() - started);
        valid
    }

    async fn compare(&self, key: &Key, lease: &Lease, bytes: u64) -> Result<(), Rejection> {
        if bytes != lease.len() {
            return Err(Rejection::Length);
        }
        let mut head = [0; HEADER_BYTES as usize];
        lease.read_at(0, &mut head);
        let header = Header::decode(&head)?;
        let row = self.config.namespace.width * self.config.namespace.dtype.size();
        let expected = self.namespace.spec((bytes - HEADER_BYTES) / row);
        header.check(key, &expected.map_err(|_| Rejection::Shape)?)?;
        if header.spec.bytes() + HEADER_BYTES != bytes {
            return Err(Rejection::Length);
        }
        let Config { namespace, payload_checksum, .. } = &self.config;
        payload::prove(&header, lease, namespace.secret.as_ref(), *payload_checksum).await
    }

    async fn remove(&self, key: Key, rejection: Rejection) {
        let (item, shown) = (ItemId::of(&key), shown(key.as_str()));
        tracing::warn!(%item, key = %shown, reason = rejection.name(), "removing a bad object");
        let limit = self.now() + self.config.io_timeout;
        let call = || self.env.store().remove(key, true);
        let done = matches!(bounded(&self.env, limit, call).await, Ok(Ok(())));
        self.event(|loads, _| loads.removed(done));
    }
}
