//! An item's way from the encoder to the consumer, one line a step.
//!
//! ```text
//! producer  queued ─▶ copied ─▶ put ─▶ committed     or  not saved, with the reason
//! consumer  asked for ─▶ looked up ─▶ fetched ─▶ ready ─▶ delivered     or  missed, with the reason
//! ```
//!
//! Every line has the field `item`, a digest of the key: the same in all processes, so that one search over
//! their logs shows what became of an item. Keys, identifiers and names of requests come from outside; they
//! are shown by [`shown`] only.

use std::fmt;

use crate::env::{Key, StoreError};

/// The target of these events and spans.
pub const ITEMS: &str = "springtide::item";

/// The most characters of a name from outside that a line shows.
const SHOWN_MAX: usize = 96;

/// An item's name in logs: 16 hexadecimal digits, a digest of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(u64);

impl ItemId {
    /// The id of the item under this key.
    ///
    /// ```
    /// use springtide::{connector::{Namespace, NamespaceParts}, log::ItemId};
    ///
    /// let namespace = Namespace::new(&NamespaceParts::default());
    /// let id = ItemId::of(&namespace.key("image-1"));
    /// assert_eq!(id.to_string().len(), 16);
    /// // Equal wherever the key is.
    /// assert_eq!(id, ItemId::of(&namespace.key("image-1")));
    /// ```
    pub fn of(key: &Key) -> Self {
        let digest = blake3::hash(key.as_str().as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A name from outside, fit for a line of a log: on one line, without control characters, of at most 96
/// characters.
///
/// ```
/// use springtide::log::shown;
///
/// assert_eq!(shown("image\n1 \u{1b}[2J"), r"image\n1 \u{1b}[2J");
/// assert_eq!(shown(&"x".repeat(1000)).chars().count(), 97);
/// ```
pub fn shown(text: &str) -> String {
    shown_within(text, SHOWN_MAX)
}

/// A text that may have come from outside, as [`shown`], of at most `characters_max` characters and an
/// ellipsis.
pub fn shown_within(text: &str, characters_max: usize) -> String {
    let (mut shown, mut characters) = (String::new(), 0);
    for character in text.chars() {
        let quote = matches!(character, '"' | '\'');
        let escaped = character.escape_debug().skip(usize::from(quote));
        characters += escaped.clone().count();
        if characters > characters_max {
            shown.push('…');
            break;
        }
        shown.extend(escaped);
    }
    shown
}

/// What the store said of whether it has an item.
pub(crate) fn answer(exists: &Result<bool, StoreError>) -> String {
    match exists {
        Ok(found) => found.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Reports a step of an item's way: `step!(&key, bytes, "put")`, or within the span of a save or a load:
/// `step!(span => &key, "put")`. Fields are only computed if somebody listens.
macro_rules! step {
    ($span:expr => $($rest:tt)+) => {
        $span.in_scope(|| $crate::log::step!($($rest)+))
    };
    ($key:expr, $($rest:tt)+) => {
        tracing::debug!(
            target: $crate::log::ITEMS,
            item = %$crate::log::ItemId::of($key),
            $($rest)+
        )
    };
}
pub(crate) use step;

/// The span of a save or a load of an item, from its beginning to its end in this process.
macro_rules! way {
    ($name:literal, $key:expr, $($rest:tt)+) => {
        tracing::debug_span!(
            target: $crate::log::ITEMS,
            $name,
            item = %$crate::log::ItemId::of($key),
            key = %$crate::log::shown($key.as_str()),
            $($rest)+
        )
    };
}
pub(crate) use way;
