//! Numbers of bytes, as people write them: `4096`, `"64 MiB"`, `"1.5 GiB"`.
//!
//! A number alone is bytes. `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024; `KB`, `MB`, `GB`, `TB` are powers
//! of 1000, as the standard has them.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserializer, de};

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// What a size may look like, for messages.
pub const EXPECTED: &str = "bytes as a number, or text like \"3 GiB\" (B, KiB, MiB, GiB, TiB: powers of 1024; \
                            KB, MB, GB, TB: powers of 1000)";

/// A text that is no number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no size, expected {EXPECTED}")]
pub struct SizeError {
    /// The text.
    pub text: String,
}

/// The number of bytes that a text names.
///
/// # Errors
/// [`SizeError`] unless it is a number with at most one unit of the table, and whole bytes that 64 bits
/// count.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    bytes(text.trim()).ok_or_else(|| SizeError { text: text.to_owned() })
}

fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let unit = match unit {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    let (whole, fraction) = match number.split_once('.') {
        None => (number, "0"),
        Some((whole, fraction)) if (1..=9).contains(&fraction.len()) => (whole, fraction),
        Some(_) => return None,
    };
    let scale = 10_u64.pow(fraction.len() as u32);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    // Half a byte is a mistake in the unit.
    let part = (part % u128::from(scale) == 0).then_some(part / u128::from(scale))?;
    u64::try_from(u128::from(whole.parse::<u64>().ok()?) * u128::from(unit) + part).ok()
}

/// A number of bytes in the largest unit that keeps it whole, as [`parse`] reads it.
pub fn show(bytes: u64) -> String {
    let whole = |(_, unit): &&(&str, u64)| bytes >= *unit && bytes.is_multiple_of(*unit);
    let (name, unit) = UNITS[..5].iter().rev().find(whole).unwrap_or(&UNITS[0]);
    format!("{} {name}", bytes / unit)
}

/// For `#[serde(deserialize_with)]` on a field in bytes: a number or a text.
///
/// # Errors
/// As the deserializer's, for anything else.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Bytes;

    impl de::Visitor<'_> for Bytes {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(EXPECTED)
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
            Ok(bytes)
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
            let negative = |_| E::invalid_value(de::Unexpected::Signed(bytes), &self);
            u64::try_from(bytes).map_err(negative)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            parse(text).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Bytes)
}

/// The schema of a field that [`deserialize`] reads.
#[derive(Clone, Copy, Debug)]
pub enum Size {}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": "^ *[0-9]+(\\.[0-9]{1,9})? *([KMGT]i?B|B)? *$",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_and_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1B", 1),
            ("64KiB", 64 << 10),
            ("3 GiB", 3 << 30),
            (" 1.5 GiB ", 3 << 29),
            ("0.25 KiB", 256),
            ("2 TB", 2_000_000_000_000),
            ("3GB", 3_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_came() {
        let bad = [
            "",
            "GiB",
            "3 gib",
            "3 G",
            "-1",
            "1e9",
            "1.",
            ".5 GiB",
            "1.5",
            "0.1 KiB",
            "1.2.3 B",
            "3 GiB GiB",
            "99999999999 GiB",
            "1.0000000001 GiB",
            "½ GiB",
        ];
        for text in bad {
            assert_eq!(parse(text), Err(SizeError { text: text.into() }), "{text}");
        }
        insta::assert_snapshot!(
            parse("3 gib").unwrap_err(),
            @r#""3 gib" is no size, expected bytes as a number, or text like "3 GiB" (B, KiB, MiB, GiB, TiB: powers of 1024; KB, MB, GB, TB: powers of 1000)"#
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(bytes: u64, shift in 0_u32..64) {
            for bytes in [bytes, bytes >> shift << shift] {
                prop_assert_eq!(parse(&show(bytes)), Ok(bytes));
            }
        }

        #[test]
        fn no_text_panics(text in "[0-9. KMGTiB]{0,24}|.*") {
            let _ = parse(&text);
        }
    }
}
