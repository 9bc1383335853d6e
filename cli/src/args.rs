//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use springtide::{backend::Protocol, size};

/// The encoder-cache connector's tool for people who run it.
#[derive(Debug, Parser)]
// No wrapping: it would depend on the features of clap that other crates of the same build ask for.
#[command(name = "springtide", version, term_width = 0)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure what the connector costs on top of a store's own calls
    Bench(BenchArgs),
    /// Check settings, and say what can be set
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look whether this machine has what an instance needs
    Doctor(DoctorArgs),
    /// Check what only hardware can show: a GPU, an RDMA card, a real store
    Hw(HwArgs),
    /// Compute how large a pool has to be
    Plan(PlanArgs),
}

/// What to do with settings.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read settings as an instance does, and print all of them
    #[command(after_help = "\
Later sources win: Mooncake's own file (MOONCAKE_CONFIG_PATH), FILE, environment variables. A variable is the key
in capitals behind SPRINGTIDE__, with two underscores between its parts. In vLLM the same keys stand in
ec_connector_extra_config.

Examples:
  springtide config check springtide.toml
  springtide config check extra-config.json --json
  SPRINGTIDE__POOL_BYTES='3 GiB' springtide config check
  springtide config check springtide.toml --model Qwen3-VL-8B --resolution 3840x2160 --engine-timeout 300

Exit codes: 0 good (warnings are printed), 1 a mistake, 2 usage.")]
    Check {
        /// TOML (.toml) or JSON (.json); without it only the other sources count
        file: Option<PathBuf>,
        /// Also check that the pool holds an item of this model; `springtide plan --list` shows those that are known
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
        /// With --model: pixels of the largest image
        #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "1920x1080", value_parser = resolution, requires = "model")]
        resolution: (u64, u64),
        /// With --model: frames, for videos
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000), requires = "model")]
        frames: u64,
        /// Also check that deadlines end before the engine gives an instance up (VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS)
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        engine_timeout: Option<u64>,
        /// Print the settings as JSON instead of TOML
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the settings
    Schema,
    /// Print every key with its default and what it means, as a table in Markdown
    Keys,
}

/// Whose needs are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    /// An instance that encodes: its pool is memory of its worker
    Producer,
    /// An instance that is given what others encoded: its pool lies in /dev/shm
    Consumer,
    /// An instance that does both
    Both,
}

/// What to look at.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
One line for each: ok, warning or problem, and what to do. Run it where the instance will run: in its container, as
its user, with its limits, and while nothing else of it runs.

Examples:
  springtide doctor --config springtide.toml
  springtide doctor --config springtide.toml --role consumer
  springtide doctor --json | jq '.checks[] | select(.level != \"ok\")'

Exit codes: 0 no problem (there may be warnings), 1 a problem, 2 usage.")]
pub struct DoctorArgs {
    /// The instance's settings, TOML or JSON; without it only the other sources of `springtide config check` count
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What the instance does
    #[arg(long, value_enum, default_value = "both")]
    pub role: RoleArg,
    /// Print one JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

/// What a check on hardware may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Need {
    /// NVIDIA's driver and a GPU
    Cuda,
    /// An RDMA card with a link that is up
    Rdma,
    /// A Mooncake Store: --master was given
    Store,
}

impl Need {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Rdma => "rdma",
            Self::Store => "store",
        }
    }
}

/// How a Mooncake Store is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HwStore {
    /// Through its C library
    Mooncake,
    /// Through the class of its Python wheel; only in `python -m springtide`
    Python,
}

/// Which hardware, and how much of it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Each check runs if what it needs is here, and is listed as not run otherwise. What moves through a store is compared
byte by byte. Some process must lend the store memory: with --segment both instances of this one do.

Examples:
  springtide hw                                   what this machine has, without a store
  springtide hw --require cuda,rdma --master 10.0.0.1:50051 --library /opt/mooncake/libmooncake_store.so
  springtide hw --master 127.0.0.1:50051 --segment 512MiB --json > hw.json
  python -m springtide hw --store python --master 10.0.0.1:50051 --device mlx5_0 --gpu 1

Exit codes: 0 what could be run holds, 1 a check failed or something required is not here, 2 usage.")]
pub struct HwArgs {
    /// What must be here: its absence is an error
    #[arg(long, value_enum, value_name = "WHAT,..", value_delimiter = ',')]
    pub require: Vec<Need>,
    /// The GPU, by the driver's number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub gpu: i32,
    /// How the store is reached
    #[arg(long, value_enum, default_value = "mooncake")]
    pub store: HwStore,
    /// Its master; without one nothing moves through a store
    #[arg(long, value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// The library with the C ABI [default: MOONCAKE_STORE_LIBRARY, or the loader's path]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The RDMA card, such as mlx5_0 [default: all]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub device: String,
    /// This host's name, as the others reach it
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub hostname: String,
    /// Memory that each instance lends to the store
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    pub segment: u64,
    /// How often each copy and each item size is measured
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub rounds: u16,
    /// Bytes of the traffic that is compared
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = some_bytes)]
    pub bytes: u64,
    /// Print one JSON object instead of lines and a table
    #[arg(long)]
    pub json: bool,
}

