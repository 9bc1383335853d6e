//! Which resident goes first: FIFO, LRU or S3-FIFO, over residents named by their first unit.
//!
//! Two parts. [`AccessLog`] is what readers write, without a lock: one word per unit. [`Evictor`] holds the
//! order and is used under the pool's lock; it reads the log when it looks for a victim. Both are
//! deterministic and pass over pinned residents without losing their place.
//!
//! A victim is chosen in two steps, so that nothing is evicted in vain: [`Evictor::select`] takes it out of
//! the order, then either [`Evictor::evicted`] makes that final or [`Evictor::restore`] puts it back.
//!
//! * **FIFO**: the order of publication.
//! * **LRU**: the log holds the time of the last access. The order is a set sorted by the time that was known
//!   when the resident was put in; one whose time has moved on meanwhile is put in again when it is met.
//! * **S3-FIFO** (Yang et al., SOSP 2023): the log counts accesses up to 3. New residents enter a *small*
//!   queue, which is drained first while it holds more than a tenth of the pool; a resident used at least
//!   twice there moves on to the *main* queue, the others go and leave their tag behind as a *ghost*. A
//!   resident whose tag is a ghost enters the main queue at once. The main queue is a FIFO in which an access
//!   buys another round. Sizes are counted in units, since residents differ a thousandfold.

mod ghosts;
mod log;
mod queue;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use self::log::AccessLog;
use self::{
    ghosts::Ghosts,
    queue::{End, Links, Queue},
};
use super::config::EvictionPolicy;

/// Accesses that take a resident from the small to the main queue.
const HITS_TO_STAY: u64 = 2;
/// The small queue's share of the pool: one tenth.
const SMALL_SHARE: u64 = 10;

/// Which queue a resident is in. FIFO and LRU have the main one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In none: no resident, or selected.
    Out,
    Small,
    Main,
}

/// What is known of a resident.
#[derive(Clone, Copy, Debug)]
struct Entry {
    units: u32,
    place: Place,
    tag: u64,
    /// LRU: the time under which it stands in the order.
    stamp: u64,
}

/// A resident taken out of the order by [`Evictor::select`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its first unit.
    pub index: u32,
    place: Place,
}

/// How far one search for victims has come, so that the residents it passed over are not met again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    small: Option<u32>,
    main: Option<u32>,
    stamp: (u64, u32),
}

/// The order in which residents go.
#[derive(Debug)]
pub struct Evictor {
    policy: EvictionPolicy,
    entries: Box<[Entry]>,
    links: Links,
    small: Queue,
    main: Queue,
    /// LRU's order, in place of the queues.
    by_stamp: BTreeSet<(u64, u32)>,
    small_max: u64,
    ghosts: Ghosts,
}

impl Evictor {
    /// No residents, in a pool of `units` units.
    pub fn new(policy: EvictionPolicy, units: u32) -> Self {
        let entry = Entry { units: 0, place: Place::Out, tag: 0, stamp: 0 };
        let small_max = u64::from(units) / SMALL_SHARE;
        Self {
            policy,
            entries: vec![entry; units as usize].into_boxed_slice(),
            links: Links::new(units),
            small: Queue::EMPTY,
            main: Queue::EMPTY,
            by_stamp: BTreeSet::new(),
            small_max,
            ghosts: Ghosts::new(u64::from(units) - small_max),
        }
    }

    /// A new resident of `units` units; `tag` stands for its content across evictions.
    ///
    /// # Panics
    /// If there is one at `index` already.
    pub fn insert(&mut self, log: &AccessLog, index: u32, units: u32, tag: u64) {
        assert!(!self.contains(index), "unit {index} is a resident already");
        let entry = &mut self.entries[index as usize];
        (entry.units, entry.tag) = (units, tag);
        log.begin(index);
        let place = match self.policy {
            EvictionPolicy::S3Fifo if !self.ghosts.take(tag) => Place::Small,
            _ => Place::Main,
        };
        self.push(log, index, place, End::Back);
    }

    /// A resident that is one no longer.
    ///
    /// # Panics
    /// If there is none at `index`.
    pub fn remove(&mut self, index: u32) {
        assert!(self.contains(index), "unit {index} is no resident");
        self.take(index);
    }

    /// Whether a resident begins at `index`.
    pub fn contains(&self, index: u32) -> bool {
        self.entries[index as usize].place != Place::Out
    }

