//! The servers: master and node behind sockets.
//!
//! Each accepts connections for ever and answers what comes over them, one call or transfer at a time on
//! each. Whatever a peer sends, it costs at most its own connection.

mod connections;

use std::{io, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use springtide::env::{Clock, Listener, Network};

use self::connections::{serve_master, serve_node};
use crate::{
    client::Spawner,
    cluster::PING_PERIOD,
    faults::Faults,
    master::{KnobError, Knobs, TICK},
    protocol::{Call, ClientId, ClientStatus, Reply, Request, Segment, SegmentId},
    service::{Health, MasterService, NodeConfig, NodeService},
    transport::{NetConfig, NetTransport, Transport},
};

/// How long a server waits after it could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address could not be bound.
    #[error("cannot listen on {address}: {source}; port 0 takes a free one")]
    Bind {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The master refused its knobs.
    #[error("master: {0}")]
    Knobs(#[from] KnobError),
}

/// A master that listens.
#[derive(Debug)]
pub struct MasterServer<C> {
    /// The master itself, to look at it and to stop it.
    pub service: Arc<MasterService<C>>,
    /// Where it listens.
    pub address: String,
}

impl<C: Clock> MasterServer<C> {
    /// Starts a new, empty master on `address` (port 0 asks for a free one), with its loops.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn start<N: Network>(
        network: &N,
        clock: C,
        spawner: &Spawner,
        faults: Faults,
        address: &str,
        knobs: Knobs,
        seed: u64,
    ) -> Result<Self, ServeError> {
        let service = Arc::new(MasterService::new(clock.clone(), faults, knobs, seed)?);
        let (listener, address) = bind(network, address).await?;
        let (master, ticks) = (service.clone(), clock.clone());
        spawner(Box::pin(async move {
            loop {
                ticks.sleep(TICK).await;
                master.tick();
            }
        }));
        let master = service.clone();
        accept(clock, spawner.clone(), listener, move |stream| {
            let master = master.clone();
            async move { serve_master(&master, stream).await }
        });
        Ok(Self { service, address })
    }
}

/// A node that lends a segment to a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The client that owns it; different from every other client.
    pub client: ClientId,
    /// The segment; different for every process that lends one, restarted ones included.
    pub segment: SegmentId,
    /// Its name for placement.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Where it listens; port 0 asks for a free one.
    pub listen: String,
    /// Where clients reach it; the bound address if absent.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The master's address.
    pub master: String,
    /// How long a ping may take.
    #[serde(rename = "ping_timeout_ms", with = "crate::millis", default = "ping_timeout")]
    pub ping_timeout: Duration,
}

fn ping_timeout() -> Duration {
    PING_PERIOD
}

/// A node that listens and pings.
#[derive(Debug)]
pub struct NodeServer<C> {
    /// The node itself: for clients in its process, and to stop it.
    pub service: Arc<NodeService<C>>,
    /// Where it listens.
    pub address: String,
}

impl<C: Clock> NodeServer<C> {
    /// Starts a node. It mounts its segment as soon as the master answers, and again whenever the master
    /// asks for it.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn start<N: Network>(
        network: &N,
        clock: C,
        spawner: &Spawner,
        faults: Faults,
        spec: NodeSpec,
        config: NodeConfig,
    ) -> Result<Self, ServeError> {
        let (listener, address) = bind(network, &spec.listen).await?;
        let segment = Segment {
            id: spec.segment,
            name: spec.name.clone(),
            endpoint: spec.endpoint.clone().unwrap_or_else(|| address.clone()),
            bytes: spec.bytes,
        };
        let service =
            Arc::new(NodeService::new(clock.clone(), faults, config, spec.client, segment));
        let net = NetConfig {
            master: spec.master,
            connect_timeout: spec.ping_timeout,
            ..NetConfig::default()
        };
        let transport = NetTransport::new(network.clone(), clock.clone(), net, Vec::new());
        let (node, pings) = (service.clone(), clock.clone());
        spawner(Box::pin(async move {
            keep_mounted(&node, &transport, &pings, spec.ping_timeout).await
        }));
        let node = service.clone();
        accept(clock, spawner.clone(), listener, move |stream| {
            let node = node.clone();
            async move { serve_node(&node, stream).await }
        });
        Ok(Self { service, address })
    }
}

/// Mounts a node's segment and pings the master every second, for ever.
async fn keep_mounted<C: Clock, T: Transport>(
    node: &NodeService<C>,
    transport: &T,
    clock: &C,
    timeout: Duration,
) {
    let client = node.owner();
    let ask = async |call| {
        let deadline = clock.now() + timeout;
        let reply = clock.timeout_at(deadline, transport.call(Request { client, call })).await;
        reply.ok().and_then(Result::ok)
    };
    let mut mounted = false;
    loop {
        if node.health() == Health::Up {
            let segment = node.segment().clone();
            let reply = match mounted {
                false => ask(Call::Mount { segment }).await,
                true => match ask(Call::Ping).await {
                    Some(Reply::Pong(ClientStatus::NeedRemount)) => {
                        ask(Call::Remount { segments: vec![segment] }).await
                    }
                    pong => pong,
                },
            };
            mounted |= reply.is_some();
            node.set_pings_ok(reply.is_some());
        }
        clock.sleep(PING_PERIOD).await;
    }
}

async fn bind<N: Network>(network: &N, address: &str) -> Result<(N::Listener, String), ServeError> {
    let failed = |source| ServeError::Bind { address: address.to_owned(), source };
    let listener = network.bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Accepts for ever and serves each connection in a task of its own.
fn accept<L, C, F>(
    clock: C,
    spawner: Spawner,
    mut listener: L,
    serve: impl Fn(L::Stream) -> F + Send + 'static,
) where
    L: Listener,
    C: Clock,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let connections = spawner.clone();
    spawner(Box::pin(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let served = serve(stream);
                    connections(Box::pin(async move {
                        // A peer that sends nonsense or goes away ends its own connection only.
                        let _ended = served.await;
                    }));
                }
                Err(_) => clock.sleep(ACCEPT_PAUSE).await,
            }
        }
    }));
}
