//! The engine's own encoder cache: device tensors by identifier, held for the requests that use them.
//!
//! As in vLLM, an entry without users stays until its place is needed, oldest first; what leaves is told to
//! the connector with the next step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::world::device::SimTensor;

/// The cache of one engine. All ranks hold the same items, one tensor each.
#[derive(Debug)]
pub struct EncoderCache {
    items_max: usize,
    entries: BTreeMap<String, Entry>,
    /// Entries without users, those that lost their last one first in front.
    idle: VecDeque<String>,
    /// What left since the last [`EncoderCache::take_freed`].
    freed: Vec<String>,
}

#[derive(Debug, Default)]
struct Entry {
    users: BTreeSet<String>,
    /// One a rank, once the item is there.
    tensors: BTreeMap<u32, SimTensor>,
}

impl EncoderCache {
    /// An empty cache of `items_max` places.
    pub fn new(items_max: usize) -> Self {
        let (entries, idle, freed) = Default::default();
        Self { items_max, entries, idle, freed }
    }

    /// Whether an item has a place, filled or not.
    pub fn holds(&self, item: &str) -> bool {
        self.entries.contains_key(item)
    }

    /// The tensor of a rank.
    pub fn tensor(&self, item: &str, rank: u32) -> Option<&SimTensor> {
        self.entries.get(item)?.tensors.get(&rank)
    }

    /// Whether `new` further items would find a place.
    pub fn has_room(&self, new: usize) -> bool {
        self.entries.len() - self.idle.len() + new <= self.items_max
    }

    /// Whether a request for these items would find a place for each: those that lie idle lose theirs to
    /// nobody, but are not free either.
    pub fn has_room_for<'a>(&self, items: impl IntoIterator<Item = &'a str>) -> bool {
        let in_use = |item: &&str| self.holds(item) && !self.idle.iter().any(|idle| idle == item);
        let wanted: BTreeSet<&str> = items.into_iter().filter(|item| !in_use(item)).collect();
        self.has_room(wanted.len())
    }

    /// Gives an item a place for `request`, evicting an idle one if need be.
    ///
    /// # Panics
    /// When there is no room: the caller asks first.
    pub fn allocate(&mut self, item: &str, request: &str) {
        if !self.holds(item) && self.entries.len() >= self.items_max {
            let victim = self.idle.pop_front().expect("the caller asked for room");
            self.entries.remove(&victim);
            self.freed.push(victim);
        }
        self.idle.retain(|idle| idle != item);
        self.entries.entry(item.to_owned()).or_default().users.insert(request.to_owned());
    }

    /// Fills a place; a tensor whose place has gone is dropped.
    pub fn fill(&mut self, item: &str, rank: u32, tensor: SimTensor) {
        if let Some(entry) = self.entries.get_mut(item) {
            entry.tensors.insert(rank, tensor);
        }
    }

    /// A request uses its items no more.
    pub fn release(&mut self, request: &str) {
        for (item, entry) in &mut self.entries {
            if entry.users.remove(request) && entry.users.is_empty() {
                self.idle.push_back(item.clone());
            }
        }
    }

    /// A request uses its items no more, and their places are wanted: what a preemption does under pressure.
    pub fn preempt(&mut self, request: &str) {
        self.release(request);
        self.drop_idle();
    }

    /// Drops every item that nobody uses.
    pub fn drop_idle(&mut self) {
        for victim in std::mem::take(&mut self.idle) {
            self.entries.remove(&victim);
            self.freed.push(victim);
        }
    }

    /// What left since the last call.
    pub fn take_freed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_items_leave_when_their_place_is_needed() {
        let mut cache = EncoderCache::new(2);
        cache.allocate("a", "r1");
        cache.allocate("b", "r2");
        assert!(!cache.has_room(1));
        cache.release("r1");
        assert!(cache.has_room(1) && cache.holds("a"));
        cache.allocate("c", "r3");
        assert!(!cache.holds("a"));
        assert_eq!(cache.take_freed(), ["a"]);
    }

    #[test]
    fn idle_items_of_a_request_take_their_places() {
        let mut cache = EncoderCache::new(3);
        cache.allocate("a", "r1");
        cache.allocate("b", "r2");
        cache.allocate("c", "r2");
        cache.release("r2");
        assert!(cache.has_room_for(["b", "d"]) && cache.has_room_for(["a", "b", "c"]));
        assert!(!cache.has_room_for(["b", "c", "d"]), "a is in use");
    }

    #[test]
    fn a_shared_item_stays_until_its_last_user_has_gone() {
        let mut cache = EncoderCache::new(1);
        cache.allocate("a", "r1");
        cache.allocate("a", "r2");
        cache.release("r1");
        assert!(!cache.has_room(1));
        cache.preempt("r2");
        assert!(!cache.holds("a"));
        assert_eq!(cache.take_freed(), ["a"]);
    }
}
