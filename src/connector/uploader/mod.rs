//! Carries saves to the store: the asynchronous shell around [`Saves`].
//!
//! One driver task turns the machine's actions into store calls, each in a task of its own that owns what it
//! moves. Memory is where its upload is: in a device copy, in a store call, or here between the two.

mod driver;

use std::{collections::BTreeMap, pin::pin};

use super::{
    calls::{self, NoAnswer, bounded},
    config::Config,
    memory::{CloseReport, Memory, StartError},
    object::{self, HEADER_BYTES, Header},
    payload::Proving,
    residents::Residents,
    saves::{DropReason, SaveCounters, SaveReport, SaveTimes, Saves, Ticket, UploadId, WaitId},
};
use crate::{
    env::{Clock, Device, Env, Key, Outcome, TensorSpec, Time},
    pool::{AllocError, Lease, QuarantineCause},
    sync::{Arc, Mutex, MutexGuard, Notify, PoisonError},
};

pub(super) struct Uploader<E: Env> {
    env: E,
    config: Config,
    pub(super) memory: Memory,
    state: Mutex<State>,
    /// Wakes the driver.
    wake: Notify,
    /// Wakes those who wait for saves or for the drain.
    changed: Notify,
}

struct State {
    saves: Saves,
    residents: Residents,
    /// Memory that is neither in a copy nor in a store call, and since when.
    leases: BTreeMap<UploadId, (Lease, Time)>,
    times: SaveTimes,
    /// When uploads began that are not over.
    begun: BTreeMap<UploadId, Time>,
    evicted: u64,
    /// No copy from the device has ended without saying that it is over.
    device_idle: bool,
    stopped: bool,
}

impl<E: Env> Uploader<E> {
    /// Opens the pool and starts the driver.
    pub(super) async fn start(env: E, config: Config) -> Result<Arc<Self>, StartError> {
        let memory = Memory::open(&env, &config).await?;
        let state = State {
            saves: Saves::new(config.saves.clone(), memory.limits.fragments_per_batch),
            residents: Residents::default(),
            leases: BTreeMap::new(),
            times: SaveTimes::default(),
            begun: BTreeMap::new(),
            evicted: 0,
            device_idle: true,
            stopped: false,
        };
        let uploader = Arc::new(Self {
            env,
            config,
            memory,
            state: Mutex::new(state),
            wake: Notify::new(),
            changed: Notify::new(),
        });
        uploader.env.spawn(Box::pin(Arc::clone(&uploader).drive()));
        Ok(uploader)
    }

    /// Begins to save a tensor. Allocates, starts the copy and returns; never waits.
    pub(super) fn save(
        self: &Arc<Self>,
        key: Key,
        spec: TensorSpec,
        tensor: <E::Device as Device>::Tensor,
        ready: <E::Device as Device>::Event,
    ) -> Ticket {
        let len = object::object_bytes(&spec);
        let (ticket, upload, lease) = {
            let mut state = self.lock();
            if let Some(reason) = self.unsuitable(&spec, len) {
                return state.saves.refuse(key, reason);
            }
            let now = self.env.clock().now();
            if let Some(ticket) = state.saves.join(&key, len, now) {
                drop(state);
                self.wake.notify_one();
                return ticket;
            }
            if let Some(reason) = state.saves.refusal() {
                return state.saves.refuse(key, reason);
            }
            if let Some(ticket) = self.reuse(&mut state, &key, len, now) {
                drop(state);
                self.wake.notify_one();
                return ticket;
            }
            let State { residents, evicted, .. } = &mut *state;
            let lease = match self.memory.allocate(residents, len, evicted) {
                Ok(lease) => lease,
                Err(AllocError::TooLarge { .. }) => {
                    return state.saves.refuse(key, DropReason::TooLarge);
                }
                Err(_) => return state.saves.refuse(key, DropReason::PoolFull),
            };
            let fragments = lease.extents().len();
            let (ticket, upload) = state.saves.open(key.clone(), len, fragments, false, now);
            state.begun.insert(upload, now);
            (ticket, upload, lease)
        };
        let device = self.env.device();
        let dest = lease.into_transfer();
        let proving = self.proving(&key, spec);
        let copy =
            calls::start(|| device.copy_out_seen(tensor, ready, dest, HEADER_BYTES, proving));
        let uploader = Arc::clone(self);
        self.env.spawn(Box::pin(async move {
            let started = uploader.env.clock().now();
            let limit = started + uploader.config.io_timeout;
            let copied = match calls::finish(&uploader.env, limit, copy).await {
                Ok((Outcome::Ended { buffer, result: Ok(()) }, proved)) => Some((buffer, proved)),
                Ok((Outcome::Uncertain { buffer, .. }, _)) => {
                    buffer.quarantine(QuarantineCause::Uncertain);
                    uploader.device_unsure();
                    None
                }
                Err(NoAnswer::Panicked) => {
                    uploader.device_unsure();
                    None
                }
                // Late: the device owns the memory until the copy is over.
                Ok((Outcome::Ended { .. }, _)) | Err(NoAnswer::Late) => None,
            };
            let took = uploader.env.clock().now() - started;
            uploader.lock().times.copy.record(took);
            uploader.copied(upload, key, spec, copied).await;
        }));
        self.wake.notify_one();
        ticket
    }

