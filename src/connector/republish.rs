//! Which items a producer should offer to the store once more, decided without I/O.
//!
//! An item that the engine still holds in its own encoder cache is not encoded again, and so not saved
//! again, when another request asks for it; the store may have lost it meanwhile. The scheduler therefore
//! names such items to the worker, once a request: a save of what is still there costs one lookup, of what
//! is lost it publishes the item again. The response of that request then waits for it as for any save.

use std::collections::{BTreeMap, BTreeSet};

use super::requests::ItemRequest;

#[derive(Debug, Default)]
pub(super) struct Republish {
    /// Mirror of the engine's own encoder cache.
    engine_holds: BTreeSet<String>,
    /// What has entered it in this scheduling pass.
    entered: BTreeSet<String>,
    /// What each request has been looked after for.
    seen: BTreeMap<String, BTreeSet<String>>,
    /// What this pass has found.
    again: BTreeSet<String>,
}

impl Republish {
    /// A request is about to use these items.
    pub(super) fn wanted(&mut self, request: &str, items: &[ItemRequest]) {
        for item in items.iter().filter(|item| self.engine_holds.contains(&item.identifier)) {
            let seen = self.seen.entry(request.to_owned()).or_default();
            if seen.insert(item.identifier.clone()) {
                self.again.insert(item.identifier.clone());
            }
        }
    }

    /// The engine has allocated its cache for the item.
    pub(super) fn allocated(&mut self, identifier: &str) {
        self.engine_holds.insert(identifier.to_owned());
        self.entered.insert(identifier.to_owned());
    }

    /// Ends a scheduling pass: `freed` has left the engine's own cache, unless it came back in this pass.
    pub(super) fn build_step(&mut self, freed: &[String]) -> Vec<String> {
        let entered = std::mem::take(&mut self.entered);
        for identifier in freed.iter().filter(|identifier| !entered.contains(*identifier)) {
            self.engine_holds.remove(identifier);
        }
        std::mem::take(&mut self.again).into_iter().collect()
    }

    /// The request has ended.
    pub(super) fn finished(&mut self, request: &str) {
        self.seen.remove(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(names: &[&str]) -> Vec<ItemRequest> {
        names.iter().map(|name| ItemRequest { identifier: (*name).to_owned(), rows: 1 }).collect()
    }

    #[test]
    fn what_the_engine_holds_is_named_once_a_request() {
        let mut republish = Republish::default();
        republish.wanted("a", &items(&["x", "y"]));
        republish.allocated("x");
        assert!(republish.build_step(&[]).is_empty(), "it is being encoded: that saves it");
        republish.wanted("a", &items(&["x"]));
        republish.wanted("b", &items(&["x", "y"]));
        assert_eq!(republish.build_step(&[]), ["x"]);
        republish.wanted("b", &items(&["x", "y"]));
        assert!(republish.build_step(&[]).is_empty(), "once is enough");
        republish.finished("b");
        republish.wanted("b", &items(&["x"]));
        assert_eq!(republish.build_step(&[]), ["x"], "another request of the same name");
    }

    #[test]
    fn what_has_left_the_engine_is_not_named() {
        let mut republish = Republish::default();
        republish.allocated("x");
        republish.allocated("y");
        republish.build_step(&[]);
        republish.allocated("y");
        // What left and came back in one pass is there.
        republish.build_step(&["x".into(), "y".into()]);
        republish.wanted("b", &items(&["x", "y"]));
        assert_eq!(republish.build_step(&[]), ["y"]);
    }
}
