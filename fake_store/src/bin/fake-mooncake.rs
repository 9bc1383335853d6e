//! `fake-mooncake`: the fake store as a process, over real TCP.
//!
//! Exit codes: 0 good, 1 a check that failed or an address that could not be had, 2 usage.

#![forbid(unsafe_code)]

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use fake_store::{
    Client, ClientConfig, FaultPlan, Faults, Knobs, Spawner,
    protocol::{ClientId, SegmentId},
    server::{MasterServer, NodeServer, NodeSpec, ServeError},
    service::{NodeConfig, Pacing},
    transport::{NetConfig, NetTransport},
};
use serde::Serialize;
use springtide::{
    env::{Clock, ErrorCode, GetItem, Key, Outcome, PutItem, Store},
    pool::{Contiguity, Pool, PoolConfig},
    runtime::{TokioClock, TokioNetwork},
};
use tokio::runtime::{Builder, Handle};

/// A Mooncake Store that is a state machine, over TCP.
///
/// It does what Mooncake Store does, with its codes and times, but does not speak its wire protocol: clients of
/// Mooncake cannot connect. What can is this repository's own client, crate `fake_store`.
#[derive(Debug, Parser)]
#[command(name = "fake-mooncake", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  fake-mooncake serve                                    a master and one node, on free ports
  fake-mooncake serve --listen 127.0.0.1:50051 --nodes 2 --segment 256MiB
  fake-mooncake serve --default_kv_lease_ttl 500 --eviction_high_watermark_ratio 0.8
  fake-mooncake serve --fault-plan plan.json             with faults, see below
  fake-mooncake check 127.0.0.1:50051                    put, exists, get; exit code 0 if all is well

