//! A limit on lines that say the same: a store in trouble must not fill the disk with its log.
//!
//! Of each kind a few lines pass within a window of time; what comes beyond is counted, and the number is said
//! with the next line of the kind that passes, or by [`Limiter::due`] when the window is over. A kind is what a
//! message says without what is filled in, so there are as many as there are messages in the code, and a bound
//! for the case that somebody makes messages up.

use std::{collections::BTreeMap, time::Duration};

use crate::env::Time;

/// Kinds that are told apart; all further ones share one.
const KINDS_MAX: usize = 64;

/// The longest name of a kind.
const NAME_MAX: usize = 40;

/// The kind of what is beyond [`KINDS_MAX`], or has no words.
const OTHER: &str = "other";

/// Lets a few lines of each kind pass in a window of time.
#[derive(Clone, Debug)]
pub struct Limiter {
    burst: u64,
    window: Duration,
    kinds: BTreeMap<String, Kind>,
}

#[derive(Clone, Debug)]
struct Kind {
    /// When the window began.
    since: Time,
    /// Lines that passed in the window.
    passed: u64,
    /// Lines suppressed that nobody has been told of.
    untold: u64,
    /// All lines suppressed.
    suppressed: u64,
}

impl Default for Limiter {
    /// Five lines in ten seconds.
    fn default() -> Self {
        Self::new(5, Duration::from_secs(10))
    }
}

impl Limiter {
    /// Lets `burst` lines of a kind pass in each `window`.
    pub fn new(burst: u64, window: Duration) -> Self {
        Self { burst, window, kinds: BTreeMap::new() }
    }

    /// Whether a line may pass at `now`; if so, how many of its kind were suppressed before it and not told.
    ///
    /// ```
    /// use std::time::Duration;
    /// use springtide::{env::Time, log::Limiter};
    ///
    /// let mut limiter = Limiter::new(1, Duration::from_secs(10));
    /// let at = |seconds| Time::from_origin(Duration::from_secs(seconds));
    /// assert_eq!(limiter.admit("the store is down", at(0)), Some(0));
    /// assert_eq!(limiter.admit("the store is down", at(1)), None);
    /// assert_eq!(limiter.admit("the store is down", at(10)), Some(1));
    /// ```
    pub fn admit(&mut self, message: &str, now: Time) -> Option<u64> {
        let mut name = kind(message);
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&name) {
            OTHER.clone_into(&mut name);
        }
        let new = Kind { since: now, passed: 0, untold: 0, suppressed: 0 };
        let kind = self.kinds.entry(name).or_insert(new);
        if now - kind.since >= self.window {
            kind.since = now;
            kind.passed = 0;
        }
        if kind.passed >= self.burst {
            kind.untold += 1;
            kind.suppressed += 1;
            return None;
        }
        kind.passed += 1;
        Some(std::mem::take(&mut kind.untold))
    }

    /// Kinds whose window is over and of which lines were suppressed that nobody has been told of, with their
    /// number. They count as told.
    pub fn due(&mut self, now: Time) -> Vec<(String, u64)> {
        let over = self.kinds.iter_mut().filter(|(_, kind)| now - kind.since >= self.window);
        let untold = over.map(|(name, kind)| (name.clone(), std::mem::take(&mut kind.untold)));
        untold.filter(|(_, untold)| *untold > 0).collect()
    }

    /// How many lines were suppressed, by kind.
    pub fn suppressed(&self) -> BTreeMap<String, u64> {
        let kinds = self.kinds.iter().filter(|(_, kind)| kind.suppressed > 0);
        kinds.map(|(name, kind)| (name.clone(), kind.suppressed)).collect()
    }
}

/// The kind of a message: its first words, without what is filled in, as a label's value.
fn kind(message: &str) -> String {
    let message = message.strip_prefix("springtide: ").unwrap_or(message);
    let (mut name, mut filled) = (String::new(), false);
    for character in message.chars() {
        match character {
            // A placeholder of Python.
            '%' => filled = true,
            _ if std::mem::take(&mut filled) => {}
            _ if character.is_ascii_alphanumeric() => {
                name.push(character.to_ascii_lowercase());
            }
            ' ' | '-' | '_' | '/' if !name.is_empty() && !name.ends_with('_') => name.push('_'),
            ':' | ',' | '(' if !name.is_empty() => break,
            _ => {}
        }
        if name.len() >= NAME_MAX {
            break;
        }
    }
    let name = name.trim_end_matches('_');
    if name.is_empty() { OTHER.to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_origin(Duration::from_millis(millis))
    }

    #[test]
    fn kinds_are_what_messages_say_without_what_is_filled_in() {
        for (message, name) in [
            ("removing a bad object", "removing_a_bad_object"),
            ("the store is down: items are encoded locally and not saved", "the_store_is_down"),
            ("springtide: hook %s failed (%d times so far)", "hook_failed"),
            ("springtide: %s was promised and not delivered: %s", "was_promised_and_not_delivered"),
            ("serving /metrics", "serving_metrics"),
            ("%s: %r", "other"),
            ("", "other"),
        ] {
            assert_eq!(kind(message), name, "{message}");
        }
        assert_eq!(kind(&"x".repeat(1000)).len(), NAME_MAX);
    }

    #[test]
    fn a_storm_is_a_few_lines_and_a_number() {
        let mut limiter = Limiter::default();
        let storm = (0..10_000).filter(|_| limiter.admit("a: x", at(1)).is_some());
        assert_eq!(storm.count(), 5);
        assert_eq!(limiter.admit("b", at(1)), Some(0), "kinds do not hold each other up");
        assert_eq!(limiter.due(at(2)), [], "the window is not over");
        assert_eq!(limiter.admit("a: y", at(10_001)), Some(9995));
        assert_eq!(limiter.due(at(30_000)), [], "told with the line");
        assert_eq!(limiter.suppressed(), BTreeMap::from([("a".to_owned(), 9995)]));
    }

    #[test]
    fn a_storm_that_has_ended_is_told_too() {
        let mut limiter = Limiter::new(1, Duration::from_millis(10));
        for _ in 0..4 {
            limiter.admit("a", at(0));
        }
        assert_eq!(limiter.due(at(10)), [("a".to_owned(), 3)]);
        assert_eq!(limiter.due(at(20)), []);
        assert_eq!(limiter.admit("a", at(20)), Some(0));
        assert_eq!(limiter.suppressed()["a"], 3);
    }

    #[test]
    fn kinds_are_bounded() {
        let mut limiter = Limiter::new(1, Duration::from_secs(1));
        let passed = (0..1000).filter(|n| limiter.admit(&format!("kind {n}"), at(0)).is_some());
        assert_eq!(passed.count(), KINDS_MAX + 1);
        assert_eq!(limiter.suppressed()[OTHER], 1000 - KINDS_MAX as u64 - 1);
    }
}