    /// Waits until every ticket opened before the call has ended, at most until `deadline`.
    pub(super) async fn wait(&self, deadline: Time) -> SaveReport {
        let wait = Waiter { uploader: self, id: self.lock().saves.begin_wait(deadline) };
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = self.env.clock().now();
            if let Some(report) = self.lock().saves.poll_wait(wait.id, now) {
                return report;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.env.clock().sleep_until(deadline) => {}
            }
        }
    }

    pub(super) fn counters(&self) -> SaveCounters {
        self.lock().saves.counters()
    }

    pub(super) fn times(&self) -> SaveTimes {
        self.lock().times.clone()
    }

    /// Bytes in running puts.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.lock().saves.in_flight_bytes()
    }

    /// Number of items of this worker that lie in its pool.
    pub(super) fn residents(&self) -> usize {
        self.lock().residents.len()
    }

    /// Stops accepting, drains for at most half of the time left, closes the store, gives the memory back.
    pub(super) async fn close(&self, deadline: Time) -> CloseReport {
        self.lock().saves.close();
        let now = self.env.clock().now();
        let drain_until = now + (deadline - now) / 2;
        let abandoned = loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let open = self.lock().saves.open_uploads();
            if open == 0 || self.env.clock().now() >= drain_until {
                break open;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.env.clock().sleep_until(drain_until) => {}
            }
        };
        self.stop();
        let device_idle = self.lock().device_idle;
        self.memory.close(&self.env, abandoned, device_idle, deadline).await
    }

    /// Ends the driver, and all tickets. Running operations keep what they own.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.saves.stop();
        state.stopped = true;
        drop(state);
        self.notify();
    }

    // -- inside ----------------------------------------------------------------------------------------

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held is a bug that must not turn into a second one here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy from the device may still write into the region, and nothing will say when it is over: the
    /// mapping must outlive the process's use of it, whatever the store says of its own I/O.
    fn device_unsure(&self) {
        if std::mem::replace(&mut self.lock().device_idle, false) {
            std::mem::forget(Arc::clone(self.memory.pool.region()));
        }
    }

    /// Why such a tensor is never saved.
    fn unsuitable(&self, spec: &TensorSpec, len: u64) -> Option<DropReason> {
        let namespace = &self.config.namespace;
        if spec.bytes() == 0 {
            Some(DropReason::Empty)
        } else if spec.dtype != namespace.dtype
            || spec.shape.dims().last() != Some(&namespace.width)
        {
            Some(DropReason::WrongSpec)
        } else if !self.memory.takes(len) {
            Some(DropReason::TooLarge)
        } else {
            None
        }
    }

    /// Saves an item whose bytes still lie in the pool: no copy from the device.
    fn reuse(&self, state: &mut State, key: &Key, len: u64, now: Time) -> Option<Ticket> {
        let handle = state.residents.get(key)?;
        let lease = self.memory.pool.reclaim(handle)?;
        state.residents.remove(key);
        if lease.len() != len {
            return None;
        }
        let fragments = lease.extents().len();
        let (ticket, upload) = state.saves.open(key.clone(), len, fragments, true, now);
        state.begun.insert(upload, now);
        state.leases.insert(upload, (lease, now));
        Some(ticket)
    }

    /// What proves an object of this worker.
    fn proving(&self, key: &Key, spec: TensorSpec) -> Proving {
        let Config { namespace, payload_checksum, .. } = &self.config;
        Proving::begin(key, spec, namespace.secret.as_ref(), *payload_checksum)
    }

    /// The copy has ended; with it the proof of what was copied, if the device could make it.
    async fn copied(
        &self,
        upload: UploadId,
        key: Key,
        spec: TensorSpec,
        copied: Option<(Lease, Option<Proving>)>,
    ) {
        let Some((mut lease, proved)) = copied else {
            self.lock().saves.copied(upload, false);
            return self.notify();
        };
        let proved = match proved {
            Some(proved) => proved,
            None => self.proving(&key, spec).over(&lease).await,
        };
        let header = Header::new(&key, spec, proved.finish());
        lease.write_at(0, &header.encode());
        let now = self.env.clock().now();
        let mut state = self.lock();
        state.leases.insert(upload, (lease, now));
        state.saves.copied(upload, true);
        drop(state);
        self.notify();
    }

    fn notify(&self) {
        self.wake.notify_one();
        self.changed.notify_waiters();
    }
}

/// Gives the wait back when its caller stops waiting.
struct Waiter<'a, E: Env> {
    uploader: &'a Uploader<E>,
    id: WaitId,
}

impl<E: Env> Drop for Waiter<'_, E> {
    fn drop(&mut self) {
        self.uploader.lock().saves.abandon_wait(self.id);
    }
}
