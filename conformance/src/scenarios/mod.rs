//! Written sequences: every call in every state, and the states that chance does not reach.
//!
//! | module | what it is |
//! |---|---|
//! | `write` | short ways to write steps |
//! | `table` | every call on an absent, unfinished, stale, orphaned, complete, leased and pinned object |
//! | `space` | full segments: eviction, pins, bins, batches, upserts without room |
//! | `owners` | owners that die, stop or close |
//! | `masters` | a master that is killed or stopped |

mod masters;
mod owners;
mod space;
mod table;
mod write;

use crate::step::{Step, World};

/// A written sequence on a store of its own.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The store.
    pub world: World,
    /// What happens.
    pub steps: Vec<Step>,
    /// Why it may take minutes, if it may: it is then part of a whole comparison only.
    pub slow: Option<&'static str>,
}

/// All of them, those that wait longest first: side by side with the others they then cost least.
pub fn all() -> Vec<Scenario> {
    let all = [masters::all(), owners::all(), space::all(), table::all()].concat();
    let (slow, usual): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|scenario| scenario.slow.is_some());
    [slow, usual].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_sequences_can_be_saved() {
        let scenarios = all();
        let names: BTreeSet<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), scenarios.len());
        for Scenario { name, steps, .. } in scenarios {
            let saved = serde_json::to_string(&steps).unwrap();
            assert_eq!(serde_json::from_str::<Vec<Step>>(&saved).unwrap(), steps, "{name}");
        }
    }
}
