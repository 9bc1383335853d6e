//! What the plug-in is told: the user's settings (`ec_connector_extra_config`) and what the engine knows.
//!
//! Both come as one JSON text from Python. The user's settings are those of every program of springtide, with
//! the same sources beside the JSON: Mooncake's own file and environment variables.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};
use springtide::{
    config::{Engine, Layer, Settings},
    connector::{Config, NamespaceParts, Role},
    env::DType,
    pool::Backing,
};

/// What the messages of mistakes call the user's settings.
const ORIGIN: &str = "ec_connector_extra_config";

/// One process of one instance.
#[derive(Clone, Debug)]
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

/// [`Instance`] as Python says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    role: Role,
    rank: u32,
    tensor_parallel: u32,
    region: PathBuf,
    /// This instance's address, as the engine knows it.
    host: String,
    /// How long the engine waits for a step of its workers, if it is known.
    #[serde(default)]
    step_timeout_s: Option<u64>,
    model: Model,
    settings: Value,
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

impl Instance {
    /// Reads the JSON text that Python made.
    ///
    /// # Errors
    /// In words for whoever wrote the settings.
    pub fn parse(text: &str) -> Result<Self, String> {
        let told: Told = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Told { role, rank, tensor_parallel, region, host, step_timeout_s, model, settings } =
            told;
        // Counts only where the store is Mooncake's and nobody says it better.
        let engine = Layer::new("vLLM", json!({"store": {"mooncake": {"local_hostname": host}}}));
        let settings = Settings::from_process(vec![engine], vec![Layer::new(ORIGIN, settings)])
            .map_err(|error| error.to_string())?;
        // How large items may be, the engine finds out later: `springtide config check --model` computes it.
        let patience = step_timeout_s.map(Duration::from_secs);
        settings.check_engine(&Engine { patience, ..Engine::default() })?;
        let instance = Self { role, rank, tensor_parallel, region, model, settings };
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
        Ok(Config {
            role: self.role,
            namespace: self.namespace()?,
            rank: self.rank,
            tensor_parallel: self.tensor_parallel,
            ..self.settings.connector(backing)
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
