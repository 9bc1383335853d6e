//! Sources, and how they are put on each other.

use std::{fs, io::Read, path::Path};

use serde_json::{Map, Value};

use super::{SettingsError, mooncake_file};

/// How variables begin that are settings: `SPRINGTIDE__SAVES__DEADLINE_MS` is `saves.deadline_ms`.
pub const ENVIRONMENT_PREFIX: &str = "SPRINGTIDE__";

/// Longest file of settings that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A part of the settings, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    origin: String,
    tree: Value,
}

/// Layers as they were, to find out where a value came from.
pub(super) struct Origins(Vec<Layer>);

impl Layer {
    /// Values from `origin`, which messages name.
    pub fn new(origin: impl Into<String>, tree: Value) -> Self {
        Self { origin: origin.into(), tree }
    }

    /// JSON text.
    ///
    /// # Errors
    /// When it is no JSON.
    pub fn json(origin: impl Into<String>, text: &str) -> Result<Self, SettingsError> {
        let origin = origin.into();
        match serde_json::from_str(text) {
            Ok(tree @ Value::Object(_)) => Ok(Self { origin, tree }),
            Ok(other) => {
                let text = format!("is {other}, expected an object");
                Err(SettingsError::unreadable(origin, text))
            }
            Err(error) => Err(SettingsError::unreadable(origin, format!("no JSON: {error}"))),
        }
    }

    /// TOML text.
    ///
    /// # Errors
    /// When it is no TOML.
    pub fn toml(origin: impl Into<String>, text: &str) -> Result<Self, SettingsError> {
        let origin = origin.into();
        match toml::from_str(text) {
            Ok(tree) => Ok(Self { origin, tree }),
            Err(error) => {
                let text = error.to_string();
                let text = text.trim_end().replace('\n', "\n    ");
                Err(SettingsError::unreadable(origin, format!("no TOML: {text}")))
            }
        }
    }

    /// A file: TOML if its name ends in `.toml`, JSON if it ends in `.json`.
    ///
    /// # Errors
    /// When it cannot be read, or is not what its name says.
    pub fn file(path: &Path) -> Result<Self, SettingsError> {
        let origin = path.display().to_string();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Self::toml(origin, &read(path)?),
            Some("json") => Self::json(origin, &read(path)?),
            _ => {
                let text = "its name ends neither in .toml nor in .json".into();
                Err(SettingsError::unreadable(origin, text))
            }
        }
    }

    /// Mooncake's own file, which `MOONCAKE_CONFIG_PATH` names where it is used: JSON with `local_hostname`,
    /// `metadata_server`, `master_server_address`, `protocol`, `device_name`, `global_segment_size` and
    /// `local_buffer_size`. What else is in it is Mooncake's own business.
    ///
    /// # Errors
    /// When it cannot be read, or a value has the wrong type.
    pub fn mooncake_file(path: &Path) -> Result<Self, SettingsError> {
        let Self { origin, tree } = Self::json(path.display().to_string(), &read(path)?)?;
        let mooncake = mooncake_file::read(&origin, &tree)?;
        Ok(Self { origin, tree: nested("store", nested("mooncake", mooncake)) })
    }

    /// Environment variables, of which those count that begin with [`ENVIRONMENT_PREFIX`]. Parts of a key are
    /// separated by two underscores. A value that is JSON is taken as that, anything else as text.
    pub fn environment(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut tree = Value::Object(Map::new());
        for (name, text) in variables {
            let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX) else { continue };
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            let parts = key.split("__").collect::<Vec<_>>();
            let layer = parts
                .into_iter()
                .rev()
                .fold(value, |value, part| nested(&part.to_lowercase(), value));
            put_on(&mut tree, layer);
        }
        Self { origin: "environment".into(), tree }
    }
}

impl Origins {
    /// The name of the source that a value came from: the last that has something at its key, or at the
    /// longest part of it.
    pub(super) fn of(&self, path: &[String]) -> String {
        let whole = (1..=path.len()).rev().find_map(|len| {
            let has = |layer: &&Layer| at(&layer.tree, &path[..len]).is_some();
            self.0.iter().rev().find(has)
        });
        match whole.or(self.0.last()) {
            Some(Layer { origin, .. }) if origin == "environment" => {
                let key = path.join("__").to_uppercase();
                format!("environment ({ENVIRONMENT_PREFIX}{key})")
            }
            Some(layer) => layer.origin.clone(),
            None => "defaults".into(),
        }
    }
}

/// The text of a file. What is no file has no end, or keeps its reader waiting.
fn read(path: &Path) -> Result<String, SettingsError> {
    let unreadable = |why: String| SettingsError::unreadable(path.display().to_string(), why);
    let failed = |error: std::io::Error| unreadable(error.to_string());
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(unreadable("is no file".into()));
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let text = format!("is longer than {FILE_BYTES_MAX} bytes, expected settings");
        return Err(unreadable(text));
    }
    Ok(text)
}

/// The value at a key.
pub(super) fn at<'a>(tree: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |tree, part| match tree {
        Value::Object(map) => map.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Puts the layers on each other.
pub(super) fn merge(layers: Vec<Layer>) -> (Value, Origins) {
    let mut tree = Value::Object(Map::new());
    for layer in &layers {
        replace_store(&mut tree, &layer.tree);
        put_on(&mut tree, layer.tree.clone());
    }
    (tree, Origins(layers))
}

/// Puts `upper` on `lower`: objects key by key, anything else whole.
fn put_on(lower: &mut Value, upper: Value) {
    match (lower, upper) {
        (Value::Object(lower), Value::Object(upper)) => {
            for (key, value) in upper {
                match lower.get_mut(&key) {
                    Some(below) => put_on(below, value),
                    None => _ = lower.insert(key, value),
                }
            }
        }
        (lower, upper) => *lower = upper,
    }
}

/// A layer that names another store replaces what lies below.
fn replace_store(lower: &mut Value, upper: &Value) {
    let (Some(Value::Object(below)), Some(Value::Object(above))) =
        (lower.get_mut("store"), upper.get("store"))
    else {
        return;
    };
    if above.len() == 1 {
        below.retain(|kind, _| above.contains_key(kind));
    }
}

fn nested(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}
