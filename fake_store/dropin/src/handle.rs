//! Handles, and what they are set up with.
//!
//! C holds a number, not a pointer: a handle that was destroyed, or never made, is found out, where Mooncake
//! would crash.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    sync::{Arc, Mutex},
    time::Duration,
};

use fake_store::{
    Client, ClientConfig,
    client::Protocol,
    protocol::{Call, ClientId, Reply, Request, SegmentId},
    server::{NodeServer, NodeSpec},
    service::NodeConfig,
    transport::{NetConfig, NetTransport, Transport},
};
use springtide::{
    env::Store,
    runtime::{TokioClock, TokioNetwork},
};

use crate::world::{InProcess, Tasks, World, lock, unique, world};

type FakeTransport = NetTransport<TokioNetwork, TokioClock>;
pub(crate) type FakeClient = Client<FakeTransport, TokioClock>;

/// How long a master may take to answer during a setup.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Segments that Mooncake refuses: too small for its transfer engine, and more than a test machine has.
const SEGMENT_BYTES_MIN: u64 = 4096;
const SEGMENT_BYTES_MAX: u64 = 64 << 30;

/// What `setup` was given.
pub(crate) struct Arguments {
    pub(crate) hostname: String,
    pub(crate) metadata_server: String,
    pub(crate) segment_bytes: u64,
    pub(crate) local_buffer_bytes: u64,
    pub(crate) protocol: String,
    pub(crate) master: String,
}

/// What a handle is set up with.
pub(crate) struct Ready {
    pub(crate) client: FakeClient,
    transport: FakeTransport,
    segment: Option<(ClientId, SegmentId)>,
    _master: Option<Arc<InProcess>>,
    _tasks: Tasks,
}

#[derive(Default)]
struct Handles {
    last: usize,
    /// `None` before the setup.
    living: BTreeMap<usize, Option<Arc<Ready>>>,
}

static HANDLES: Mutex<Handles> = Mutex::new(Handles { last: 0, living: BTreeMap::new() });

/// Numbers of handles are this far apart: none is null, and all look like addresses.
const STEP: usize = 16;

/// A new handle's number.
pub(crate) fn create() -> usize {
    let mut handles = lock(&HANDLES);
    handles.last += STEP;
    let number = handles.last;
    handles.living.insert(number, None);
    number
}

/// What a handle is set up with; nothing before the setup, after its end, and for a number of nobody.
pub(crate) fn find(number: usize) -> Option<Arc<Ready>> {
    lock(&HANDLES).living.get(&number).cloned().flatten()
}

/// Ends a handle. One that has ended, or was never made, is ignored.
pub(crate) fn destroy(number: usize) {
    let ready = lock(&HANDLES).living.remove(&number).flatten();
    close(ready);
}

/// Sets a handle up, again if it was: what it had is closed then.
///
/// # Errors
/// Why not, in words.
pub(crate) fn set_up(number: usize, arguments: &Arguments) -> Result<(), String> {
    if !lock(&HANDLES).living.contains_key(&number) {
        return Err("the handle was destroyed, or never made: Mooncake would crash".into());
    }
    let ready = Arc::new(connect(world()?, arguments)?);
    let old = lock(&HANDLES).living.insert(number, Some(ready)).flatten();
    close(old);
    Ok(())
}

fn close(ready: Option<Arc<Ready>>) {
    let (Some(ready), Ok(world)) = (ready, world()) else { return };
    world.run(async {
        // Every transfer stops here. Running calls of other threads keep the rest until they end.
        let _fence = ready.client.close().await;
        if let Some((client, segment)) = ready.segment {
            let call = ready.transport.call(Request { client, call: Call::Unmount { segment } });
            // Whether or not there is a master that hears it.
            let _unmounted = tokio_timeout(&world.clock, call).await;
        }
    });
}

