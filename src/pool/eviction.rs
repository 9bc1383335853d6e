//! Which resident goes first: FIFO, LRU or S3-FIFO, over residents named by their first unit.
//!
//! Two parts. [`AccessLog`] is what readers write, without a lock: one word per unit. [`Evictor`] holds the
//! order and is used under the pool's lock; it reads the log when it looks for a victim. Both are
//! deterministic, allocate nothing per access and pass over pinned residents without losing their place.
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

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::config::EvictionPolicy;
use crate::sync::{AtomicU64, Ordering};

const NONE: u32 = u32::MAX;
/// Where S3-FIFO stops counting accesses.
const HITS_MAX: u64 = 3;
/// Accesses that take a resident from the small to the main queue.
const HITS_TO_STAY: u64 = 2;
/// The small queue's share of the pool: one tenth.
const SMALL_SHARE: u64 = 10;

/// Accesses to residents, recorded without a lock.
#[derive(Debug)]
pub struct AccessLog {
    policy: EvictionPolicy,
    /// Per first unit: time of the last access (LRU) or number of accesses (S3-FIFO).
    marks: Box<[AtomicU64]>,
    /// Accesses so far: the time of LRU.
    now: AtomicU64,
}

impl AccessLog {
    /// A log for residents in `units` units.
    pub fn new(policy: EvictionPolicy, units: u32) -> Self {
        let marks = (0..units).map(|_| AtomicU64::new(0)).collect();
        Self { policy, marks, now: AtomicU64::new(0) }
    }

    /// The resident at `index` was used.
    pub fn touch(&self, index: u32) {
        let mark = &self.marks[index as usize];
        match self.policy {
            EvictionPolicy::Fifo => {}
            EvictionPolicy::Lru => self.stamp(mark),
            EvictionPolicy::S3Fifo => {
                // Two accesses at once may count as one: a lost count only makes a resident look colder.
                let hits = mark.load(Ordering::Relaxed);
                mark.store((hits + 1).min(HITS_MAX), Ordering::Relaxed);
            }
        }
    }

    /// The resident at `index` is new.
    fn begin(&self, index: u32) {
        let mark = &self.marks[index as usize];
        match self.policy {
            EvictionPolicy::Fifo | EvictionPolicy::S3Fifo => mark.store(0, Ordering::Relaxed),
            EvictionPolicy::Lru => self.stamp(mark),
        }
    }

    fn stamp(&self, mark: &AtomicU64) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        mark.fetch_max(now, Ordering::Relaxed);
    }

    fn get(&self, index: u32) -> u64 {
        self.marks[index as usize].load(Ordering::Relaxed)
    }

    fn set(&self, index: u32, mark: u64) {
        self.marks[index as usize].store(mark, Ordering::Relaxed);
    }
}

/// Which queue a resident is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: no resident, or selected.
    Out,
    Small,
    Main,
}

/// A resident's links and what its policy needs to know.
#[derive(Clone, Copy, Debug)]
struct Node {
    prev: u32,
    next: u32,
    units: u32,
    place: Place,
    tag: u64,
    /// LRU: the time under which it stands in the order.
    stamp: u64,
}

/// A doubly linked queue through the nodes.
#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
    units: u64,
}

const EMPTY: Queue = Queue { head: NONE, tail: NONE, units: 0 };

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
    nodes: Box<[Node]>,
    small: Queue,
    main: Queue,
    /// LRU only.
    by_stamp: BTreeSet<(u64, u32)>,
    small_max: u64,
    ghosts: Ghosts,
}

