//! The fake store's protocol: its servers under a peer that sends anything, and its client under servers
//! that answer anything.
//!
//! Each input has a world of its own, in virtual time: an input that fails once fails again.

mod lines;

use std::{sync::Arc, time::Duration};

use fake_store::{
    Client, ClientConfig, Faults, Knobs, Spawner,
    protocol::{Call, ClientId, ReplicaConfig, Reply, Request, Segment, SegmentId},
    server::{MasterServer, NodeServer, NodeSpec},
    service::NodeConfig,
    transport::{NetConfig, NetTransport, Transport},
};
use springtide::{env::Clock as _, runtime::TokioClock};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::{Builder, Handle},
};

use self::lines::{Lines, PIPE_BYTES};

const MASTER: &str = "master:1";
const NODE: &str = "node:1";
const STRANGER: &str = "stranger:1";
/// Virtual time within which everything must have ended.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes that a server may answer with.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long clients wait here for anything. A master turns a hundred times in a virtual second, so a client
/// as patient as usual would spend an input's time on turns in which nothing happens.
const PATIENCE: Duration = Duration::from_millis(40);
/// Bytes of a segment: room for some objects of [`VALUE`]'s length, and quick to make for every input.
const SEGMENT_BYTES: u64 = 16 << 10;
/// What clients put.
const VALUE: [u8; 600] = [7; 600];

/// The first byte chooses who is sent the rest: the master, a node, or a client that asks for something.
pub fn run(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O").block_on(async {
        let clock = TokioClock::new();
        let all = async {
            match choice % 4 {
                0 => server(MASTER, rest).await,
                1 => server(NODE, rest).await,
                2 => client(MASTER, rest).await,
                _ => client(STRANGER, rest).await,
            }
        };
        let ended = clock.timeout_at(clock.now() + TIME_MAX, all).await;
        assert!(ended.is_ok(), "something waits for ever");
    });
}

/// A master and a node that has mounted its segment.
struct World {
    lines: Lines,
    master: MasterServer<TokioClock>,
    clock: TokioClock,
}

fn spawner() -> Spawner {
    Arc::new(|task| drop(Handle::current().spawn(task)))
}

impl World {
    async fn new() -> Self {
        let (lines, clock, faults) = (Lines::default(), TokioClock::new(), Faults::default());
        let knobs = Knobs::default();
        let (spawner, broken) = (spawner(), faults.clone());
        let master = MasterServer::start(&lines, clock, &spawner, broken, MASTER, knobs, 1);
        let master = master.await.expect("the address is free");
        let spec = NodeSpec {
            client: ClientId(1),
            segment: SegmentId(1),
            name: "node".into(),
            bytes: SEGMENT_BYTES,
            listen: NODE.into(),
            endpoint: None,
            master: MASTER.into(),
            ping_timeout: Duration::from_secs(1),
        };
        let config = NodeConfig::default();
        let node = NodeServer::start(&lines, clock, &spawner, faults, spec, config);
        node.await.expect("the address is free");
        clock.sleep(Duration::from_millis(20)).await;
        let mounted = master.service.with(|master| master.usage().capacity_bytes);
        assert_eq!(mounted, SEGMENT_BYTES, "the node has mounted its segment");
        Self { lines, master, clock }
    }

    fn transport(&self) -> NetTransport<Lines, TokioClock> {
        transport(self.lines.clone(), self.clock)
    }

    /// The master's books balance, and it answers.
    async fn check(&self) {
        self.master.service.with(|master| master.verify()).expect("the master's books balance");
        let ping = Request { client: ClientId(9), call: Call::Ping };
        let reply = self.transport().call(ping).await;
        assert!(matches!(reply, Ok(Reply::Pong(_))), "{reply:?}");
    }
}

fn transport(lines: Lines, clock: TokioClock) -> NetTransport<Lines, TokioClock> {
    let net = NetConfig {
        master: MASTER.into(),
        connect_timeout: PATIENCE,
        status_timeout: PATIENCE,
        ..NetConfig::default()
    };
    NetTransport::new(lines, clock, net, Vec::new())
}

fn connect<T: Transport>(transport: T, clock: TokioClock) -> Client<T, TokioClock> {
    let config = ClientConfig {
        local_buffer_bytes: 1 << 20,
        rpc_timeout: PATIENCE,
        reconnect: PATIENCE,
        transfer_limit: PATIENCE,
        ..ClientConfig::new(ClientId(2), "client:1")
    };
    Client::new(transport, clock, spawner(), Faults::default(), config)
}

/// Sends the bytes to a server.
async fn server(address: &str, bytes: &[u8]) {
    let world = World::new().await;
    // There is something to read and to damage.
    let client = connect(world.transport(), world.clock);
    let put = client.put_bytes("k", VALUE.to_vec(), &ReplicaConfig::default()).await;
    put.expect("a new key and free space");
    let (mut reader, mut writer) = tokio::io::split(world.lines.dial(address).expect("it listens"));
    let sent = async {
        // A server that has heard enough ends the connection.
        let _ended = writer.write_all(bytes).await;
        let _ended = writer.shutdown().await;
    };
    let answered = async {
        let (mut chunk, mut sum) = (vec![0; PIPE_BYTES], 0);
        while let Ok(n @ 1..) = reader.read(&mut chunk).await {
            sum += n;
            assert!(sum <= ANSWER_BYTES_MAX, "{sum} bytes in answer to {}", bytes.len());
        }
    };
    tokio::join!(sent, answered);
    world.check().await;
}

/// Answers a client's every connection to `address` with the bytes.
async fn client(address: &str, bytes: &[u8]) {
    let (lines, clock) = (Lines::default(), TokioClock::new());
    if address == STRANGER {
        let (spawner, faults, knobs) = (spawner(), Faults::default(), Knobs::default());
        let master = MasterServer::start(&lines, clock, &spawner, faults, MASTER, knobs, 1);
        let master = master.await.expect("the address is free");
        let (id, name, endpoint) = (SegmentId(1), "stranger".into(), STRANGER.into());
        let segment = Segment { id, name, endpoint, bytes: SEGMENT_BYTES };
        let mounted = master.service.with(|master| master.mount(clock.now(), ClientId(1), segment));
        mounted.expect("a new segment");
    }
    lines.answer(address, bytes.to_vec(), &spawner());
    let client = connect(transport(lines, clock), clock);
    // Any answer will do, but there must be one.
    let _any = client.put_bytes("k", VALUE.to_vec(), &ReplicaConfig::default()).await;
    let _any = client.is_exist("k").await;
    let _any = client.get_bytes("k").await;
}
