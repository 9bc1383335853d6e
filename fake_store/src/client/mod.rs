//! A store handle: what Mooncake's client does between its caller, the master and the nodes.
//!
//! A put is three round trips (start, transfers, end or revoke), a get two (query, transfer). Each operation
//! through [`springtide::env::Store`] runs in a task of its own that owns the caller's transfers: a caller
//! that gives up stops nothing and frees nothing. A transfer that outlives its limit goes on in *its* task,
//! reading or filling the caller's memory, until it ends or the client is closed.
//!
//! | file | idea |
//! |---|---|
//! | `put`, `get` | the two protocols, over buffers |
//! | `store` | [`springtide::env::Store`]: ownership of the buffers |
//! | `calls` | the data calls with Mooncake's own names, over a caller's memory |
//! | `ops` | everything without a transfer; the copying path |
//! | `session` | a put in its single steps |
//! | `transfers` | limits, late transfers, closing |

mod calls;
mod config;
mod get;
mod ops;
mod put;
mod session;
mod store;
mod transfers;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use springtide::env::{Clock, ErrorCode, StoreError, Task, Time};

use self::transfers::Transfers;
pub use self::{
    calls::Item,
    config::{ClientConfig, Closing, Protocol},
    session::PutSession,
};
use crate::{
    faults::Faults,
    protocol::{Call, Reply, Request},
    transport::{CallError, Transport},
};

/// Runs a task beside its caller: [`springtide::env::Env::spawn`] of the host that the client lives on.
pub type Spawner = Arc<dyn Fn(Task) + Send + Sync>;

/// How often a client that waits for the master to come back tries.
const RECONNECT_STEP: Duration = Duration::from_millis(100);

/// A store handle. Clones are the same handle.
pub struct Client<T, C>(Arc<Inner<T, C>>);

struct Inner<T, C> {
    config: ClientConfig,
    transport: T,
    clock: C,
    spawner: Spawner,
    faults: Faults,
    transfers: Transfers,
    /// Registered memory: first address to length.
    registered: Mutex<BTreeMap<usize, usize>>,
    closed: AtomicBool,
    /// The last call found no master.
    refused: AtomicBool,
}

impl<T, C> Clone for Client<T, C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, C> fmt::Debug for Client<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.0.config.id).finish_non_exhaustive()
    }
}

impl<T: Transport, C: Clock> Client<T, C> {
    /// A handle that is set up. `faults` are those of registration; the servers have their own.
    pub fn new(
        transport: T,
        clock: C,
        spawner: Spawner,
        faults: Faults,
        config: ClientConfig,
    ) -> Self {
        Self(Arc::new(Inner {
            config,
            transport,
            clock,
            spawner,
            faults,
            transfers: Transfers::default(),
            registered: Mutex::default(),
            closed: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        }))
    }

    /// Its configuration.
    pub fn config(&self) -> &ClientConfig {
        &self.0.config
    }

    fn now(&self) -> Time {
        self.0.clock.now()
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// A code as the error of a call that began at `started`.
    fn error(&self, code: ErrorCode, started: Time) -> StoreError {
        let elapsed = self.now() - started;
        StoreError { code, elapsed, transfer_limit: self.0.config.transfer_limit }
    }

    /// One call to the master.
    async fn call(&self, call: Call) -> Result<Reply, ErrorCode> {
        if self.is_closed() {
            return Err(ErrorCode::InvalidParams);
        }
        let request = Request { client: self.0.config.id, call };
        let deadline = self.now() + self.0.config.rpc_timeout;
        let answered = self.0.clock.timeout_at(deadline, self.call_connected(request)).await;
        answered.unwrap_or(Err(ErrorCode::RpcTimeout))
    }

    /// Calls, and if there was no master the last time either, waits a while for one to appear.
    async fn call_connected(&self, request: Request) -> Result<Reply, ErrorCode> {
        let give_up = self.now() + self.0.config.reconnect;
        loop {
            let refused = match self.0.transport.call(request.clone()).await {
                Err(CallError::Refused) => self.0.refused.swap(true, Ordering::Relaxed),
                Err(CallError::Broken) => return Err(ErrorCode::RpcFail),
                Ok(reply) => {
                    self.0.refused.store(false, Ordering::Relaxed);
                    return Ok(reply);
                }
            };
            if !refused || self.now() >= give_up {
                return Err(ErrorCode::RpcFail);
            }
            self.0.clock.sleep(RECONNECT_STEP.min(give_up - self.now())).await;
        }
    }
}

/// The results of a batch call, one an item: those of the reply, or the one code that the call ended with.
/// A reply of another kind or length is what Mooncake calls a failed call.
macro_rules! batch {
    ($reply:expr, $variant:path, $n:expr) => {
        match $reply {
            Ok($variant(results)) if results.len() == $n => {
                results.into_iter().map(|result| result.map_err(|code| code.0)).collect()
            }
            Ok(_) => vec![Err(springtide::env::ErrorCode::RpcFail); $n],
            Err(code) => vec![Err(code); $n],
        }
    };
}
use batch;