impl Evictor {
    /// No residents, in a pool of `units` units.
    pub fn new(policy: EvictionPolicy, units: u32) -> Self {
        let node = Node { prev: NONE, next: NONE, units: 0, place: Place::Out, tag: 0, stamp: 0 };
        let small_max = u64::from(units) / SMALL_SHARE;
        Self {
            policy,
            nodes: vec![node; units as usize].into_boxed_slice(),
            small: EMPTY,
            main: EMPTY,
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
        let node = &mut self.nodes[index as usize];
        assert!(node.place == Place::Out, "unit {index} is a resident already");
        (node.units, node.tag) = (units, tag);
        log.begin(index);
        let known = self.policy == EvictionPolicy::S3Fifo && self.ghosts.take(tag);
        let small = self.policy == EvictionPolicy::S3Fifo && !known;
        self.push(log, index, if small { Place::Small } else { Place::Main }, End::Back);
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
        self.nodes[index as usize].place != Place::Out
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
        let place = self.nodes[index as usize].place;
        self.take(index);
        Some(Victim { index, place })
    }

    /// The victim is gone.
    pub fn evicted(&mut self, victim: Victim) {
        if victim.place == Place::Small {
            let Node { tag, units, .. } = self.nodes[victim.index as usize];
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
            let last = log.get(index);
            if last != stamp {
                self.by_stamp.remove(&(stamp, index));
                self.by_stamp.insert((last, index));
                self.nodes[index as usize].stamp = last;
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
        let small_first = self.small.units > self.small_max;
        let first = small_first.then(|| self.next_in_small(log, search, evictable)).flatten();
        first
            .or_else(|| self.next_in_main(log, search, evictable))
            .or_else(|| self.next_in_small(log, search, evictable))
    }

    fn next_in_small(
        &mut self,
        log: &AccessLog,
        search: &mut Search,
        evictable: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.resume(search.small, Place::Small);
        while at != NONE {
            let next = self.nodes[at as usize].next;
            if !evictable(at) {
                search.small = Some(at);
            } else if log.get(at) >= HITS_TO_STAY {
                self.take(at);
                log.set(at, 0);
                self.push(log, at, Place::Main, End::Back);
            } else {
                return Some(at);
            }
            at = next;
        }
        None
    }

    fn next_in_main(
        &mut self,
        log: &AccessLog,
        search: &mut Search,
        evictable: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.resume(search.main, Place::Main);
        while at != NONE {
            let hits = if self.policy == EvictionPolicy::S3Fifo { log.get(at) } else { 0 };
            let mut next = self.nodes[at as usize].next;
            if !evictable(at) {
                search.main = Some(at);
            } else if hits > 0 {
                log.set(at, hits - 1);
                self.take(at);
                self.push(log, at, Place::Main, End::Back);
                next = if next == NONE { at } else { next };
            } else {
                return Some(at);
            }
            at = next;
        }
        None
    }

    /// Where a search goes on: behind the last resident that it passed over.
    fn resume(&self, passed: Option<u32>, place: Place) -> u32 {
        match (passed.map(|at| self.nodes[at as usize]), place) {
            (Some(node), _) if node.place == place => node.next,
            (_, Place::Small) => self.small.head,
            (_, _) => self.main.head,
        }
    }

    fn push(&mut self, log: &AccessLog, index: u32, place: Place, end: End) {
        self.nodes[index as usize].place = place;
        if self.policy == EvictionPolicy::Lru {
            let stamp = log.get(index);
            self.nodes[index as usize].stamp = stamp;
            self.by_stamp.insert((stamp, index));
            return;
        }
        let queue = if place == Place::Small { &mut self.small } else { &mut self.main };
        let (prev, next) = match end {
            End::Back => (queue.tail, NONE),
            End::Front => (NONE, queue.head),
        };
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next) = (prev, next);
        queue.units += u64::from(node.units);
        if next == NONE {
            queue.tail = index;
        }
        if prev == NONE {
            queue.head = index;
        }
        if prev != NONE {
            self.nodes[prev as usize].next = index;
        }
        if next != NONE {
            self.nodes[next as usize].prev = index;
        }
    }

    fn take(&mut self, index: u32) {
        let Node { prev, next, units, place, stamp, .. } = self.nodes[index as usize];
        self.nodes[index as usize].place = Place::Out;
        if self.policy == EvictionPolicy::Lru {
            self.by_stamp.remove(&(stamp, index));
            return;
        }
        let queue = if place == Place::Small { &mut self.small } else { &mut self.main };
        queue.units -= u64::from(units);
        if prev == NONE {
            queue.head = next;
        }
        if next == NONE {
            queue.tail = prev;
        }
        if prev != NONE {
            self.nodes[prev as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
    }
}

/// An end of a queue.
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

/// Tags evicted from the small queue, as many as would fill the main queue.
#[derive(Debug)]
struct Ghosts {
    /// Number of the tag's latest eviction.
    latest: BTreeMap<u64, u64>,
    /// Evictions, oldest first: number, tag, units. Those whose tag was taken or evicted again are void.
    queue: VecDeque<(u64, u64, u32)>,
    units: u64,
    units_max: u64,
    evictions: u64,
}

impl Ghosts {
    fn new(units_max: u64) -> Self {
        let (latest, queue) = (BTreeMap::new(), VecDeque::new());
        Self { latest, queue, units: 0, units_max, evictions: 0 }
    }

    fn add(&mut self, tag: u64, units: u32) {
        self.evictions += 1;
        self.latest.insert(tag, self.evictions);
        self.queue.push_back((self.evictions, tag, units));
        self.units += u64::from(units);
        while self.units > self.units_max {
            let Some((number, tag, units)) = self.queue.pop_front() else { break };
            self.units -= u64::from(units);
            if self.latest.get(&tag) == Some(&number) {
                self.latest.remove(&tag);
            }
        }
    }

    fn take(&mut self, tag: u64) -> bool {
        self.latest.remove(&tag).is_some()
    }
}
