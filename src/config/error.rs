//! What a mistake looks like.

use serde_json::Value;
use serde_path_to_error::Segment;

use super::layers::{Origins, at};

/// A mistake in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A source that cannot be read at all.
    #[error("{origin}: {reason}")]
    Unreadable {
        /// The source.
        origin: String,
        /// Why.
        reason: String,
    },
    /// A value that cannot be.
    #[error("{origin}: {key} is {value}, expected {expected}")]
    Value {
        /// The source that the value came from.
        origin: String,
        /// Its key.
        key: String,
        /// The value, as JSON; `missing`; or `no key`.
        value: String,
        /// What would be accepted.
        expected: String,
    },
}

impl SettingsError {
    pub(super) fn unreadable(origin: String, reason: String) -> Self {
        Self::Unreadable { origin, reason }
    }
}

/// A value that cannot be, before its source is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) expected: String,
}

impl Mistake {
    /// With its source, and as it was written there.
    pub(super) fn of(self, tree: &Value, origins: &Origins) -> SettingsError {
        let path: Vec<String> = self.key.split('.').map(str::to_owned).collect();
        let value = at(tree, &path).map_or(self.value, ToString::to_string);
        let origin = if at(tree, &path).is_some() { origins.of(&path) } else { "defaults".into() };
        SettingsError::Value { origin, key: self.key, value, expected: self.expected }
    }
}

/// What serde has found, in the words of [`SettingsError`].
pub(super) fn typed(
    error: &serde_path_to_error::Error<serde_json::Error>,
    tree: &Value,
    origins: &Origins,
) -> SettingsError {
    let part = |segment: &Segment| match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Unknown => None,
    };
    let mut path: Vec<String> = error.path().iter().filter_map(part).collect();
    let text = error.inner().to_string();
    let (what, expected) = text.split_once(", expected ").unwrap_or((&text, "another value"));
    let named = what.split('`').nth(1).unwrap_or_default();
    let (value, expected) = if what.starts_with("unknown field") {
        if path.last().is_none_or(|last| last != named) {
            path.push(named.to_owned());
        }
        ("no key".to_owned(), suggestion(named, expected))
    } else if what.starts_with("missing field") {
        path.push(named.to_owned());
        ("missing".to_owned(), "a value".to_owned())
    } else if what.starts_with("unknown variant") {
        (format!("{named:?}"), suggestion(named, expected))
    } else {
        let value = at(tree, &path).map_or_else(|| what.to_owned(), ToString::to_string);
        (value, plainly(expected))
    };
    SettingsError::Value { origin: origins.of(&path), key: path.join("."), value, expected }
}

/// What was expected, without the names of Rust's types.
fn plainly(expected: &str) -> String {
    match expected {
        "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "a nonzero usize" => "a whole number, 1 or more".into(),
        expected if expected.starts_with("struct ") => "a section with keys of its own".into(),
        expected => expected.to_owned(),
    }
}

/// What was expected, with the name that was probably meant.
fn suggestion(named: &str, expected: &str) -> String {
    let names = expected.split('`').skip(1).step_by(2);
    let close = names.map(|name| (distance(named, name), name)).min();
    match close {
        Some((distance, name)) if distance <= named.len().div_ceil(3) && expected.contains(',') => {
            format!("{expected}; did you mean `{name}`?")
        }
        _ => expected.to_owned(),
    }
}

/// Letters to insert, drop or change to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let change = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (one, other, expected) in
            [("", "", 0), ("a", "", 1), ("bytes", "bites", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{one} {other}");
        }
    }
}
