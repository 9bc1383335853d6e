//! What can be set, with defaults and limits.
//!
//! Every duration is written in milliseconds and every size in bytes, and the field's name says so. A value
//! out of range is an error that names the field, the value that came and what was expected.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::NamespaceParts;
use crate::{pool::PoolConfig, size};

/// What an instance does with the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Saves what its encoder makes.
    Producer,
    /// Loads what others saved.
    Consumer,
    /// Does both.
    Both,
}

impl Role {
    /// Whether it saves.
    pub fn saves(self) -> bool {
        self != Self::Consumer
    }

    /// Whether it loads.
    pub fn loads(self) -> bool {
        self != Self::Producer
    }
}

/// The connector's configuration, the same for both processes of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What this instance does.
    pub role: Role,
    /// What its items are.
    pub namespace: NamespaceParts,
    /// This worker's tensor-parallel rank. Only rank 0 saves.
    pub rank: u32,
    /// Number of tensor-parallel ranks; each acknowledges every load.
    pub tensor_parallel: u32,
    /// Whether a producer asks the store before its engine encodes, and loads what is there instead: each item
    /// is then encoded once, by whichever producer sees it first. A consumer always does.
    pub encode_once: bool,
    /// The pool: the worker's on a producer, the scheduler's on an instance that loads.
    pub pool: PoolConfig,
    /// Saving.
    pub saves: SaveConfig,
    /// Loading.
    pub loads: LoadConfig,
    /// How long one store call is awaited before its future is dropped. The store keeps the buffers of such
    /// a call until its I/O is over. Above the store's own transfer limit (60 s in Mooncake), so that it
    /// only ends what the store has lost.
    #[serde(rename = "io_timeout_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub io_timeout: Duration,
    /// Whether writers add, and readers check, a checksum of the payload.
    pub payload_checksum: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            role: Role::Both,
            namespace: NamespaceParts::default(),
            rank: 0,
            tensor_parallel: 1,
            encode_once: false,
            pool: PoolConfig::with_bytes(1 << 30),
            saves: SaveConfig::default(),
            loads: LoadConfig::default(),
            io_timeout: Duration::from_secs(90),
            payload_checksum: true,
        }
    }
}

/// How items are saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SaveConfig {
    /// How long a save tries before it gives up.
    #[serde(rename = "deadline_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub deadline: Duration,
    /// Bytes in one batch put, unless a single item has more.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub batch_bytes_max: u64,
    /// Items in one batch put.
    pub batch_items_max: usize,
    /// Bytes in running puts, unless a single item has more.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub in_flight_bytes_max: u64,
    /// Saves that are open at a time; more are dropped.
    pub queue_items_max: usize,
    /// First pause before a retry; doubles up to the next field.
    #[serde(rename = "retry_pause_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub retry_pause: Duration,
    /// Longest pause between retries.
    #[serde(rename = "retry_pause_max_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub retry_pause_max: Duration,
    /// Puts of one save before it fails.
    pub attempts_max: u32,
}

impl Default for SaveConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            batch_bytes_max: 128 << 20,
            batch_items_max: 64,
            in_flight_bytes_max: 512 << 20,
            queue_items_max: 4096,
            // The store's evictor runs every 10 ms: sooner, a full store has not changed.
            retry_pause: Duration::from_millis(20),
            retry_pause_max: Duration::from_millis(500),
            attempts_max: 32,
        }
    }
}

/// How items are looked up and loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoadConfig {
    /// How long a request waits for its items before it encodes locally. At most 500 ms is advised: an
    /// engine that waits with nothing else to do spins.
    #[serde(rename = "deadline_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub deadline: Duration,
    /// How long "absent" is believed.
    #[serde(rename = "absent_ttl_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub absent_ttl: Duration,
    /// How long an item that failed to load is not asked for again.
    #[serde(rename = "failed_ttl_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub failed_ttl: Duration,
    /// First pause before a retry; doubles each time.
    #[serde(rename = "retry_pause_ms", with = "millis")]
    #[schemars(with = "u64")]
    pub retry_pause: Duration,
    /// Store calls for one item before it is a miss.
    pub attempts_max: u32,
    /// Bytes in one batch get, unless a single item has more: a batch must end within its read lease.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub batch_bytes_max: u64,
    /// Items in one batch get or lookup.
    pub batch_items_max: usize,
    /// Bytes in running gets, unless a single item has more.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub in_flight_bytes_max: u64,
    /// Keys whose state is remembered; more are misses.
    pub keys_max: usize,
}

impl Default for LoadConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(500),
            absent_ttl: Duration::from_millis(100),
            failed_ttl: Duration::from_secs(1),
            retry_pause: Duration::from_millis(10),
            attempts_max: 8,
            batch_bytes_max: 128 << 20,
            batch_items_max: 64,
            in_flight_bytes_max: 512 << 20,
            keys_max: 100_000,
        }
    }
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, expected {expected}")]
pub struct ConfigError {
    /// The field's path.
    pub field: &'static str,
    /// The value that came.
    pub value: String,
    /// What would be accepted.
    pub expected: String,
}

