//! What an instance is configured with, from all its sources.
//!
//! There is one structure, [`Settings`]. A [`Layer`] is a part of it from one source: the engine's
//! configuration (JSON), a TOML or JSON file, environment variables, Mooncake's own file. Layers are put on each
//! other, later ones win, and only the result is read as [`Settings`], so that every source is held to the same
//! rules: unknown keys, wrong types and contradictions are errors that name the source, the key, the value that
//! came and what was expected.
//!
//! | module | what it is |
//! |---|---|
//! | `layers` | sources, and how they are put on each other |
//! | `mooncake_file` | Mooncake's own file |
//! | `error` | what a mistake looks like |
//! | `check` | values that contradict each other, and what the rest of the system expects |
//! | `schema` | the JSON Schema, and the table of all keys |
//!
//! ```
//! use springtide::config::{Layer, Settings, StoreSettings};
//!
//! let engine = r#"{"store": {"mooncake": {"master": "10.0.0.1:50051", "local_hostname": "10.0.0.2"}},
//!                  "pool_bytes": "3 GiB"}"#;
//! let environment = [("SPRINGTIDE__LOADS__DEADLINE_MS".into(), "200".into())];
//! let settings = Settings::from_layers(vec![
//!     Layer::json("ec_connector_extra_config", engine)?,
//!     Layer::environment(environment),
//! ])?;
//! assert!(matches!(settings.store, StoreSettings::Mooncake(_)));
//! assert_eq!((settings.pool_bytes, settings.loads.deadline.as_millis()), (3 << 30, 200));
//!
//! let mistake = Layer::json("ec_connector_extra_config", r#"{"payload_checksum": "false"}"#)?;
//! assert_eq!(
//!     Settings::from_layers(vec![mistake]).unwrap_err().to_string(),
//!     r#"ec_connector_extra_config: payload_checksum is "false", expected a boolean"#
//! );
//! # Ok::<(), springtide::config::SettingsError>(())
//! ```

mod check;
mod error;
mod layers;
mod mooncake_file;
mod schema;
#[cfg(test)]
mod tests;

use std::{env, ffi::OsString, net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    check::Engine,
    error::SettingsError,
    layers::{ENVIRONMENT_PREFIX, Layer},
    schema::{Described, keys, schema},
};
use crate::{
    backend::{DiskConfig, MooncakeConfig},
    connector::{Config, LoadConfig, SaveConfig, Secret, SecretError},
    pool::{Backing, PoolConfig},
    size,
};

/// Names Mooncake's own file.
const MOONCAKE_VARIABLE: &str = "MOONCAKE_CONFIG_PATH";

/// What the user of an instance says. The engine says the rest: role, ranks, the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where items are kept.
    pub store: StoreSettings,
    /// Whether an encoder instance asks the store before it encodes, and loads what is there instead, so that each
    /// item is encoded once in the whole cluster. It then has a second pool of `pool_bytes`, for what it loads.
    pub encode_once: bool,
    /// Bytes of the pool: the worker's on a producer, the one that scheduler and workers share on a consumer.
    #[serde(deserialize_with = "size::deserialize")]
    #[schemars(with = "size::Size")]
    pub pool_bytes: u64,
    /// How items are saved.
    pub saves: SaveConfig,
    /// How items are loaded.
    pub loads: LoadConfig,
    /// How long a producer's step, and so its response, waits for what it has saved.
    pub wait_for_save_ms: u64,
    /// Whether items carry a checksum that readers check.
    pub payload_checksum: bool,
    /// File with a secret that the instances share. Items are sealed with it, and one that was not written by a
    /// holder of the secret is a miss. Others than its owner and group must not be able to read the file.
    pub secret_file: Option<PathBuf>,
    /// Replaces parts of what the engine says of its model.
    pub namespace: NamespaceSettings,
    /// Where counters are served.
    pub metrics: MetricsSettings,
}

/// Where counters are served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// `ADDRESS:PORT` of an endpoint with `/metrics` and `/healthz`, such as `127.0.0.1:9465`; none if it is not
    /// set. The scheduler's process takes the port, the worker of rank *r* the port + 1 + *r*; with port 0 each
    /// takes a free one and logs it.
    pub listen: Option<String>,
}

impl MetricsSettings {
    /// The address, if one is set.
    ///
    /// # Errors
    /// The text that is no address with a port.
    pub fn address(&self) -> Result<Option<SocketAddr>, String> {
        let parse = |text: &String| text.parse().map_err(|_| text.clone());
        self.listen.as_ref().map(parse).transpose()
    }
}

