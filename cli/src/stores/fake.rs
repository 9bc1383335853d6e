//! The fake store over TCP, started here or elsewhere.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fake_store::{
    Client, ClientConfig, Faults, Knobs,
    client::Spawner,
    protocol::{ClientId, SegmentId},
    server::{MasterServer, NodeServer, NodeSpec},
    service::NodeConfig,
    transport::{NetConfig, NetTransport},
};
use springtide::{
    env::{Clock, Key, Store},
    runtime::{TokioClock, TokioNetwork},
};
use tokio::runtime::Handle;

use super::{Joining, Target};
use crate::{args::BenchArgs, failure::Failure};

/// How long a master may take to answer, and a node to lend its segment.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Clients that were made here.
static CLIENTS: AtomicU32 = AtomicU32::new(0);

/// A fake store.
pub struct Fake {
    master: String,
    spawner: Spawner,
    /// Kept while it is measured.
    _servers: Option<Servers>,
}

struct Servers {
    _master: MasterServer<TokioClock>,
    _node: NodeServer<TokioClock>,
}

impl Fake {
    /// The store whose master the arguments name, or a new one with room for `stored_bytes_max`.
    ///
    /// # Errors
    /// When no master answers, or none could be started.
    pub async fn open(
        arguments: &BenchArgs,
        stored_bytes_max: u64,
        handle: &Handle,
    ) -> Result<Self, Failure> {
        let handle = handle.clone();
        let spawner: Spawner = Arc::new(move |task| drop(handle.spawn(task)));
        if let Some(master) = arguments.master.clone() {
            let fake = Self { master, spawner, _servers: None };
            fake.try_master().await?;
            return Ok(fake);
        }
        let servers = start(&spawner, stored_bytes_max.saturating_mul(2)).await?;
        let master = servers._master.address.clone();
        Ok(Self { master, spawner, _servers: Some(servers) })
    }

    /// Asks the master something.
    async fn try_master(&self) -> Result<(), Failure> {
        let clock = TokioClock::new();
        let client = self.client(clock);
        let answers = client.exists(vec![Key::new("springtide-bench")]);
        let error = match clock.timeout_at(clock.now() + START_LIMIT, answers).await {
            Ok(answers) => match answers.into_iter().next() {
                Some(Err(error)) => error.code.to_string(),
                _ => return Ok(()),
            },
            Err(_) => format!("no answer within {START_LIMIT:?}"),
        };
        let master = &self.master;
        Err(Failure::failed(format!(
            "no fake-mooncake answers at {master} ({error}): start one with `fake-mooncake serve`, or leave \
             --master out to have one started"
        )))
    }

    fn client(&self, clock: TokioClock) -> TcpClient {
        let net = NetConfig { master: self.master.clone(), ..NetConfig::default() };
        let transport = NetTransport::new(TokioNetwork, clock, net, Vec::new());
        // Different from every other client: those of other processes too.
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let id = ClientId(1 << 63 | u64::from(process::id()) << 16 | u64::from(number));
        let config = ClientConfig::new(id, format!("bench-{number}:0"));
        Client::new(transport, clock, self.spawner.clone(), Faults::default(), config)
    }
}

type TcpClient = Client<NetTransport<TokioNetwork, TokioClock>, TokioClock>;

/// Starts a master and a node that lends `bytes`, on free ports of this host.
async fn start(spawner: &Spawner, bytes: u64) -> Result<Servers, Failure> {
    let (clock, network, faults) = (TokioClock::new(), TokioNetwork, Faults::default());
    let (listen, knobs) = ("127.0.0.1:0", Knobs::default());
    let master =
        MasterServer::start(&network, clock, spawner, faults.clone(), listen, knobs, 0).await;
    let master = master.map_err(Failure::failed)?;
    let spec = NodeSpec {
        client: ClientId(1),
        segment: SegmentId(1),
        name: "node-1".into(),
        bytes,
        listen: listen.into(),
        endpoint: None,
        master: master.address.clone(),
        ping_timeout: Duration::from_secs(1),
    };
    let node = NodeServer::start(&network, clock, spawner, faults, spec, NodeConfig::default());
    let node = node.await.map_err(Failure::failed)?;
    let deadline = clock.now() + START_LIMIT;
    while master.service.with(|master| master.usage().capacity_bytes) < bytes {
        if clock.now() > deadline {
            let text = format!("the node of {bytes} bytes did not join within {START_LIMIT:?}");
            return Err(Failure::failed(text));
        }
        clock.sleep(Duration::from_millis(1)).await;
    }
    Ok(Servers { _master: master, _node: node })
}

impl Target for Fake {
    type Store = TcpClient;

    fn name(&self) -> String {
        format!("fake over TCP {}", self.master)
    }

    async fn join(&self, _joining: Joining, clock: TokioClock) -> Result<Self::Store, Failure> {
        Ok(self.client(clock))
    }

    fn no_room(&self) -> String {
        format!("the store at {} has no room: start it with a larger --segment", self.master)
    }
}
