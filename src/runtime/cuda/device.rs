//! [`Device`] on CUDA: which memory a copy uses, and how it ends.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    io, mem,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
};

use tokio::sync::oneshot;

use super::{
    copies::{Started, start_in, start_out},
    driver::{CudaError, Driver, Ordinal, Result, Stream},
    lane::{Lane, Mark},
    libcuda::Libcuda,
    locked::Locked,
    tensor::{CudaEvent, CudaTensor},
    watcher::{self, Watched},
};
use crate::{
    env::{Device, DeviceError, Outcome, TensorSpec},
    pool::{Region, Transfer, View},
};

/// Bytes that are locked at a time.
pub const LOCK_BYTES: u64 = 1 << 30;

/// The CUDA devices of this process. Clones share them; memory is unlocked and contexts are released when the
/// last clone has gone and the last copy has ended.
#[derive(Clone)]
pub struct CudaDevice<D: Driver = Libcuda>(Arc<Shared<D>>);

struct Shared<D: Driver> {
    driver: D,
    // Dropped in this order: no context goes before what was locked in it.
    locked: Mutex<Vec<Locked<D>>>,
    lanes: Mutex<BTreeMap<Ordinal, Arc<Lane<D>>>>,
    lock_bytes: u64,
    watcher: Sender<Watched<D>>,
}

impl<D: Driver> CudaDevice<D> {
    /// The devices that `driver` reaches. Memory will be locked in chunks of `lock_bytes`, whole pages.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(driver: D, lock_bytes: u64) -> io::Result<Self> {
        let watcher = watcher::start()?;
        let (locked, lanes) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Shared { driver, locked, lanes, lock_bytes, watcher })))
    }

    /// Locks the pages of a region for copies of every device: to be called once at the start, since it takes
    /// about a second for some GiB. Takes a share in the context of `ordinal`.
    ///
    /// # Errors
    /// The driver's; nothing is locked then, and copies work all the same, only slower.
    pub fn lock(&self, ordinal: Ordinal, region: &Arc<Region>) -> Result<()> {
        let lane = self.0.lane(ordinal)?;
        let mut locked = self.0.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if !locked.iter().any(|locked| locked.is_of(region)) {
            locked.push(Locked::new(lane, region.clone(), self.0.lock_bytes)?);
        }
        Ok(())
    }

    /// The point behind all work that `stream`, of the primary context of `ordinal`, has so far.
    ///
    /// # Errors
    /// The driver's.
    pub fn mark(&self, ordinal: Ordinal, stream: Stream) -> Result<CudaEvent<D>> {
        let mark = Mark::new(&self.0.lane(ordinal)?)?;
        mark.record(stream)?;
        Ok(CudaEvent(Some(Arc::new(mark))))
    }
}

