//! Checking and describing settings.

use std::{fmt::Write as _, path::Path, time::Duration};

use springtide::config::{Engine, Layer, Settings, keys, schema};

use crate::{
    args::ConfigCommand,
    failure::{Failure, tell},
    plan,
};

/// Does what the command says; gives what is to be printed.
pub(crate) fn execute(command: &ConfigCommand) -> Result<String, Failure> {
    match command {
        ConfigCommand::Check { file, model, resolution, frames, engine_timeout, json } => {
            let settings = read(file.as_deref())?;
            let item = |model: &String| plan::object_bytes(model, *resolution, *frames);
            let engine = Engine {
                item_bytes_max: model.as_ref().map(item).transpose()?,
                patience: engine_timeout.map(Duration::from_secs),
            };
            settings.check_engine(&engine).map_err(Failure::failed)?;
            for warning in settings.warnings() {
                tell(format!("warning: {warning}"));
            }
            // It may be there where the instances run.
            if let Err(error) = settings.secret() {
                tell(format!("warning: secret_file: {error}"));
            }
            let text = match json {
                true => serde_json::to_string_pretty(&settings).map_err(Failure::failed),
                false => toml::to_string_pretty(&settings).map_err(Failure::failed),
            };
            Ok(text?.trim_end().to_owned())
        }
        ConfigCommand::Schema => serde_json::to_string_pretty(&schema()).map_err(Failure::failed),
        ConfigCommand::Keys => Ok(table()),
    }
}

/// Reads all sources.
pub(crate) fn read(file: Option<&Path>) -> Result<Settings, Failure> {
    let file = file.map(Layer::file).transpose().map_err(Failure::failed)?;
    Settings::from_process(Vec::new(), file.into_iter().collect()).map_err(Failure::failed)
}

/// Every key, as a table in Markdown.
fn table() -> String {
    let mut table = "| key | default | what it is |\n|---|---|---|".to_owned();
    for described in keys() {
        let default = match described.default.as_str() {
            "" => "must be given".to_owned(),
            "null" | "\"\"" => String::new(),
            default => format!("`{default}`"),
        };
        // Writing to a string does not fail.
        let text = described.text.replace('|', "\\|");
        let _ = write!(table, "\n| `{}` | {default} | {text} |", described.key);
    }
    table
}
