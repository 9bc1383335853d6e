//! Names of objects.
//!
//! A key is `st1/<namespace digest>/<identifier>`. The namespace digests everything that changes the bytes of
//! an encoder output, so items of two models, adapters or precisions never meet. This module is the only
//! place that makes keys; producers and consumers compare [`Namespace::fingerprint`] when they start.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::seal::Secret;
use crate::env::{DType, Key, Shape, ShapeError, TensorSpec};

/// Version of the key and object format, the first part of every key.
pub const FORMAT: &str = "st1";

/// The longest identifier that a key carries verbatim, in bytes. Longer ones are digested.
pub const IDENTIFIER_MAX: usize = 128;

/// Everything that changes the bytes of an encoder output for one media item.
///
/// Names are not enough where weights can change under a name: put a digest or revision there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceParts {
    /// Model name or path.
    pub model: String,
    /// Revision or digest of the weights.
    #[serde(default)]
    pub revision: String,
    /// Processor options.
    #[serde(default)]
    pub processor: String,
    /// Encoder configuration.
    #[serde(default)]
    pub encoder: String,
    /// Adapter on the encoder with the digest of its weights; empty for none.
    #[serde(default)]
    pub adapter: String,
    /// Tensor-parallel layout, where it changes the cached tensor; empty where every rank holds all of it.
    #[serde(default)]
    pub layout: String,
    /// Element type of the cached rows.
    pub dtype: DType,
    /// Elements in one cached row (hidden size, times 1 + DeepStack levels where the model has them).
    pub width: u64,
    /// What seals the items. Comes from a file of its own and is never written down.
    #[serde(skip)]
    pub secret: Option<Secret>,
}

impl Default for NamespaceParts {
    /// An unnamed model with bfloat16 rows of width 1; real configurations always set it.
    fn default() -> Self {
        Self {
            model: String::new(),
            revision: String::new(),
            processor: String::new(),
            encoder: String::new(),
            adapter: String::new(),
            layout: String::new(),
            dtype: DType::Bf16,
            width: 1,
            secret: None,
        }
    }
}

/// The namespace of one model configuration: makes its keys, knows the shape of its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    prefix: String,
    dtype: DType,
    width: u64,
}

impl Namespace {
    /// The namespace of these parts.
    pub fn new(parts: &NamespaceParts) -> Self {
        let NamespaceParts { model, revision, processor, encoder, adapter, layout, .. } = parts;
        let NamespaceParts { dtype, width, secret, .. } = parts;
        let mut hasher = blake3::Hasher::new();
        for text in [FORMAT, model, revision, processor, encoder, adapter, layout, dtype.name()] {
            // Length first: ("ab", "c") and ("a", "bc") are different namespaces.
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.update(&width.to_le_bytes());
        if let Some(secret) = secret {
            hasher.update(secret.id());
        }
        let digest = hasher.finalize().to_hex();
        Self { prefix: format!("{FORMAT}/{}", &digest[..32]), dtype: *dtype, width: *width }
    }

    /// The key of a media item. Identifiers come from clients and may be anything.
    pub fn key(&self, identifier: &str) -> Key {
        let plain = !identifier.is_empty()
            && identifier.len() <= IDENTIFIER_MAX
            && identifier.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
        if plain {
            Key::new(format!("{}/{identifier}", self.prefix))
        } else {
            // `~` is not a plain character, so a digest never equals a plain identifier.
            Key::new(format!("{}/~{}", self.prefix, blake3::hash(identifier.as_bytes()).to_hex()))
        }
    }

    /// Equal on two instances exactly when they can share items.
    pub fn fingerprint(&self) -> &str {
        &self.prefix
    }

    /// Type and shape of an item with this many rows.
    ///
    /// # Errors
    /// [`ShapeError`] when the rows are more than an object can describe.
    pub fn spec(&self, rows: u64) -> Result<TensorSpec, ShapeError> {
        TensorSpec::new(self.dtype, Shape::rows(rows, self.width)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn secret(bytes: &[u8]) -> Secret {
        Secret::new(bytes).unwrap()
    }

    fn parts() -> NamespaceParts {
        NamespaceParts { model: "m".into(), width: 2048, ..NamespaceParts::default() }
    }

    #[test]
    fn every_part_makes_another_namespace() {
        let base = parts();
        let variants = [
            base.clone(),
            NamespaceParts { model: "m2".into(), ..base.clone() },
            NamespaceParts { revision: "r".into(), ..base.clone() },
            NamespaceParts { processor: "r".into(), ..base.clone() },
            NamespaceParts { encoder: "r".into(), ..base.clone() },
            NamespaceParts { adapter: "r".into(), ..base.clone() },
            NamespaceParts { layout: "r".into(), ..base.clone() },
            NamespaceParts { dtype: DType::F16, ..base.clone() },
            NamespaceParts { width: 8192, ..base.clone() },
            NamespaceParts { secret: Some(secret(b"one secret of these")), ..base.clone() },
            NamespaceParts { secret: Some(secret(b"another one of these")), ..base.clone() },
        ];
        let keys: BTreeSet<Key> = variants.iter().map(|p| Namespace::new(p).key("x")).collect();
        assert_eq!(keys.len(), variants.len());
    }

    #[test]
    fn f019_f048_hostile_identifiers_stay_apart() {
        let namespace = Namespace::new(&parts());
        let long = "a".repeat(1 << 20);
        let longer = format!("{long}b");
        let digest = blake3::hash(b"a b").to_hex();
        let digested = format!("~{digest}");
        let hostile = [
            "x",
            "x_metadata",
            "../x",
            "/x",
            "a b",
            digest.as_str(),
            digested.as_str(),
            "",
            "ключ",
            "a\0b",
            &long,
            &longer,
        ];
        let keys: BTreeSet<Key> = hostile.iter().map(|id| namespace.key(id)).collect();
        assert_eq!(keys.len(), hostile.len());
        for key in keys {
            let (prefix, name) = key.as_str().rsplit_once('/').unwrap();
            assert_eq!(prefix, namespace.fingerprint());
            assert!(name.len() <= IDENTIFIER_MAX && name.is_ascii());
        }
    }

    #[test]
    fn usual_identifiers_are_readable() {
        let namespace = Namespace::new(&parts());
        let key = namespace.key("lora:0123abcd");
        assert_eq!(key.as_str(), format!("{}/lora:0123abcd", namespace.fingerprint()));
    }
}
