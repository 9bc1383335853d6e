use std::collections::{BTreeMap, BTreeSet};

use super::{AccessLog, EvictionPolicy, Evictor, Search};

/// An order over one-unit residents whose tag is their index plus 1000.
struct Order {
    log: AccessLog,
    evictor: Evictor,
    pinned: BTreeSet<u32>,
}

impl Order {
    fn new(policy: EvictionPolicy, units: u32) -> Self {
        Self {
            log: AccessLog::new(policy, units),
            evictor: Evictor::new(policy, units),
            pinned: BTreeSet::new(),
        }
    }

    fn insert(&mut self, index: u32) {
        self.evictor.insert(&self.log, index, 1, u64::from(index) + 1000);
    }

    fn touch(&self, indexes: &[u32]) {
        indexes.iter().for_each(|index| self.log.touch(*index));
    }

    /// Evicts up to `n`, in one search.
    fn evict(&mut self, n: usize) -> Vec<u32> {
        let mut search = Search::default();
        let mut gone = Vec::new();
        while gone.len() < n {
            let evictable = |index| !self.pinned.contains(&index);
            let Some(victim) = self.evictor.select(&self.log, &mut search, evictable) else {
                break;
            };
            self.evictor.evicted(victim);
            gone.push(victim.index);
        }
        gone
    }
}

#[test]
fn fifo_ignores_accesses() {
    let mut order = Order::new(EvictionPolicy::Fifo, 10);
    [3, 1, 2].into_iter().for_each(|index| order.insert(index));
    order.touch(&[3, 3, 3]);
    assert_eq!(order.evict(9), [3, 1, 2]);
}

#[test]
fn lru_goes_by_the_last_access() {
    let mut order = Order::new(EvictionPolicy::Lru, 10);
    (0..4).for_each(|index| order.insert(index));
    order.touch(&[1, 0, 1]);
    assert_eq!(order.evict(3), [2, 3, 0]);
    order.insert(2);
    order.touch(&[1]);
    assert_eq!(order.evict(9), [2, 1]);
}

#[test]
fn s3_fifo_lets_one_time_residents_pass_through_the_small_queue() {
    // Ten units: the small queue's share is one.
    let mut order = Order::new(EvictionPolicy::S3Fifo, 10);
    (0..4).for_each(|index| order.insert(index));
    order.touch(&[0, 0, 1]);
    // 0 was used twice and moves on; 1 was used once and goes first; 2 goes while the queue holds two. With
    // one left in the small queue the main one is next.
    assert_eq!(order.evict(2), [1, 2]);
    assert_eq!(order.evict(2), [0, 3]);
}

#[test]
fn s3_fifo_finds_victims_where_every_resident_is_used_often() {
    // The small queue is within its share, so that the (empty) main queue is looked at first.
    let mut order = Order::new(EvictionPolicy::S3Fifo, 40);
    (0..3).for_each(|index| order.insert(index));
    order.touch(&[0, 0, 1, 1, 2, 2]);
    assert_eq!(order.evict(9), [0, 1, 2]);
}

#[test]
fn s3_fifo_gives_main_residents_a_round_per_access() {
    let mut order = Order::new(EvictionPolicy::S3Fifo, 10);
    (0..4).for_each(|index| order.insert(index));
    order.touch(&[0, 0, 1, 1, 2, 2]);
    // All but 3 move to main, as 0, 1, 2 with their counts begun anew; 3 is evicted.
    assert_eq!(order.evict(1), [3]);
    order.touch(&[0, 0, 0, 0, 1]);
    // 2 has no rounds, 1 has one, 0 has three (counting stops there).
    assert_eq!(order.evict(9), [2, 1, 0]);
}

#[test]
fn s3_fifo_recognises_a_ghost() {
    // Twenty units: the small queue's share is two.
    let mut order = Order::new(EvictionPolicy::S3Fifo, 20);
    (0..4).for_each(|index| order.insert(index));
    assert_eq!(order.evict(1), [0]);
    // 0 comes back as a ghost and enters main, where the new ones do not push it out.
    order.insert(0);
    order.insert(4);
    assert_eq!(order.evict(2), [1, 2]);
    // The small queue is within its share, so main is next; what goes from there leaves no ghost.
    assert_eq!(order.evict(1), [0]);
    order.insert(0);
    assert_eq!(order.evict(9), [3, 4, 0]);
}

