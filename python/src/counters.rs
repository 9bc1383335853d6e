//! Counters as Python gets them: flat names, and what has changed since the last time.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde::Serialize;
use serde_json::Value;

/// Flat names and their counts.
pub type Counts = BTreeMap<String, i64>;

/// The numbers of a structure, by their path: `misses` that are `{"absent": 3}` become `misses.absent`.
pub fn flatten(counters: &impl Serialize) -> Counts {
    let mut counts = Counts::new();
    if let Ok(value) = serde_json::to_value(counters) {
        add("", &value, &mut counts);
    }
    counts
}

fn add(path: &str, value: &Value, counts: &mut Counts) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add(&path, value, counts);
            }
        }
        Value::Number(number) => {
            counts.insert(path.to_owned(), number.as_i64().unwrap_or(i64::MAX));
        }
        _ => {}
    }
}

/// What has been told already.
#[derive(Debug, Default)]
pub struct Told(Mutex<Counts>);

impl Told {
    /// The differences to the last call, without those that are zero.
    pub fn changes(&self, now: Counts) -> Counts {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let difference = |(name, count): (&String, &i64)| {
            let change = count - told.get(name).copied().unwrap_or(0);
            (change != 0).then(|| (name.clone(), change))
        };
        let changes = now.iter().filter_map(difference).collect();
        *told = now;
        changes
    }
}