/// Where items are kept: one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreSettings {
    /// In files of a directory that the instances share.
    Disk(DiskConfig),
    /// In a Mooncake Store: over its C ABI if a `library` is named, otherwise through its Python class.
    Mooncake(MooncakeConfig),
}

/// Parts of the namespace that replace what the engine says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceSettings {
    /// Name or path of the model.
    pub model: Option<String>,
    /// Revision or digest of the weights.
    pub revision: Option<String>,
    /// Processor options.
    pub processor: Option<String>,
    /// Encoder configuration.
    pub encoder: Option<String>,
    /// Adapter on the encoder, with the digest of its weights.
    pub adapter: Option<String>,
    /// Element type of the cached rows, by PyTorch's name.
    pub dtype: Option<String>,
    /// Elements in one row.
    pub width: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        let connector = Config::default();
        Self {
            store: StoreSettings::default(),
            encode_once: connector.encode_once,
            pool_bytes: connector.pool.bytes,
            saves: connector.saves,
            loads: connector.loads,
            wait_for_save_ms: 2000,
            payload_checksum: connector.payload_checksum,
            secret_file: None,
            namespace: NamespaceSettings::default(),
            metrics: MetricsSettings::default(),
        }
    }
}

impl Default for StoreSettings {
    /// A directory of this machine: enough to try the connector on one machine, and nothing else.
    fn default() -> Self {
        Self::Disk(DiskConfig {
            directory: env::temp_dir().join("springtide"),
            capacity_bytes: 8 << 30,
            threads: 4,
        })
    }
}

impl Settings {
    /// Puts the layers on each other, the last on top, and reads and checks the result.
    ///
    /// # Errors
    /// The first mistake.
    pub fn from_layers(layers: Vec<Layer>) -> Result<Self, SettingsError> {
        let (tree, origins) = layers::merge(layers);
        let settings: Self = serde_path_to_error::deserialize(&tree)
            .map_err(|error| error::typed(&error, &tree, &origins))?;
        settings.check().map_err(|mistake| mistake.of(&tree, &origins))?;
        Ok(settings)
    }

    /// Reads the secret, if there is one. It belongs into the namespace
    /// ([`NamespaceParts::secret`](crate::connector::NamespaceParts)).
    ///
    /// # Errors
    /// As [`Secret::read`].
    pub fn secret(&self) -> Result<Option<Secret>, SecretError> {
        self.secret_file.as_deref().map(Secret::read).transpose()
    }

    /// Reads all sources of this process: `below`, Mooncake's own file where `MOONCAKE_CONFIG_PATH` names one,
    /// `layers`, and environment variables on top.
    ///
    /// # Errors
    /// The first mistake.
    pub fn from_process(below: Vec<Layer>, layers: Vec<Layer>) -> Result<Self, SettingsError> {
        let mut all = below;
        if let Some(path) = env::var_os(MOONCAKE_VARIABLE).filter(|path| !path.is_empty()) {
            all.push(Layer::mooncake_file(path.as_ref())?);
        }
        all.extend(layers);
        let mut variables = Vec::new();
        for (name, value) in env::vars_os() {
            // A name that is no UTF-8 is none of ours.
            let Ok(name) = name.into_string() else { continue };
            if name.starts_with(ENVIRONMENT_PREFIX) {
                variables.push((name.clone(), text_of(&name, value)?));
            }
        }
        all.push(Layer::environment(variables));
        Self::from_layers(all)
    }

    /// The connector's configuration as far as the user says it, with memory from `backing`. Role, ranks and
    /// namespace are the engine's to fill in.
    pub fn connector(&self, backing: Backing) -> Config {
        Config {
            pool: PoolConfig { backing, ..PoolConfig::with_bytes(self.pool_bytes) },
            encode_once: self.encode_once,
            saves: self.saves.clone(),
            loads: self.loads.clone(),
            payload_checksum: self.payload_checksum,
            ..Config::default()
        }
    }
}

/// The value of a variable that is a setting.
fn text_of(name: &str, value: OsString) -> Result<String, SettingsError> {
    value.into_string().map_err(|value| {
        let text = format!("is {}, expected UTF-8", value.display());
        SettingsError::unreadable(format!("environment ({name})"), text)
    })
}
