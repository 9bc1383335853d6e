//! Mooncake's own file, as the users of its vLLM connectors have it.

use serde_json::{Map, Value};

use super::SettingsError;

/// A key of Mooncake, ours, and whether it is a size.
const KEYS: [(&str, &str, bool); 7] = [
    ("master_server_address", "master", false),
    ("local_hostname", "local_hostname", false),
    ("metadata_server", "metadata_server", false),
    ("protocol", "protocol", false),
    ("device_name", "device", false),
    ("global_segment_size", "segment_bytes", true),
    ("local_buffer_size", "local_buffer_bytes", true),
];

/// What the file says, under our keys.
pub(super) fn read(origin: &str, tree: &Value) -> Result<Value, SettingsError> {
    let mut ours = Map::new();
    for (theirs, key, is_size) in KEYS {
        let Some(value) = tree.get(theirs) else { continue };
        let mistake = |expected: &str| SettingsError::Value {
            origin: origin.to_owned(),
            key: theirs.to_owned(),
            value: value.to_string(),
            expected: expected.to_owned(),
        };
        let value = match value {
            // Nothing, as their connectors read it.
            Value::Null => continue,
            Value::String(text) if is_size => {
                let bytes = size(text);
                bytes.ok_or_else(|| mistake("bytes, or a text like \"4GB\" (1024^3)"))?.into()
            }
            Value::Number(number) if is_size && number.is_u64() => value.clone(),
            Value::String(_) if !is_size => value.clone(),
            _ if is_size => return Err(mistake("bytes, or a text like \"4GB\" (1024^3)")),
            _ => return Err(mistake("a text")),
        };
        ours.insert(key.to_owned(), value);
    }
    Ok(Value::Object(ours))
}

/// A size as Mooncake's connectors read it: all units are powers of 1024, their case does not matter.
fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit: u64 = match text[end..].trim_start() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let number: f64 = text[..end].parse().ok()?;
    let bytes = number * unit as f64;
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn their_sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("4GB", 4 << 30),
            ("1.5 gb", 3 << 29),
            ("512MB", 512 << 20),
            ("7", 7),
            ("3GiB", 3 << 30),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "GB", "-1", "4 parsecs", "1e400", "99999999999999 TB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
