//! The connector in the scheduler process.
//!
//! A consumer's loads live here: the engine asks for the items of each request, the connector fetches them
//! into the shared region on its own tasks, and only what lies there validated and pinned is promised. No
//! method blocks, talks to the store or fails. The order of calls is vLLM's:
//! [`ensure_available`](Scheduler::ensure_available), [`has_item`](Scheduler::has_item),
//! [`allocated`](Scheduler::allocated), [`build_step`](Scheduler::build_step), after the step
//! [`acknowledge`](Scheduler::acknowledge) and [`request_finished`](Scheduler::request_finished).

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    config::Config,
    fetcher::{Fetcher, State},
    loads::{LoadCounters, LoadTimes},
    memory::{CloseReport, Closing, StartError, close_client},
    republish::Republish,
    requests::{Availability, ItemDecision, ItemRequest, OrderId, StepPlan},
};
use crate::{
    env::{Env, Time},
    pool::{Mapper, Pool},
};

/// The scheduler's side of the connector. Clones share one state.
pub struct Scheduler<E: Env>(Arc<Handle<E>>);

struct Handle<E: Env> {
    env: E,
    /// `None` on a producer that loads nothing: it pins nothing and opens no pool.
    fetcher: Option<Arc<Fetcher<E>>>,
    /// `None` on a pure consumer.
    republish: Option<Mutex<Republish>>,
    closing: Closing,
}

impl<E: Env> Clone for Scheduler<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Env> Drop for Handle<E> {
    fn drop(&mut self) {
        if let Some(fetcher) = &self.fetcher {
            fetcher.stop();
        }
    }
}

impl<E: Env> Scheduler<E> {
    /// Opens the pool for loads and registers it; does nothing where none are made.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left allocated or registered.
    pub async fn start(env: E, config: Config) -> Result<Self, StartError> {
        config.validate()?;
        let republish = config.role.saves().then(Mutex::default);
        let fetcher = match config.loads() {
            true => Some(Fetcher::start(env.clone(), config).await?),
            false => None,
        };
        Ok(Self(Arc::new(Handle { env, fetcher, republish, closing: Closing::default() })))
    }

    /// Read access to the pool for the workers of this process. Workers in other processes open the region by
    /// its path.
    pub fn mapper(&self) -> Option<Mapper> {
        self.pool().map(Pool::mapper)
    }

    /// The pool for loads.
    pub fn pool(&self) -> Option<&Pool> {
        self.0.fetcher.as_ref().map(|fetcher| &fetcher.memory.pool)
    }

    /// Decides what can be decided about the items that a request needs in its next step, and starts to fetch
    /// the rest. `items` are those that overlap the step's window.
    pub fn ensure_available(&self, request: &str, items: &[ItemRequest]) -> Availability {
        self.republish(|republish| republish.wanted(request, items));
        let Some(fetcher) = &self.0.fetcher else { return Availability::Ready };
        let now = fetcher.now();
        let availability = self.with(fetcher, |State { loads, requests, .. }| {
            requests.ensure_available(request, items, loads, &fetcher.memory.pool, now)
        });
        fetcher.wake.notify_one();
        availability
    }

    /// Whether the worker will deliver the item in this step, for the request of the last
    /// [`Scheduler::ensure_available`]. Otherwise the engine encodes it.
    pub fn has_item(&self, identifier: &str) -> bool {
        let Some(fetcher) = &self.0.fetcher else { return false };
        self.with(fetcher, |state| state.requests.has_item(identifier))
    }

    /// What has been decided about an item of a request, and why; `None` for one that was not asked for.
    pub fn decision(&self, request: &str, identifier: &str) -> Option<ItemDecision> {
        let fetcher = self.0.fetcher.as_ref()?;
        self.with(fetcher, |state| state.requests.decided(request, identifier))
    }

    /// The engine has allocated its own cache for the item, to load or to encode it.
    pub fn allocated(&self, request: &str, identifier: &str) {
        self.republish(|republish| republish.allocated(identifier));
        if let Some(fetcher) = &self.0.fetcher {
            self.with(fetcher, |State { loads, requests, .. }| {
                requests.allocated(request, identifier, loads);
            });
        }
    }

