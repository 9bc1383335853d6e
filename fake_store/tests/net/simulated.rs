//! The same servers and clients on simulated hosts: partitions and crashes, twice with the same end.

use std::{cell::RefCell, io, rc::Rc, sync::Arc};

use fake_store::{Spawner, protocol::ReplicaConfig};
use springtide::env::{Listener, Network, Time};
use turmoil::net::{TcpListener, TcpStream};

use super::*;

#[derive(Clone, Debug)]
struct SimNetwork;

struct SimListener(TcpListener);

impl Network for SimNetwork {
    type Stream = TcpStream;
    type Listener = SimListener;

    async fn bind(&self, address: &str) -> io::Result<SimListener> {
        TcpListener::bind(address).await.map(SimListener)
    }

    async fn connect(&self, address: &str) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}

impl Listener for SimListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, String)> {
        let (stream, peer) = self.0.accept().await?;
        Ok((stream, peer.to_string()))
    }

    fn local_addr(&self) -> io::Result<String> {
        self.0.local_addr().map(|address| address.to_string())
    }
}

/// Runs tasks on the simulated host that asks.
fn sim_spawner() -> Spawner {
    Arc::new(|task| drop(tokio::runtime::Handle::current().spawn(task)))
}

async fn master_host() -> turmoil::Result {
    let knobs = Knobs { placement: Placement::FirstFit, client_ttl: secs(3), ..Knobs::default() };
    let clock = TokioClock::new();
    let faults = Faults::default();
    let listen = "0.0.0.0:1";
    MasterServer::start(&SimNetwork, clock, &sim_spawner(), faults, listen, knobs, 1).await?;
    std::future::pending().await
}

async fn node_host(name: &'static str, number: u64) -> turmoil::Result {
    let spec = NodeSpec {
        client: ClientId(100 + number),
        segment: SegmentId(number),
        name: name.into(),
        bytes: MIB,
        listen: "0.0.0.0:2".into(),
        endpoint: Some(format!("{name}:2")),
        master: "master:1".into(),
        ping_timeout: secs(1),
    };
    let config = NodeConfig::default();
    let clock = TokioClock::new();
    let faults = Faults::default();
    NodeServer::start(&SimNetwork, clock, &sim_spawner(), faults, spec, config).await?;
    std::future::pending().await
}

type SimClient = Client<NetTransport<SimNetwork, TokioClock>, TokioClock>;

fn sim_client() -> (SimClient, TokioClock) {
    let clock = TokioClock::new();
    let pacing = Pacing { chunk_bytes: 4096, ..Pacing::default() };
    let net = NetConfig {
        master: "master:1".into(),
        pacing,
        connect_timeout: secs(2),
        status_timeout: secs(20),
        ..NetConfig::default()
    };
    let config = ClientConfig {
        rpc_timeout: secs(2),
        reconnect: ms(500),
        transfer_limit: secs(3),
        ..ClientConfig::new(ClientId(1), "client:1")
    };
    let transport = NetTransport::new(SimNetwork, clock, net, Vec::new());
    let faults = Faults::default();
    (Client::new(transport, clock, sim_spawner(), faults, config), clock)
}

/// One run: what the client saw, with the time of each.
fn run() -> Vec<(Time, String)> {
    #[expect(clippy::disallowed_methods, reason = "seed and epoch are set here")]
    let mut builder = turmoil::Builder::new();
    builder.rng_seed(7).epoch(std::time::UNIX_EPOCH).simulation_duration(secs(120));
    let mut sim = builder.tick_duration(ms(5)).max_message_latency(ms(10)).build();
    sim.host("master", master_host);
    sim.host("a", || node_host("a", 1));
    sim.host("b", || node_host("b", 2));
    let seen: Rc<RefCell<Vec<(Time, String)>>> = Rc::default();
    let log = seen.clone();
    sim.client("client", async move {
        let (client, clock) = sim_client();
        let pool = pool(MIB);
        let note = |text: String| log.borrow_mut().push((clock.now(), text));
        sleep(&clock, secs(2)).await;
        let bytes = pattern(5, 100_000);
        note(format!("put {}", put(&client, &pool, "k", &bytes).await));
        let read = get(&client, &pool, "k", bytes.len()).await;
        note(format!("get {}", read == Ok(bytes.clone())));

        turmoil::partition("client", "master");
        note(format!("cut off {:?}", exists(&client, "k").await));
        turmoil::repair("client", "master");
        note(format!("repaired {:?}", exists(&client, "k").await));

        turmoil::hold("client", "a");
        let mut outcomes =
            springtide::env::Store::get(&client, vec![get_item(&pool, "k", bytes.len())]).await;
        let buffer = match outcomes.remove(0) {
            springtide::env::Outcome::Uncertain { buffer, .. } => buffer,
            ended => panic!("expected an uncertain end, got {ended:?}"),
        };
        note(format!("held, {} in flight", client.active_transfers()));
        turmoil::release("client", "a");
        client.settle().await;
        note(format!("late bytes {}", bytes_of(&buffer.finish()) == bytes));

        turmoil::partition("a", "master");
        sleep(&clock, secs(6)).await;
        note(format!("expired {:?}", exists(&client, "k").await));
        note(format!("put {}", put(&client, &pool, "k", &bytes).await));
        let on_b = ReplicaConfig { preferred_segments: vec!["b".into()], ..Default::default() };
        note(format!("put {:?}", client.put_bytes("j", vec![1; 10], &on_b).await));
        note(format!("get {}", get(&client, &pool, "k", bytes.len()).await == Ok(bytes)));
        Ok(())
    });
    sim.run().unwrap();
    seen.take()
}

#[test]
fn a_simulated_run_ends_as_it_should_and_repeats() {
    let seen = run();
    let texts: Vec<&str> = seen.iter().map(|(_, text)| text.as_str()).collect();
    let expected = [
        "put 0",
        "get true",
        "cut off Err(RpcTimeout)",
        "repaired Ok(true)",
        "held, 1 in flight",
        "late bytes true",
        "expired Ok(false)",
        "put 0",
        "put Ok(())",
        "get true",
    ];
    assert_eq!(texts, expected);
    assert_eq!(run(), seen);
}
