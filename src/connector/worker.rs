//! The connector in a worker process.
//!
//! A producer's saves live here ([`save`](Worker::save), [`wait_for_save`](Worker::wait_for_save)), and a
//! consumer's copies from the shared region to the device ([`load`](Worker::load)). Every rank loads; only
//! rank 0 saves, since all ranks hold the same tensor.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    calls,
    config::Config,
    deliveries::{DeliverError, Delivery, DeliveryCounters},
    key::Namespace,
    memory::{CloseReport, Closing, StartError, close_client},
    object::{HEADER_BYTES, object_bytes},
    requests::{LoadOrder, OrderId, StepPlan},
    saves::{SaveCounters, SaveReport, SaveTimes, Ticket},
    uploader::Uploader,
};
use crate::{
    env::{Clock, Device, Env, Time},
    log::{step, way},
    pool::{Mapper, Pool, View},
};

/// The worker's side of the connector. Clones share one state.
pub struct Worker<E: Env>(Arc<Handle<E>>);

struct Handle<E: Env> {
    env: E,
    namespace: Namespace,
    /// On a producer's rank 0.
    uploader: Option<Arc<Uploader<E>>>,
    /// Where this rank copies what the scheduler has loaded.
    mapper: Option<Mapper>,
    io_timeout: Duration,
    sent: Mutex<Sent>,
    deliveries: Mutex<DeliveryCounters>,
    closing: Closing,
}

/// What the last step asked of this rank, and which of it has been done.
#[derive(Default)]
struct Sent {
    orders: BTreeSet<OrderId>,
    delivered: BTreeSet<OrderId>,
}

/// What a step asks of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepWork {
    /// To be copied.
    pub load: Vec<LoadOrder>,
    /// Copied in an earlier step: to be acknowledged again, and nothing else.
    pub done: Vec<OrderId>,
    /// To be saved once more, if the engine holds them: [`Worker::save`] finds out whether that is needed.
    pub save_again: Vec<String>,
}

impl<E: Env> Clone for Worker<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Env> Drop for Handle<E> {
    fn drop(&mut self) {
        if let Some(uploader) = &self.uploader {
            uploader.stop();
        }
    }
}

/// A load that a worker makes: the order, and the tensor that receives it.
pub struct LoadTarget<D: Device> {
    /// What to copy.
    pub order: LoadOrder,
    /// Where to, of exactly the order's type and shape.
    pub tensor: D::Tensor,
    /// The last reader of the tensor's memory.
    pub free: D::Event,
}

impl<E: Env> Worker<E> {
    /// Starts a worker. A producer's rank 0 opens and registers a pool; what the scheduler loads is copied from
    /// `mapper`.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left allocated or registered.
    pub async fn start(env: E, config: Config, mapper: Option<Mapper>) -> Result<Self, StartError> {
        config.validate()?;
        if config.copies() && mapper.is_none() {
            return Err(StartError::Missing {
                role: if config.role.loads() { "consumer" } else { "producer with encode_once" },
                needed: "a mapping of the scheduler's region",
            });
        }
        let (namespace, io_timeout) = (Namespace::new(&config.namespace), config.io_timeout);
        let uploader = match config.role.saves() && config.rank == 0 {
            true => Some(Uploader::start(env.clone(), config).await?),
            false => None,
        };
        Ok(Self(Arc::new(Handle {
            env,
            namespace,
            uploader,
            mapper,
            io_timeout,
            sent: Mutex::default(),
            deliveries: Mutex::default(),
            closing: Closing::default(),
        })))
    }

    /// Begins to save an item once `ready` has come. Never waits and never fails: what cannot be saved ends
    /// as *dropped* with its reason. Calling it again for an item that the store has lost publishes it again,
    /// from the pool if it still lies there. `None` where this worker saves nothing.
    pub fn save(
        &self,
        identifier: &str,
        tensor: <E::Device as Device>::Tensor,
        ready: <E::Device as Device>::Event,
    ) -> Option<Ticket> {
        let uploader = self.0.uploader.as_ref()?;
        let spec = self.0.env.device().spec(&tensor);
        Some(uploader.save(self.0.namespace.key(identifier), spec, tensor, ready))
    }

    /// Waits until every save begun before the call has ended, at most until `deadline`. Covers each ticket in
    /// one report; the deadline ends the rest as *timed out*.
    pub async fn wait_for_save(&self, deadline: Time) -> SaveReport {
        match &self.0.uploader {
            Some(uploader) => uploader.wait(deadline).await,
            None => SaveReport::default(),
        }
    }

    /// What a step's plan asks of this rank. An engine that schedules ahead sends an order again before the
    /// first copy's acknowledgement has come back; by the time of the second copy the memory may be another
    /// item's, and the engine may have dropped the tensor. So an order is copied once.
    pub fn due(&self, plan: &StepPlan) -> StepWork {
        let mut sent = self.sent();
        sent.orders = plan.orders.iter().map(|order| order.id).collect();
        let Sent { orders, delivered } = &mut *sent;
        // Plans hold all that is not acknowledged: what is missing here never comes again.
        delivered.retain(|id| orders.contains(id));
        let load = plan.orders.iter().filter(|order| !delivered.contains(&order.id));
        let save_again = match &self.0.uploader {
            Some(_) => plan.save_again.clone(),
            None => Vec::new(),
        };
        let done = delivered.iter().copied().collect();
        StepWork { load: load.cloned().collect(), done, save_again }
    }