    /// Takes the next victim among the `evictable` out of the order.
    pub fn select(
        &mut self,
        log: &AccessLog,
        search: &mut Search,
        evictable: impl Fn(u32) -> bool,
    ) -> Option<Victim> {
        let index = match self.policy {
            EvictionPolicy::Fifo => self.next_in_main(log, search, &evictable),
            EvictionPolicy::Lru => self.next_by_stamp(log, search, &evictable),
            EvictionPolicy::S3Fifo => self.next_of_two(log, search, &evictable),
        }?;
        let place = self.entries[index as usize].place;
        self.take(index);
        Some(Victim { index, place })
    }

    /// The victim is gone.
    pub fn evicted(&mut self, victim: Victim) {
        if victim.place == Place::Small {
            let Entry { tag, units, .. } = self.entries[victim.index as usize];
            self.ghosts.add(tag, units);
        }
    }

    /// Puts a victim back, as the next to go. Several go back in the reverse order of their selection.
    pub fn restore(&mut self, log: &AccessLog, victim: Victim) {
        self.push(log, victim.index, victim.place, End::Front);
    }

    fn next_by_stamp(
        &mut self,
        log: &AccessLog,
        search: &mut Search,
        evictable: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        loop {
            let (stamp, index) = self.by_stamp.range(search.stamp..).next().copied()?;
            if log.get(index) != stamp {
                self.take(index);
                self.push(log, index, Place::Main, End::Back);
            } else if evictable(index) {
                return Some(index);
            } else {
                search.stamp = (stamp, index + 1);
            }
        }
    }

    fn next_of_two(
        &mut self,
        log: &AccessLog,
        search: &mut Search,
        evictable: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let small_first = self.small.units() > self.small_max;
        let first = small_first.then(|| self.next_in_small(log, search, evictable)).flatten();
        first
            .or_else(|| self.next_in_main(log, search, evictable))
            .or_else(|| self.next_in_small(log, search, evictable))
            // What the small queue has just passed on is the last that can go.
            .or_else(|| self.next_in_main(log, search, evictable))
    }

    fn next_in_small(
        &mut self,
        log: &AccessLog,
        search: &mut Search,
        evictable: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.resume(search.small, &self.small);
        while let Some(index) = at {
            at = self.links.next(index);
            if !evictable(index) {
                search.small = Some(index);
            } else if log.get(index) >= HITS_TO_STAY {
                self.take(index);
                log.set(index, 0);
                self.push(log, index, Place::Main, End::Back);
            } else {
                return Some(index);
            }
        }
        None
    }

    /// Ends: each step passes over a resident for good, takes one of at most three rounds from it, or
    /// returns it.
    fn next_in_main(
        &mut self,
        log: &AccessLog,
        search: &mut Search,
        evictable: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.resume(search.main, &self.main);
        while let Some(index) = at {
            let rounds = if self.policy == EvictionPolicy::S3Fifo { log.get(index) } else { 0 };
            if !evictable(index) {
                search.main = Some(index);
                at = self.links.next(index);
            } else if rounds > 0 {
                let next = self.links.next(index);
                log.set(index, rounds - 1);
                self.take(index);
                self.push(log, index, Place::Main, End::Back);
                at = next.or(Some(index));
            } else {
                return Some(index);
            }
        }
        None
    }

    /// Where a search goes on in a queue: behind the last resident that it passed over.
    fn resume(&self, passed: Option<u32>, queue: &Queue) -> Option<u32> {
        passed.map_or(queue.head(), |index| self.links.next(index))
    }

    fn push(&mut self, log: &AccessLog, index: u32, place: Place, end: End) {
        let entry = &mut self.entries[index as usize];
        entry.place = place;
        if self.policy == EvictionPolicy::Lru {
            entry.stamp = log.get(index);
            self.by_stamp.insert((entry.stamp, index));
            return;
        }
        let queue = if place == Place::Small { &mut self.small } else { &mut self.main };
        queue.push(&mut self.links, index, entry.units, end);
    }

    fn take(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let place = std::mem::replace(&mut entry.place, Place::Out);
        if self.policy == EvictionPolicy::Lru {
            self.by_stamp.remove(&(entry.stamp, index));
            return;
        }
        let queue = if place == Place::Small { &mut self.small } else { &mut self.main };
        queue.remove(&mut self.links, index, entry.units);
    }
}