    /// Ends a scheduling pass. `freed` are the items that left the engine's own cache.
    pub fn build_step(&self, freed: &[String]) -> StepPlan {
        let save_again = self.republish(|republish| republish.build_step(freed));
        let plan = match &self.0.fetcher {
            Some(fetcher) => self.with(fetcher, |state| state.requests.build_step(freed)),
            None => StepPlan::default(),
        };
        StepPlan { save_again: save_again.unwrap_or_default(), ..plan }
    }

    /// A rank has copied these orders to its device.
    pub fn acknowledge(&self, rank: u32, orders: &[OrderId]) {
        if let Some(fetcher) = &self.0.fetcher {
            self.with(fetcher, |State { loads, requests, .. }| {
                requests.acknowledge(rank, orders, loads);
            });
        }
    }

    /// The oldest step that had not come back has ended on every rank: what it asked for has been copied. To be
    /// called once for each [`Scheduler::build_step`], in the same order, as vLLM calls
    /// `take_unavailable_requests`. Only where no acknowledgements come
    /// ([`Config::acknowledges_by_step`]) it has an effect.
    pub fn step_ended(&self) {
        if let Some(fetcher) = &self.0.fetcher {
            self.with(fetcher, |State { loads, requests, .. }| requests.step_ended(loads));
        }
    }

    /// A request has finished or was aborted.
    pub fn request_finished(&self, request: &str) {
        self.republish(|republish| republish.finished(request));
        if let Some(fetcher) = &self.0.fetcher {
            self.with(fetcher, |State { loads, requests, .. }| requests.finished(request, loads));
        }
    }

    /// What loading has done so far.
    pub fn counters(&self) -> LoadCounters {
        let Some(fetcher) = &self.0.fetcher else { return LoadCounters::default() };
        self.with(fetcher, |state| state.loads.counters.clone())
    }

    /// How long the stages of loading took.
    pub fn times(&self) -> LoadTimes {
        let Some(fetcher) = &self.0.fetcher else { return LoadTimes::default() };
        self.with(fetcher, |state| state.loads.times.clone())
    }

    /// What is open now.
    pub fn gauges(&self) -> SchedulerGauges {
        let Some(fetcher) = &self.0.fetcher else { return SchedulerGauges::default() };
        self.with(fetcher, |State { loads, requests, .. }| SchedulerGauges {
            requests: requests.open_requests(),
            orders: requests.open_orders(),
            keys: loads.open(),
            residents: loads.residents.len(),
            in_flight_bytes: loads.in_flight_bytes(),
        })
    }

    /// Stops accepting, drains, closes the store, unregisters and frees the pool, in this order and by
    /// `deadline`. What cannot be proven idle by then stays mapped. A second call closes nothing and returns
    /// the first one's report.
    pub async fn close(&self, deadline: Time) -> CloseReport {
        let bytes = self.pool().map_or(0, |pool| pool.region().len());
        let close = async {
            match &self.0.fetcher {
                Some(fetcher) => fetcher.close(deadline).await,
                None => close_client(&self.0.env, deadline).await,
            }
        };
        self.0.closing.once(&self.0.env, deadline, bytes, close).await
    }

    fn republish<R>(&self, call: impl FnOnce(&mut Republish) -> R) -> Option<R> {
        let republish = self.0.republish.as_ref()?;
        Some(call(&mut republish.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn with<R>(&self, fetcher: &Fetcher<E>, call: impl FnOnce(&mut State) -> R) -> R {
        call(&mut fetcher.lock())
    }
}

/// What the scheduler's side holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerGauges {
    /// Requests that have not finished.
    pub requests: usize,
    /// Orders that some rank has not acknowledged; each holds a pin.
    pub orders: usize,
    /// Keys being asked for or fetched.
    pub keys: usize,
    /// Items in the pool.
    pub residents: usize,
    /// Bytes in running gets.
    pub in_flight_bytes: u64,
}
