//! The pool of one process: opened and registered at the start, taken down in order at the end.
//!
//! Start: allocate, then register the very same region. End: close the store, and only when it says that no
//! I/O can touch the region any more unregister and free it; otherwise the memory is leaked on purpose.

use std::sync::Arc;

use super::{
    calls::{NoAnswer, bounded},
    config::Config,
    residents::Residents,
};
use crate::{
    env::{Clock, Env, Fence, Store, StoreError, StoreLimits, Time},
    pool::{AllocError, Contiguity, Lease, Pool, PoolConfig, PoolError},
};

/// The connector did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error("configuration: {0}")]
    Config(#[from] super::config::ConfigError),
    /// The pool could not be allocated.
    #[error("pool: {0}")]
    Pool(#[from] PoolError),
    /// The store refused the region.
    #[error("registering {bytes} bytes with the store: {error}")]
    Register {
        /// Length of the region.
        bytes: u64,
        /// The store's error.
        error: StoreError,
    },
    /// The store did not answer within the I/O timeout.
    #[error("registering {bytes} bytes with the store: no answer within the I/O timeout")]
    RegisterTimeout {
        /// Length of the region.
        bytes: u64,
    },
    /// A part that this role needs was not passed.
    #[error("role {role} needs {needed}")]
    Missing {
        /// The role.
        role: &'static str,
        /// What it needs.
        needed: &'static str,
    },
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseReport {
    /// Operations that were still running when the drain deadline passed.
    pub abandoned: usize,
    /// What the store said of I/O after its close.
    pub fence: Fence,
    /// Quarantined bytes that the fence released.
    pub released_bytes: u64,
    /// Bytes left mapped for ever, because I/O may still touch them.
    pub leaked_bytes: u64,
}

/// Closes the store client of a process that has no pool.
pub(super) async fn close_client<E: Env>(env: &E, deadline: Time) -> CloseReport {
    let fence = bounded(env, deadline, || env.store().close()).await;
    let fence = fence.unwrap_or(Fence::Unknown);
    CloseReport { abandoned: 0, fence, released_bytes: 0, leaked_bytes: 0 }
}

/// Closes once, however often it is asked to: a store client must not be closed twice.
#[derive(Default)]
pub(super) struct Closing(tokio::sync::Mutex<Option<CloseReport>>);

impl Closing {
    /// Runs `close` unless that has been done; its report. A call beside a running one waits for it until its
    /// own `deadline`, when it knows no more than that `bytes` are still mapped.
    pub(super) async fn once<E: Env>(
        &self,
        env: &E,
        deadline: Time,
        bytes: u64,
        close: impl Future<Output = CloseReport> + Send,
    ) -> CloseReport {
        let Ok(mut done) = env.clock().timeout_at(deadline, self.0.lock()).await else {
            let fence = Fence::Unknown;
            return CloseReport { abandoned: 0, fence, released_bytes: 0, leaked_bytes: bytes };
        };
        match *done {
            Some(report) => report,
            None => *done.insert(close.await),
        }
    }
}

/// A registered pool and how objects are laid out in it.
pub(super) struct Memory {
    pub(super) pool: Pool,
    pub(super) contiguity: Contiguity,
    pub(super) limits: StoreLimits,
}

impl Memory {
    pub(super) async fn open<E: Env>(env: &E, config: &Config) -> Result<Self, StartError> {
        let limit = env.clock().now() + config.io_timeout;
        let config = &config.pool;
        let limits = env.store().limits();
        let contiguity =
            if limits.buffers_per_object > 1 { Contiguity::Extents } else { Contiguity::Required };
        let max_extents = config.max_extents.min(limits.buffers_per_object.max(1));
        let pool = Pool::new(&PoolConfig { max_extents, ..config.clone() })?;
        let region = Arc::clone(pool.region());
        let bytes = region.len();
        match bounded(env, limit, || env.store().register(Arc::clone(&region))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(StartError::Register { bytes, error }),
            Err(NoAnswer::Late | NoAnswer::Panicked) => {
                // It may still be registered later: the mapping must outlive this attempt.
                std::mem::forget(region);
                return Err(StartError::RegisterTimeout { bytes });
            }
        }
        Ok(Self { pool, contiguity, limits })
    }

    /// Memory for an object, evicting residents if need be.
    pub(super) fn allocate(
        &self,
        residents: &mut Residents,
        len: u64,
        evicted: &mut u64,
    ) -> Result<Lease, AllocError> {
        match self.pool.allocate(len, self.contiguity) {
            Err(AllocError::NoBytes { .. } | AllocError::NoShape { .. }) => {
                for handle in self.pool.evict_until_fits(len, self.contiguity) {
                    residents.evicted(handle);
                    *evicted += 1;
                }
                self.pool.allocate(len, self.contiguity)
            }
            result => result,
        }
    }

    /// Whether an object of this length can ever be held and sent.
    pub(super) fn takes(&self, len: u64) -> bool {
        self.limits.object_bytes_max.is_none_or(|max| len <= max)
    }

    /// Closes the store and gives the region back, or leaks it. The store's fence covers its own I/O: without
    /// `device_idle`, what is quarantined stays so, and the region mapped.
    pub(super) async fn close<E: Env>(
        &self,
        env: &E,
        abandoned: usize,
        device_idle: bool,
        deadline: Time,
    ) -> CloseReport {
        let mut report = close_client(env, deadline).await;
        let region = Arc::clone(self.pool.region());
        report.abandoned = abandoned;
        report.leaked_bytes = region.len();
        if report.fence == Fence::Fenced {
            if device_idle {
                report.released_bytes = self.pool.release_quarantine();
            }
            let unregister = || env.store().unregister(Arc::clone(&region));
            if let Ok(Ok(())) = bounded(env, deadline, unregister).await
                && device_idle
            {
                report.leaked_bytes = 0;
                return report;
            }
        }
        // A card may still write here: the mapping must outlive the process's use of it.
        std::mem::forget(region);
        report
    }
}