fn connect(world: &World, arguments: &Arguments) -> Result<Ready, String> {
    let protocol = check(arguments)?;
    let (master, in_process) = world.master(&arguments.master)?;
    let hostname = with_port(&arguments.hostname)?;
    let host = hostname.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host).to_owned();
    let tasks = world.tasks();
    let spawner = tasks.spawner();
    let net = NetConfig { master: master.clone(), ..NetConfig::default() };
    let probe = NetTransport::new(TokioNetwork, world.clock, net.clone(), Vec::new());
    let none = Call::Exist { keys: Vec::new() };
    answered(world, &probe, ClientId(unique()), none)
        .map_err(|error| format!("no fake-mooncake answers at {:?}: {error}", arguments.master))?;

    let mut own = Vec::new();
    let mut segment = None;
    if arguments.segment_bytes > 0 {
        let spec = NodeSpec {
            client: ClientId(unique()),
            segment: SegmentId(unique()),
            name: hostname.clone(),
            bytes: arguments.segment_bytes,
            listen: format!("{host}:0"),
            endpoint: None,
            master,
            ping_timeout: Duration::from_secs(1),
        };
        let faults = world.faults.clone();
        let start = async {
            let config = NodeConfig::default();
            NodeServer::start(&TokioNetwork, world.clock, &spawner, faults, spec, config).await
        };
        let node = world.run(start).map_err(|error| error.to_string())?.service;
        // The server mounts it by itself, a moment later: once more changes nothing.
        let call = Call::Mount { segment: node.segment().clone() };
        answered(world, &probe, node.owner(), call)?;
        segment = Some((node.owner(), node.segment().id));
        own.push(node);
    }
    let transport = NetTransport::new(TokioNetwork, world.clock, net, own);
    let config = ClientConfig {
        protocol,
        local_buffer_bytes: arguments.local_buffer_bytes,
        ..ClientConfig::new(ClientId(unique()), hostname).single_buffer()
    };
    let client = Client::new(transport.clone(), world.clock, spawner, world.faults.clone(), config);
    Ok(Ready { client, transport, segment, _master: in_process, _tasks: tasks })
}

/// Checks what can be checked without a master.
fn check(arguments: &Arguments) -> Result<Protocol, String> {
    let Arguments { hostname, metadata_server, segment_bytes, master, .. } = arguments;
    if hostname.is_empty() {
        return Err("local_hostname is empty, expected HOST or HOST:PORT".into());
    }
    let has_scheme = metadata_server.split_once("://").is_some_and(|(_, rest)| !rest.is_empty());
    if metadata_server != mooncake_sys::P2P_HANDSHAKE && !has_scheme {
        return Err(format!(
            "metadata_server is {metadata_server:?}, on which Mooncake ends the process"
        ));
    }
    if master.is_empty() {
        return Err("master_server_addr is empty, on which Mooncake crashes".into());
    }
    if *segment_bytes > 0 && !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(segment_bytes) {
        return Err(format!(
            "global_segment_size: expected 0 or {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}, got {segment_bytes}"
        ));
    }
    match arguments.protocol.as_str() {
        "tcp" => Ok(Protocol::Tcp),
        "rdma" => Ok(Protocol::Rdma),
        other => Err(format!("protocol: expected tcp or rdma, got {other:?}")),
    }
}

/// A call that must be answered well.
fn answered(
    world: &World,
    transport: &FakeTransport,
    client: ClientId,
    call: Call,
) -> Result<(), String> {
    let call = transport.call(Request { client, call });
    match world.run(tokio_timeout(&world.clock, call)) {
        None => Err(format!("no answer within {ANSWER_LIMIT:?}")),
        Some(Err(error)) => Err(format!("{error:?}")),
        Some(Ok(Reply::Segment(Err(code)))) => Err(code.0.to_string()),
        Some(Ok(_)) => Ok(()),
    }
}

/// What `io` gives within the limit for answers.
async fn tokio_timeout<T: Send>(
    clock: &TokioClock,
    io: impl Future<Output = T> + Send,
) -> Option<T> {
    use springtide::env::Clock;
    clock.timeout_at(clock.now() + ANSWER_LIMIT, io).await.ok()
}

/// The name with a port: a free one if it has none.
fn with_port(hostname: &str) -> Result<String, String> {
    if hostname.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        return Ok(hostname.to_owned());
    }
    let port = TcpListener::bind((hostname, 0)).and_then(|listener| listener.local_addr());
    let port = port.map_err(|error| format!("no free port for {hostname:?}: {error}"))?.port();
    Ok(format!("{hostname}:{port}"))
}
