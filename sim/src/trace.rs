//! The trace of a run: a rolling hash over every event, and on demand the timeline as text.
//!
//! One line stands for one event: number, simulated time, host, what happened. The hash covers exactly these
//! lines, so two runs with equal hashes did the same, and two with different ones can be compared line by
//! line. A line holds nothing that differs between machines: no address, no wall clock, no pointer.

use springtide::env::Time;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The trace of one run.
#[derive(Clone, Debug)]
pub struct Trace {
    events: u64,
    hash: u64,
    lines: Option<Vec<String>>,
}

/// The first place where two traces differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the event, from one.
    pub event: u64,
    /// What the first run did, if it got that far.
    pub first: Option<String>,
    /// What the second run did.
    pub second: Option<String>,
}

impl Trace {
    /// An empty trace, which keeps its lines if `keep` is set.
    pub fn new(keep: bool) -> Self {
        Self { events: 0, hash: 0, lines: keep.then(Vec::new) }
    }

    /// Appends an event; returns its number, from one.
    pub fn push(&mut self, time: Time, host: &str, what: &str) -> u64 {
        self.events += 1;
        let line = format!("{:>6} {time} {host:<9} {what}", self.events);
        self.hash = xxh3_64_with_seed(line.as_bytes(), self.hash);
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
        self.events
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The timeline, if it was kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    /// The first difference between two kept traces.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let (first, second) = (self.lines(), other.lines());
        let longest = first.len().max(second.len());
        (0..longest).find(|&n| first.get(n) != second.get(n)).map(|n| Difference {
            event: n as u64 + 1,
            first: first.get(n).cloned(),
            second: second.get(n).cloned(),
        })
    }
}

/// One hash for many runs, from each one's hash in the order of the plans.
pub fn combine(hashes: impl IntoIterator<Item = u64>) -> u64 {
    hashes.into_iter().fold(0, |seed, hash| xxh3_64_with_seed(&hash.to_le_bytes(), seed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn trace(words: &[&str]) -> Trace {
        let mut trace = Trace::new(true);
        for (n, word) in words.iter().enumerate() {
            trace.push(Time::from_origin(Duration::from_millis(n as u64)), "host", word);
        }
        trace
    }

    #[test]
    fn hash_covers_order_and_content() {
        assert_eq!(trace(&["a", "b"]).hash(), trace(&["a", "b"]).hash());
        assert_ne!(trace(&["a", "b"]).hash(), trace(&["b", "a"]).hash());
        assert_ne!(trace(&["a"]).hash(), trace(&["a", "b"]).hash());
    }

    #[test]
    fn the_first_difference_is_found() {
        let difference = trace(&["a", "b", "c"]).difference(&trace(&["a", "x"])).unwrap();
        assert_eq!(difference.event, 2);
        assert_eq!(difference.first.as_deref(), Some("     2 0.001000s host      b"));
        assert_eq!(difference.second.as_deref(), Some("     2 0.001000s host      x"));
        assert_eq!(trace(&["a"]).difference(&trace(&["a"])), None);
    }

    #[test]
    fn combined_hash_depends_on_order() {
        assert_ne!(combine([1, 2]), combine([2, 1]));
    }
}