fn some_bytes(text: &str) -> Result<u64, String> {
    match size::parse(text) {
        Ok(0) => Err("0, expected at least a byte".into()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// What the pool is for.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The pool of a producer holds what is on its way to the store, that of a consumer what is on its way from it and
what was asked for lately. Both need room for the largest item, for the items of a burst, and for what arrives
while the slowest is under way.

Examples:
  springtide plan --list
  springtide plan --model Qwen3-VL-8B --resolution 1920x1080 --rate 20
  springtide plan --model Qwen2.5-VL-7B --resolution 1024x1024 --rate 5 --items 4 --seconds 60 --json")]
pub struct PlanArgs {
    /// The model; --list shows those that are known
    #[arg(long, value_name = "NAME", required_unless_present_any = ["list", "width"])]
    pub model: Option<String>,
    /// Instead of a model: elements of a cached row, in 16 bits each
    #[arg(long, value_name = "N", conflicts_with = "model", requires = "pixels")]
    pub width: Option<u64>,
    /// With --width: pixels of a token's side (28 or 32 for Qwen's models)
    #[arg(long, value_name = "N", requires = "width", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub pixels: Option<u64>,
    /// Pixels of the images
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "1920x1080", value_parser = resolution)]
    pub resolution: (u64, u64),
    /// Frames, for videos: two make one image's worth of tokens
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub frames: u64,
    /// Requests per second and instance
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = rate)]
    pub rate: f64,
    /// Items of a request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub items: u64,
    /// How long an item stays in the pool: its transfer, and as long as it may be asked for again from memory
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = rate)]
    pub seconds: f64,
    /// Show the models that are known
    #[arg(long)]
    pub list: bool,
    /// Print one JSON object instead of words
    #[arg(long)]
    pub json: bool,
}

fn resolution(text: &str) -> Result<(u64, u64), String> {
    let sides = text.split_once('x').and_then(|(width, height)| {
        let side = |text: &str| text.parse().ok().filter(|side| (1..=65_536).contains(side));
        Some((side(width)?, side(height)?))
    });
    sides.ok_or_else(|| {
        format!("{text:?}, expected WIDTHxHEIGHT of 1 to 65536 pixels, as 1920x1080")
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1e6).contains(number));
    number.ok_or_else(|| format!("{text:?}, expected a number from 0 to 1000000"))
}

/// A store to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// Files in a directory
    Disk,
    /// The fake store over TCP
    Fake,
    /// Mooncake Store through its C library
    Mooncake,
    /// Mooncake Store through the class of its Python wheel; only in `python -m springtide`
    Python,
}

/// A transport of Mooncake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolArg {
    /// Sockets
    Tcp,
    /// RDMA cards
    Rdma,
}

impl From<ProtocolArg> for Protocol {
    fn from(protocol: ProtocolArg) -> Self {
        match protocol {
            ProtocolArg::Tcp => Self::Tcp,
            ProtocolArg::Rdma => Self::Rdma,
        }
    }
}

/// What to measure, and how.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Measured in turn, in each round: the store's own batch put, the same items through the connector's save and
wait_for_save, the store's own batch get, the same through a request's load, and a copy in memory. A ratio is
the median over the rounds of the two throughputs of one round, so that what else the machine does hits both.

Examples:
  springtide bench                                       a temporary directory of this machine
  springtide bench --store fake                          the fake store, started here, over TCP
  springtide bench --store fake --master 127.0.0.1:50051 one that `fake-mooncake serve` runs
  springtide bench --store mooncake --library /opt/mooncake/libmooncake_store.so --master 10.0.0.1:50051
  python -m springtide bench --store python --master 10.0.0.1:50051 --size 4MiB,16MiB --concurrency 1,4
  springtide bench --json --size 16MiB --rounds 50 > bench.json

On a Mooncake Store some other process must lend memory: with --segment this one does, and then nothing
crosses a network.

Exit codes: 0 measured, 1 it failed, 2 usage; with a disk 128 + the number of the signal that ended it.")]
pub struct BenchArgs {
    /// The store
    #[arg(long, value_enum, default_value = "disk")]
    pub store: StoreKind,
    /// disk: where to make a directory for the files, which is removed at the end [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// fake, mooncake, python: the master [default: fake: one is started here; else 127.0.0.1:50051]
    #[arg(long, value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// mooncake: the library with the C ABI [default: MOONCAKE_STORE_LIBRARY, or the loader's path]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// mooncake, python: the transport
    #[arg(long, value_enum, default_value = "tcp")]
    pub protocol: ProtocolArg,
    /// mooncake, python: the transport's device, such as mlx5_0 [default: all]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub device: String,
    /// mooncake, python: this host's name, as the others reach it
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub hostname: String,
    /// mooncake, python: memory to lend to the store
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    pub segment: u64,

    /// Item sizes, whole KiB
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', default_value = "1MiB,4MiB,16MiB", value_parser = size::parse)]
    pub size: Vec<u64>,
    /// Calls at a time
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub concurrency: Vec<u16>,
    /// Items a call
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub batch: Vec<u16>,
    /// Rounds that are measured, after two that are not
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// Bytes that each part of a round moves at least
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse)]
    pub round_bytes: u64,
    /// Without checksums of the payload, on both sides
    #[arg(long)]
    pub no_checksum: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}