impl<D: Driver> Shared<D> {
    /// The lane of a device, opened when it is first used.
    fn lane(&self, ordinal: Ordinal) -> Result<Arc<Lane<D>>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(&ordinal) {
            return Ok(lane.clone());
        }
        let lane = Arc::new(Lane::open(self.driver.clone(), ordinal)?);
        lanes.insert(ordinal, lane.clone());
        Ok(lane)
    }

    fn start_out(
        self: Arc<Self>,
        tensor: CudaTensor,
        ready: CudaEvent<D>,
        dest: Transfer,
        offset: u64,
        answer: oneshot::Sender<Outcome<(), DeviceError>>,
    ) {
        let ended = |dest: Transfer, result| Outcome::Ended { buffer: dest.finish(), result };
        let uncertain = |buffer, error| Outcome::Uncertain { buffer, error: failure(&error) };
        // Whoever has stopped waiting gets no answer: the outcome is dropped, and gives the memory back.
        let say = |outcome| drop(answer.send(outcome));
        if let Err(error) = check_length(tensor.spec, dest.len(), offset) {
            return say(ended(dest, Err(error)));
        }
        let lane = match self.lane(tensor.ordinal) {
            Ok(lane) => lane,
            Err(error) => return say(ended(dest, Err(failure(&error)))),
        };
        match start_out(&lane, &tensor, &ready, &dest, offset, self.lock_bytes) {
            Started::Refused(error) => say(ended(dest, Err(failure(&error)))),
            Started::Untold(error) => {
                keep((tensor, self));
                say(uncertain(dest, error));
            }
            Started::Running { done, error } => {
                let shared = self.clone();
                self.watch(done, move |come| {
                    say(match come {
                        Ok(()) => {
                            drop((tensor, shared));
                            ended(dest, error.map_or(Ok(()), |error| Err(failure(&error))))
                        }
                        Err(error) => {
                            keep((tensor, shared));
                            uncertain(dest, error)
                        }
                    });
                });
            }
        }
    }

    fn start_in(
        self: Arc<Self>,
        source: View,
        offset: u64,
        tensor: CudaTensor,
        free: CudaEvent<D>,
        answer: oneshot::Sender<std::result::Result<(), DeviceError>>,
    ) {
        let say = |result| drop(answer.send(result));
        if let Err(error) = check_length(tensor.spec, source.len(), offset) {
            return say(Err(error));
        }
        let lane = match self.lane(tensor.ordinal) {
            Ok(lane) => lane,
            Err(error) => return say(Err(failure(&error))),
        };
        match start_in(&lane, &tensor, &free, &source, offset, self.lock_bytes) {
            Started::Refused(error) => say(Err(failure(&error))),
            Started::Untold(error) => {
                keep((tensor, source, self));
                say(Err(failure(&error)));
            }
            Started::Running { done, error } => {
                let shared = self.clone();
                self.watch(done, move |come| match come {
                    Ok(()) => {
                        drop((source, tensor, shared));
                        say(error.map_or(Ok(()), |error| Err(failure(&error))));
                    }
                    Err(error) => {
                        keep((tensor, source, shared));
                        say(Err(failure(&error)));
                    }
                });
            }
        }
    }

    fn watch(&self, done: Mark<D>, at_end: impl FnOnce(Result<()>) + Send + 'static) {
        // The thread goes on as long as there is a sender.
        let sent = self.watcher.send(Watched::new(done, at_end));
        assert!(sent.is_ok(), "the watcher's thread outlives its device");
    }
}

impl<D: Driver> Device for CudaDevice<D> {
    type Tensor = CudaTensor;
    type Event = CudaEvent<D>;

    fn spec(&self, tensor: &CudaTensor) -> TensorSpec {
        tensor.spec
    }

    fn copy_out(
        &self,
        tensor: CudaTensor,
        ready: CudaEvent<D>,
        dest: Transfer,
        offset: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        self.0.clone().start_out(tensor, ready, dest, offset, sender);
        answer(receiver)
    }

    fn copy_in(
        &self,
        source: View,
        offset: u64,
        tensor: CudaTensor,
        free: CudaEvent<D>,
    ) -> impl Future<Output = std::result::Result<(), DeviceError>> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        self.0.clone().start_in(source, offset, tensor, free, sender);
        answer(receiver)
    }
}

async fn answer<T>(receiver: oneshot::Receiver<T>) -> T {
    match receiver.await {
        Ok(outcome) => outcome,
        // Only a watcher that panicked says nothing. Its copies stay owned by nobody: callers have deadlines.
        Err(_) => pending().await,
    }
}

/// A copy may still run: its tensor, streams and locked pages must stay.
fn keep<T>(what: T) {
    tracing::error!(
        "nobody knows whether a copy still runs: its tensor is kept until the process ends"
    );
    mem::forget(what);
}

fn failure(error: &CudaError) -> DeviceError {
    DeviceError::Device { code: error.code(), message: error.to_string() }
}

fn check_length(spec: TensorSpec, len: u64, offset: u64) -> std::result::Result<(), DeviceError> {
    let (expected, got) = (spec.bytes(), len.saturating_sub(offset));
    if expected == got { Ok(()) } else { Err(DeviceError::Length { expected, got }) }
}