serve prints one line of JSON with its addresses, then runs until it is killed.
A fault plan is a list of rules:
  {\"rules\": [{\"point\": \"put_end\", \"when\": \"after\", \"from\": 2, \"every\": 3, \"action\": \"drop_reply\"},
             {\"point\": \"read\", \"key\": \"image-7\", \"action\": {\"fail\": -800}}]}";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a master and nodes until killed.
    Serve(Serve),
    /// Do one put, exists and get against a master.
    Check(Check),
}

#[derive(Debug, Args)]
struct Serve {
    /// Where the master listens; port 0 is a free one. Nodes take free ports of the same host.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// How many nodes lend a segment.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    nodes: u64,
    /// How much each of them lends: bytes, or with KiB, MiB, GiB.
    #[arg(long, default_value = "64MiB", value_parser = size)]
    segment: u64,
    /// Faults to inject, as JSON.
    #[arg(long, value_name = "FILE")]
    fault_plan: Option<PathBuf>,
    /// Decides random placement.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Bytes per second of each transfer; without it as fast as it goes.
    #[arg(long, value_parser = size)]
    bytes_per_sec: Option<u64>,
    #[command(flatten)]
    mooncake: MooncakeFlags,
}

/// Flags of `mooncake_master`, with its names, units and defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of mooncake_master")]
struct MooncakeFlags {
    /// Read lease, ms.
    #[arg(long = "default_kv_lease_ttl", default_value_t = 10_000)]
    lease_ttl_ms: u64,
    /// Soft pin, ms.
    #[arg(long = "default_kv_soft_pin_ttl", default_value_t = 1_800_000)]
    soft_pin_ttl_ms: u64,
    /// Whether soft-pinned objects are evicted when nothing else is left.
    #[arg(long = "allow_evict_soft_pinned_objects", default_value_t = true, action = clap::ArgAction::Set)]
    allow_evict_soft_pinned_objects: bool,
    /// Share of the objects that a round of eviction takes, 0 to 1.
    #[arg(long = "eviction_ratio", default_value_t = 0.05)]
    eviction_ratio: f64,
    /// Share of the bytes above which eviction starts, 0 to 1.
    #[arg(long = "eviction_high_watermark_ratio", default_value_t = 0.90)]
    eviction_high_watermark_ratio: f64,
    /// After which an unfinished put may be repeated, s.
    #[arg(long = "put_start_discard_timeout_sec", default_value_t = 30)]
    put_start_discard_timeout_sec: u64,
    /// After which its space is reused, s.
    #[arg(long = "put_start_release_timeout_sec", default_value_t = 600)]
    put_start_release_timeout_sec: u64,
    /// How long a client lives after its last ping, s.
    #[arg(long = "client_ttl", default_value_t = 10)]
    client_ttl_sec: u64,
}

impl MooncakeFlags {
    fn knobs(&self) -> Knobs {
        Knobs {
            lease_ttl: Duration::from_millis(self.lease_ttl_ms),
            soft_pin_ttl: Duration::from_millis(self.soft_pin_ttl_ms),
            allow_evict_soft_pinned_objects: self.allow_evict_soft_pinned_objects,
            eviction_ratio: self.eviction_ratio,
            eviction_high_watermark_ratio: self.eviction_high_watermark_ratio,
            put_start_discard_timeout: Duration::from_secs(self.put_start_discard_timeout_sec),
            put_start_release_timeout: Duration::from_secs(self.put_start_release_timeout_sec),
            client_ttl: Duration::from_secs(self.client_ttl_sec),
            ..Knobs::default()
        }
    }
}

#[derive(Debug, Args)]
struct Check {
    /// The master's address, HOST:PORT, as serve prints it.
    #[arg(value_parser = address)]
    address: String,
    /// How long the whole may take, ms.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout_ms: u64,
    /// Bytes of the object.
    #[arg(long, default_value = "1MiB", value_parser = size)]
    bytes: u64,
}

/// What serve prints.
#[derive(Debug, Serialize)]
struct Serving {
    master: String,
    nodes: Vec<String>,
    segment_bytes: u64,
}

/// Why the process ends other than well.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Knobs(_) => Self::Usage(error.to_string()),
            ServeError::Bind { .. } => Self::Failed(error.to_string()),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(async {
            match cli.command {
                Command::Serve(serve) => serve.run().await,
                Command::Check(check) => check.run().await,
            }
        }),
        Err(error) => Err(Failure::Failed(format!("cannot start a runtime: {error}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fake-mooncake: {failure}");
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}

impl Serve {
    async fn run(self) -> Result<(), Failure> {
        let faults = match &self.fault_plan {
            Some(path) => read_plan(path)?,
            None => Faults::default(),
        };
        let capacity = self.capacity()?;
        let (clock, network, spawner) = (TokioClock::new(), TokioNetwork, spawner());
        let knobs = self.mooncake.knobs();
        let broken = faults.clone();
        let master =
            MasterServer::start(&network, clock, &spawner, broken, &self.listen, knobs, self.seed);
        let master = master.await?;
        let host = self.listen.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host);
        let pacing = Pacing { bytes_per_sec: self.bytes_per_sec, ..Pacing::default() };
        let config = NodeConfig { pacing, ..NodeConfig::default() };
        let mut nodes = Vec::new();
        for number in 1..=self.nodes {
            let spec = NodeSpec {
                client: ClientId(number),
                segment: SegmentId(number),
                name: format!("node-{number}"),
                bytes: self.segment,
                listen: format!("{host}:0"),
                endpoint: None,
                master: master.address.clone(),
                ping_timeout: Duration::from_secs(1),
            };
            let node =
                NodeServer::start(&network, clock, &spawner, faults.clone(), spec, config).await?;
            nodes.push(node.address);
        }
        // The addresses are of use once there is room for objects.
        while master.service.with(|master| master.usage().capacity_bytes) < capacity {
            clock.sleep(Duration::from_millis(10)).await;
        }
        let serving = Serving { master: master.address, nodes, segment_bytes: self.segment };
        print_line(&serving)?;
        std::future::pending().await
    }
}

impl Serve {
    /// Bytes that all nodes lend, which this process has to have.
    fn capacity(&self) -> Result<u64, Failure> {
        let refused = |why: &str| {
            let (nodes, segment) = (self.nodes, self.segment);
            Failure::Usage(format!(
                "--segment: {nodes} nodes of {segment} bytes are more than {why}"
            ))
        };
        let capacity =
            self.segment.checked_mul(self.nodes).ok_or_else(|| refused("64 bits count"))?;
        let room = usize::try_from(capacity).ok().and_then(|bytes| {
            let mut probe: Vec<u8> = Vec::new();
            probe.try_reserve_exact(bytes).ok()
        });
        room.ok_or_else(|| refused("this machine's memory"))?;
        Ok(capacity)
    }
}

impl Check {
    async fn run(self) -> Result<(), Failure> {
        let clock = TokioClock::new();
        let deadline = clock.now() + Duration::from_millis(self.timeout_ms);
        let checked = clock.timeout_at(deadline, self.round_trip(clock)).await;
        checked.unwrap_or_else(|_| {
            Err(Failure::Failed(format!("{}: no end within {} ms", self.address, self.timeout_ms)))
        })
    }

    async fn round_trip(&self, clock: TokioClock) -> Result<(), Failure> {
        let net = NetConfig { master: self.address.clone(), ..NetConfig::default() };
        let transport = NetTransport::new(TokioNetwork, clock, net, Vec::new());
        let id = ClientId(1 << 32 | u64::from(std::process::id()));
        let config = ClientConfig::new(id, "check:0");
        let client = Client::new(transport, clock, spawner(), Faults::default(), config);
        let pool = Pool::new(&PoolConfig::with_bytes(self.bytes.saturating_mul(2) + (1 << 20)))
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let room = || {
            let allocated = pool.allocate(self.bytes, Contiguity::Extents);
            allocated.map_err(|error| Failure::Usage(error.to_string()))
        };
        let key = Key::new(format!("fake-mooncake/check/{}", std::process::id()));
        let bytes: Vec<u8> = (0..self.bytes).map(|i| (i % 251) as u8).collect();

        let mut source = room()?;
        source.write_at(0, &bytes);
        let item = PutItem { key: key.clone(), source: source.into_transfer() };
        ended("put", client.put(vec![item]).await)?;
        let mut found = client.exists(vec![key.clone()]).await;
        match found.pop() {
            Some(Ok(true)) => {}
            other => return Err(Failure::Failed(format!("exists: expected true, got {other:?}"))),
        }
        let item = GetItem { key: key.clone(), dest: room()?.into_transfer() };
        let (dest, length) = ended("get", client.get(vec![item]).await)?;
        if length != self.bytes || !dest.segments().flatten().eq(&bytes) {
            return Err(Failure::Failed("get: other bytes than were put".into()));
        }
        let removed = client.remove(key, true).await;
        removed.map_err(|error| Failure::Failed(format!("remove: {error}")))?;
        print_line(
            &serde_json::json!({ "ok": true, "bytes": self.bytes, "ms": clock.now().as_millis() }),
        )
    }
}

/// The buffer and value of the only outcome.
fn ended<T>(
    what: &str,
    mut outcomes: Vec<Outcome<T>>,
) -> Result<(springtide::pool::Lease, T), Failure> {
    match outcomes.pop() {
        Some(Outcome::Ended { buffer, result: Ok(value) }) => Ok((buffer, value)),
        Some(Outcome::Ended { result: Err(error), .. } | Outcome::Uncertain { error, .. }) => {
            let full = match error.code {
                ErrorCode::NoAvailableHandle => " (do the nodes lend as much? see serve --segment)",
                _ => "",
            };
            Err(Failure::Failed(format!("{what}: {error}{full}")))
        }
        None => Err(Failure::Failed(format!("{what}: no outcome"))),
    }
}

fn read_plan(path: &Path) -> Result<Faults, Failure> {
    let usage = |text: String| Failure::Usage(format!("{}: {text}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
    let plan = FaultPlan::from_json(&text).map_err(|error| usage(error.to_string()))?;
    Faults::new(plan).map_err(|error| usage(error.to_string()))
}

fn print_line(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let printed = serde_json::to_writer(&mut out, value)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush());
    printed.map_err(|error| Failure::Failed(format!("cannot print: {error}")))
}

fn spawner() -> Spawner {
    let handle = Handle::current();
    Arc::new(move |task| drop(handle.spawn(task)))
}

fn address(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT".into()),
    }
}

/// Bytes, or KiB, MiB, GiB.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => return Err(format!("expected B, KiB, MiB or GiB, got {other:?}")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("expected a number, got {digits:?}"))?;
    match number.checked_mul(unit) {
        Some(0) => Err("expected more than 0 bytes".into()),
        Some(bytes) => Ok(bytes),
        None => Err("more bytes than 64 bits count".into()),
    }
}