impl Config {
    /// Whether the scheduler's side loads.
    pub fn loads(&self) -> bool {
        self.role.loads() || self.encode_once
    }

    /// Whether this instance loads and no answer of its workers reaches the scheduler: vLLM drops a pure
    /// producer's. The end of a step then stands for them ([`Scheduler::step_ended`]).
    ///
    /// [`Scheduler::step_ended`]: super::Scheduler::step_ended
    pub fn acknowledges_by_step(&self) -> bool {
        self.loads() && !self.role.loads()
    }

    /// Whether this rank copies what the scheduler has loaded. On a pure producer only rank 0 does, which is
    /// the one that saves: nobody else reads there what the encoder makes.
    pub fn copies(&self) -> bool {
        self.role.loads() || self.encode_once && self.rank == 0
    }

    /// Checks every limit.
    ///
    /// # Errors
    /// The first [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (saves, loads) = (&self.saves, &self.loads);
        check("tensor_parallel", self.tensor_parallel, 1..=1024)?;
        check("rank", self.rank, 0..=self.tensor_parallel - 1)?;
        check("namespace.width", self.namespace.width, 1..=u64::from(u32::MAX))?;
        check("io_timeout_ms", millis_of(self.io_timeout), 1..=3_600_000)?;
        check("saves.deadline_ms", millis_of(saves.deadline), 1..=600_000)?;
        check("saves.batch_bytes_max", saves.batch_bytes_max, 1..=u64::MAX)?;
        check("saves.batch_items_max", saves.batch_items_max, 1..=10_000)?;
        check("saves.in_flight_bytes_max", saves.in_flight_bytes_max, 1..=u64::MAX)?;
        check("saves.queue_items_max", saves.queue_items_max, 1..=1_000_000)?;
        check("saves.retry_pause_ms", millis_of(saves.retry_pause), 1..=60_000)?;
        let shortest = millis_of(saves.retry_pause);
        check("saves.retry_pause_max_ms", millis_of(saves.retry_pause_max), shortest..=60_000)?;
        check("saves.attempts_max", saves.attempts_max, 1..=10_000)?;
        check("loads.deadline_ms", millis_of(loads.deadline), 1..=60_000)?;
        check("loads.absent_ttl_ms", millis_of(loads.absent_ttl), 0..=600_000)?;
        check("loads.failed_ttl_ms", millis_of(loads.failed_ttl), 0..=600_000)?;
        check("loads.retry_pause_ms", millis_of(loads.retry_pause), 1..=60_000)?;
        check("loads.attempts_max", loads.attempts_max, 1..=10_000)?;
        check("loads.batch_bytes_max", loads.batch_bytes_max, 1..=u64::MAX)?;
        check("loads.batch_items_max", loads.batch_items_max, 1..=10_000)?;
        check("loads.in_flight_bytes_max", loads.in_flight_bytes_max, 1..=u64::MAX)?;
        check("loads.keys_max", loads.keys_max, 1..=100_000_000)
    }
}

fn check<T>(
    field: &'static str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<(), ConfigError>
where
    T: PartialOrd + std::fmt::Display,
{
    if range.contains(&value) {
        return Ok(());
    }
    let expected = format!("{} to {}", range.start(), range.end());
    Err(ConfigError { field, value: value.to_string(), expected })
}

fn millis_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Durations as whole milliseconds.
mod millis {
    use super::{Deserialize, Duration, millis_of};

    pub(super) fn serialize<S>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: serde::Serializer,
    {
        serializer.serialize_u64(millis_of(*duration))
    }

    pub(super) fn deserialize<'de, D>(deserializer: D) -> Result<Duration, D::Error>
    where
        D: serde::Deserializer<'de>,
    {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_round_trip() {
        let config = Config::default();
        assert_eq!(config.validate(), Ok(()));
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
    }

    #[test]
    fn errors_name_field_value_and_range() {
        let mut config = Config { rank: 2, tensor_parallel: 2, ..Config::default() };
        assert_eq!(config.validate().unwrap_err().to_string(), "rank is 2, expected 0 to 1");
        config.rank = 0;
        config.loads.deadline = Duration::from_secs(100);
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "loads.deadline_ms is 100000, expected 1 to 60000"
        );
    }

    #[test]
    fn f024_wrong_types_and_unknown_fields_are_refused() {
        for text in [
            r#"{"payload_checksum": "false"}"#,
            r#"{"saves": {"deadline_ms": "10"}}"#,
            r#"{"saves": {"deadline": 10}}"#,
            r#"{"pool": {"bites": 1}}"#,
        ] {
            assert!(serde_json::from_str::<Config>(text).is_err(), "{text}");
        }
    }
}