#[test]
fn ghosts_are_forgotten_after_a_main_queue_full_of_units() {
    for (others, first) in [(8, 2), (9, 0)] {
        let mut order = Order::new(EvictionPolicy::S3Fifo, 10);
        order.insert(0);
        assert_eq!(order.evict(1), [0]);
        for tag in 0..others {
            order.evictor.insert(&order.log, 1, 1, tag);
            assert_eq!(order.evict(1), [1]);
        }
        [0, 2, 3].into_iter().for_each(|index| order.insert(index));
        assert_eq!(order.evict(1), [first], "after {others} others, main holding nine units");
    }
}

/// Requests that find their item in a cache of `slots` one-unit items.
fn hits(policy: EvictionPolicy, slots: u32, requests: impl Iterator<Item = u64>) -> usize {
    let mut order = Order::new(policy, slots);
    let mut free: Vec<u32> = (0..slots).collect();
    let mut cached: BTreeMap<u64, u32> = BTreeMap::new();
    let mut hits = 0;
    for tag in requests {
        if let Some(index) = cached.get(&tag) {
            order.touch(&[*index]);
            hits += 1;
            continue;
        }
        let index = free.pop().unwrap_or_else(|| order.evict(1)[0]);
        cached.retain(|_, cached| *cached != index);
        order.evictor.insert(&order.log, index, 1, tag);
        cached.insert(tag, index);
    }
    hits
}

#[test]
fn s3_fifo_keeps_what_is_used_through_a_scan_and_the_others_do_not() {
    // Four items are used three times, and from then on once in every 60 items that come once: more than
    // the 40 that fit.
    let warm = (0..12).map(|at| at % 4);
    let scan = (0u64..600).map(|at| if at % 15 == 0 { at / 15 % 4 } else { 1000 + at });
    let requests = || warm.clone().chain(scan.clone());
    assert_eq!(hits(EvictionPolicy::S3Fifo, 40, requests()), 8 + 40);
    assert_eq!(hits(EvictionPolicy::Lru, 40, requests()), 8 + 3);
    assert_eq!(hits(EvictionPolicy::Fifo, 40, requests()), 8 + 3);
}

#[test]
fn pinned_residents_are_passed_over_and_keep_their_place() {
    for policy in [EvictionPolicy::Fifo, EvictionPolicy::Lru, EvictionPolicy::S3Fifo] {
        let mut order = Order::new(policy, 100);
        (0..5).for_each(|index| order.insert(index));
        order.pinned = BTreeSet::from([0, 1, 3]);
        assert_eq!(order.evict(1), [2], "{policy:?}");
        order.insert(5);
        order.pinned = BTreeSet::from([0]);
        assert_eq!(order.evict(9), [1, 3, 4, 5], "{policy:?}");
        order.pinned.clear();
        assert_eq!(order.evict(9), [0], "{policy:?}");
    }
}

#[test]
fn restored_victims_are_next_again() {
    for policy in [EvictionPolicy::Fifo, EvictionPolicy::Lru, EvictionPolicy::S3Fifo] {
        let mut order = Order::new(policy, 100);
        (0..5).for_each(|index| order.insert(index));
        let mut search = Search::default();
        let mut victims = Vec::new();
        for _ in 0..3 {
            victims.push(order.evictor.select(&order.log, &mut search, |_| true).unwrap());
        }
        for victim in victims.into_iter().rev() {
            order.evictor.restore(&order.log, victim);
        }
        assert_eq!(order.evict(9), [0, 1, 2, 3, 4], "{policy:?}");
    }
}

#[test]
fn removal_from_anywhere_keeps_the_order() {
    for policy in [EvictionPolicy::Fifo, EvictionPolicy::Lru, EvictionPolicy::S3Fifo] {
        let mut order = Order::new(policy, 100);
        (0..6).for_each(|index| order.insert(index));
        [0, 5, 2].into_iter().for_each(|index| order.evictor.remove(index));
        assert!(!order.evictor.contains(2));
        assert_eq!(order.evict(9), [1, 3, 4], "{policy:?}");
        assert!(order.evict(1).is_empty());
    }
}
