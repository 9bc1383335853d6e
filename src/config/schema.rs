//! The JSON Schema of the settings, and the table of all keys: both from the code, so that they cannot lag
//! behind it.

use serde_json::{Map, Value};

use super::Settings;

/// The JSON Schema of [`Settings`].
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Settings).to_value();
    tidy(&mut schema);
    schema
}

/// One key of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The key, with dots between its parts.
    pub key: String,
    /// Its default as JSON; empty for a key that must be given where its part is.
    pub default: String,
    /// What it means.
    pub text: String,
}

/// Every key, in alphabetical order within its part.
pub fn keys() -> Vec<Described> {
    let schema = schema();
    let defaults = serde_json::to_value(Settings::default()).unwrap_or_default();
    let mut keys = Vec::new();
    walk(&schema, &schema, String::new(), Some(&defaults), &mut keys);
    keys
}

fn walk(
    root: &Value,
    schema: &Value,
    path: String,
    defaults: Option<&Value>,
    keys: &mut Vec<Described>,
) {
    let schema = resolved(root, schema);
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    for (name, property) in properties {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let default = defaults.and_then(|defaults| defaults.get(name));
        let target = resolved(root, property);
        let variants = target.get("oneOf").and_then(Value::as_array);
        let is_struct = |schema: &Value| schema.get("properties").is_some();
        if is_struct(target) {
            walk(root, property, key, default, keys);
        } else if let Some(variants) = variants.filter(|variants| variants.iter().all(is_struct)) {
            for variant in variants {
                walk(root, variant, key.clone(), default, keys);
            }
        } else {
            let default = default.or_else(|| property.get("default"));
            let default = default.map(ToString::to_string).unwrap_or_default();
            let text = property.get("description").or_else(|| target.get("description"));
            let text = text.and_then(Value::as_str).unwrap_or_default().to_owned();
            keys.push(Described { key, default, text });
        }
    }
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let target = reference.and_then(|reference| root.pointer(reference.strip_prefix('#')?));
    target.unwrap_or(schema)
}

/// Makes one line of each description, without the links of Rust's documentation.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
                *text = words.replace("[`", "`").replace("`]", "`");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