    /// Copies the orders of a step, as [`Worker::due`] gives them, from the shared region into their tensors.
    /// All copies are started before the first is awaited; each ends within the I/O timeout.
    pub async fn load(&self, targets: Vec<LoadTarget<E::Device>>) -> Vec<Delivery> {
        let begun = self.0.env.clock().now();
        let start = |target: LoadTarget<E::Device>| {
            let bytes = target.order.spec.bytes();
            let key = self.0.namespace.key(&target.order.identifier);
            let span = way!("deliver", &key, order = target.order.id.0, bytes);
            (key, span, bytes, self.start_load(target))
        };
        let started: Vec<_> = targets.into_iter().map(start).collect();
        let mut deliveries = Vec::with_capacity(started.len());
        for (key, span, bytes, (order, copy)) in started {
            let result = match copy {
                Ok(copy) => copy.await,
                Err(error) => Err(error),
            };
            match &result {
                Ok(()) => step!(span => &key, "delivered"),
                Err(error) => step!(span => &key, reason = %error, "not delivered"),
            }
            self.deliveries().count(&result, bytes, self.0.env.clock().now() - begun);
            let mut sent = self.sent();
            if result.is_ok() && sent.orders.contains(&order) {
                sent.delivered.insert(order);
            }
            deliveries.push(Delivery { order, result });
        }
        deliveries
    }

    /// The producer's pool.
    pub fn pool(&self) -> Option<&Pool> {
        self.0.uploader.as_ref().map(|uploader| &uploader.memory.pool)
    }

    /// What saving has done so far.
    pub fn counters(&self) -> SaveCounters {
        self.0.uploader.as_ref().map(|uploader| uploader.counters()).unwrap_or_default()
    }

    /// How long the stages of saving took.
    pub fn times(&self) -> SaveTimes {
        self.0.uploader.as_ref().map(|uploader| uploader.times()).unwrap_or_default()
    }

    /// What was copied to the device, on a consumer; `None` on a pure producer.
    pub fn delivered(&self) -> Option<DeliveryCounters> {
        self.0.mapper.as_ref().map(|_| self.deliveries().clone())
    }

    /// Bytes in running puts.
    pub fn in_flight_bytes(&self) -> u64 {
        self.0.uploader.as_ref().map_or(0, |uploader| uploader.in_flight_bytes())
    }

    /// Items of this worker that lie in its pool.
    pub fn residents(&self) -> usize {
        self.0.uploader.as_ref().map_or(0, |uploader| uploader.residents())
    }

    /// Stops accepting, drains, closes the store, unregisters and frees the pool, in this order and by
    /// `deadline`. What cannot be proven idle by then stays mapped. A second call closes nothing and returns
    /// the first one's report.
    pub async fn close(&self, deadline: Time) -> CloseReport {
        let bytes = self.pool().map_or(0, |pool| pool.region().len());
        let close = async {
            match &self.0.uploader {
                Some(uploader) => uploader.close(deadline).await,
                None => close_client(&self.0.env, deadline).await,
            }
        };
        self.0.closing.once(&self.0.env, deadline, bytes, close).await
    }

    /// Starts one copy. What is awaited later borrows nothing: the copy runs from here on.
    fn start_load(&self, target: LoadTarget<E::Device>) -> (OrderId, Copy) {
        let LoadTarget { order, tensor, free } = target;
        let id = order.id;
        let copy = self.view(&order, &tensor).map(|view| {
            let env = self.0.env.clone();
            let deadline = env.clock().now() + self.0.io_timeout;
            let device = env.device();
            let copy = calls::start(|| device.copy_in(view.clone(), HEADER_BYTES, tensor, free));
            Box::pin(async move {
                calls::finish(&env, deadline, copy).await.map_err(|_| DeliverError::NoAnswer)??;
                // The promise held to the end of the copy, or the bytes are not to be trusted.
                Ok(view.check()?)
            }) as Pin<Box<dyn Future<Output = Result<(), DeliverError>> + Send>>
        });
        (id, copy)
    }

    fn deliveries(&self) -> std::sync::MutexGuard<'_, DeliveryCounters> {
        self.0.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sent(&self) -> std::sync::MutexGuard<'_, Sent> {
        self.0.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(
        &self,
        order: &LoadOrder,
        tensor: &<E::Device as Device>::Tensor,
    ) -> Result<View, DeliverError> {
        let mapper = self.0.mapper.as_ref().ok_or(DeliverError::NoRegion)?;
        let got = self.0.env.device().spec(tensor);
        if got != order.spec || order.source.len != object_bytes(&got) {
            let (expected, got) = (order.spec.to_string(), got.to_string());
            return Err(DeliverError::Tensor { expected, got });
        }
        Ok(mapper.view(&order.source)?)
    }
}

type Copy = Result<Pin<Box<dyn Future<Output = Result<(), DeliverError>> + Send>>, DeliverError>;
