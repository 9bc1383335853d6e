//! What the plug-in is told: the user's settings (`ec_connector_extra_config`) and what the engine knows.
//!
//! Both come as one JSON text from Python, and every error names the field, what came and what was expected.

use std::path::PathBuf;

use serde::Deserialize;
use springtide::{
    backend::{DiskConfig, MooncakeConfig, MooncakeStore},
    connector::{Config, LoadConfig, NamespaceParts, Role, SaveConfig, Secret, SecretError},
    env::{DType, StoreLimits},
    pool::{Backing, PoolConfig},
};

use crate::store;

/// One process of one instance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// What the instance does.
    pub role: Role,
    /// This worker's tensor-parallel rank; 0 in the scheduler.
    pub rank: u32,
    /// Number of tensor-parallel ranks.
    pub tensor_parallel: u32,
    /// The file of the region that scheduler and workers share.
    pub region: PathBuf,
    /// What the engine knows of its model.
    pub model: Model,
    /// What the user wrote.
    pub settings: Settings,
}

/// What changes the bytes of an encoder output.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name or path.
    pub model: String,
    /// Revision or digest of the weights.
    pub revision: String,
    /// Processor options.
    pub processor: String,
    /// Encoder configuration.
    pub encoder: String,
    /// Adapter on the encoder.
    pub adapter: String,
    /// Element type, by PyTorch's name.
    pub dtype: String,
    /// Elements in one row; 0 if the engine does not know it.
    pub width: u64,
}

/// `ec_connector_extra_config`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where items are kept.
    pub store: StoreSettings,
    /// Bytes of the pool: the worker's on a producer, the one that scheduler and workers share on a consumer.
    #[serde(default = "default_pool_bytes")]
    pub pool_bytes: u64,
    /// How items are saved.
    #[serde(default)]
    pub saves: SaveConfig,
    /// How items are loaded.
    #[serde(default)]
    pub loads: LoadConfig,
    /// How long a producer's step, and so its response, waits for what it has saved.
    #[serde(default = "default_wait_for_save_ms")]
    pub wait_for_save_ms: u64,
    /// Whether items carry a checksum that readers check.
    #[serde(default = "default_payload_checksum")]
    pub payload_checksum: bool,
    /// File with the secret that the instances share.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Replaces parts of what the engine says of its model.
    #[serde(default)]
    pub namespace: Overrides,
}

/// The store, by one key.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreSettings {
    /// A directory.
    Disk(DiskConfig),
    /// Mooncake Store: over the C ABI if a `library` is named, otherwise through Mooncake's Python class.
    Mooncake(MooncakeConfig),
}

/// Parts of the namespace that the user sets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    model: Option<String>,
    revision: Option<String>,
    processor: Option<String>,
    encoder: Option<String>,
    adapter: Option<String>,
    dtype: Option<String>,
    width: Option<u64>,
}

fn default_pool_bytes() -> u64 {
    1 << 30
}

fn default_wait_for_save_ms() -> u64 {
    2000
}

fn default_payload_checksum() -> bool {
    true
}

impl StoreSettings {
    /// What the store can take in one call.
    pub fn limits(&self) -> StoreLimits {
        match self {
            Self::Disk(config) => config.limits(),
            Self::Mooncake(config) if config.library.is_some() => MooncakeStore::LIMITS,
            Self::Mooncake(_) => store::LIMITS,
        }
    }
}

impl Settings {
    fn secret(&self) -> Result<Option<Secret>, SecretError> {
        self.secret_file.as_deref().map(Secret::read).transpose()
    }
}

impl Instance {
    /// Reads the JSON text that Python made.
    ///
    /// # Errors
    /// In words for whoever wrote the settings.
    pub fn parse(text: &str) -> Result<Self, String> {
        let instance: Self = serde_json::from_str(text)
            .map_err(|error| format!("ec_connector_extra_config: {error}"))?;
        instance.namespace()?;
        Ok(instance)
    }

    /// The engine's words, replaced by the user's.
    ///
    /// # Errors
    /// A type or width that cannot be used.
    pub fn namespace(&self) -> Result<NamespaceParts, String> {
        let (model, user) = (&self.model, &self.settings.namespace);
        let text = |user: &Option<String>, model: &String| user.as_ref().unwrap_or(model).clone();
        let name = text(&user.dtype, &model.dtype);
        let known = || DType::ALL.map(DType::name).join(", ");
        let dtype = dtype(&name)
            .ok_or_else(|| format!("namespace.dtype is {name:?}, expected one of {}", known()))?;
        let width = user.width.unwrap_or(model.width);
        if width == 0 {
            return Err("the model's configuration does not say how wide a row of its encoder's output is: \
                        set namespace.width in ec_connector_extra_config"
                .to_owned());
        }
        Ok(NamespaceParts {
            model: text(&user.model, &model.model),
            revision: text(&user.revision, &model.revision),
            processor: text(&user.processor, &model.processor),
            encoder: text(&user.encoder, &model.encoder),
            adapter: text(&user.adapter, &model.adapter),
            // Every rank holds the whole tensor.
            layout: String::new(),
            secret: self.settings.secret().map_err(|error| format!("secret_file: {error}"))?,
            dtype,
            width,
        })
    }

    /// The connector's configuration, with a pool of its own or one that is shared.
    ///
    /// # Errors
    /// As [`Instance::namespace`].
    pub fn config(&self, backing: Backing) -> Result<Config, String> {
        let settings = &self.settings;
        Ok(Config {
            role: self.role,
            namespace: self.namespace()?,
            rank: self.rank,
            tensor_parallel: self.tensor_parallel,
            pool: PoolConfig { backing, ..PoolConfig::with_bytes(settings.pool_bytes) },
            saves: settings.saves.clone(),
            loads: settings.loads.clone(),
            payload_checksum: settings.payload_checksum,
            ..Config::default()
        })
    }

    /// The region that scheduler and workers share.
    pub fn shared(&self) -> Backing {
        Backing::Shared(self.region.clone())
    }
}

/// The element type that PyTorch calls `name`, with or without `torch.`.
pub fn dtype(name: &str) -> Option<DType> {
    let name = name.strip_prefix("torch.").unwrap_or(name);
    DType::ALL.into_iter().find(|dtype| dtype.name() == name)
}
