//! How the items of one call are split into calls that a store can take.
//!
//! Mooncake fails a batch with too many fragments to one peer, and mishandles equal keys in one batch: of
//! equal keys in a get it reports all as read and fills only the last one's buffer.

use std::{collections::BTreeSet, sync::Condvar, sync::Mutex, sync::PoisonError};

use crate::{env::Key, pool::Allocation};

/// Bytes of one wire request: a longer buffer is cut.
const WIRE_BYTES: u64 = (16 << 20) - 16;

/// Requests on the wire that an object takes.
pub(super) fn fragments(object: &Allocation) -> usize {
    let requests = object.extents().iter().map(|extent| extent.len.div_ceil(WIRE_BYTES));
    usize::try_from(requests.sum::<u64>()).unwrap_or(usize::MAX)
}

/// Splits items, in order, into batches of at most `fragments_max` fragments (unless one item alone has
/// more) and without equal keys. Each comes with its number of fragments.
pub(super) fn split<T>(
    items: Vec<T>,
    fragments_max: usize,
    describe: impl Fn(&T) -> (&Key, usize),
) -> Vec<(Vec<T>, usize)> {
    let mut batches: Vec<(Vec<T>, usize)> = Vec::new();
    let mut keys = BTreeSet::new();
    for item in items {
        let (key, fragments) = describe(&item);
        let is_new = keys.insert(key.clone());
        match batches.last_mut() {
            Some((batch, sum)) if is_new && sum.saturating_add(fragments) <= fragments_max => {
                batch.push(item);
                *sum += fragments;
            }
            _ => {
                keys = BTreeSet::from([describe(&item).0.clone()]);
                batches.push((vec![item], fragments));
            }
        }
    }
    batches
}

/// Fragments that are on their way. A peer's queue is shared by all calls, so the limit of a batch is one
/// over the batches that run together, too.
pub(super) struct Budget {
    max: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

/// Fragments taken from a budget; dropping it gives them back.
pub(super) struct Spent<'a> {
    budget: &'a Budget,
    fragments: usize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Self {
        Self { max, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Blocks until `fragments` more fit, or nothing else is on its way.
    pub(super) fn spend(&self, fragments: usize) -> Spent<'_> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |used: &mut usize| *used > 0 && used.saturating_add(fragments) > self.max;
        let waited = self.freed.wait_while(used, full);
        *waited.unwrap_or_else(PoisonError::into_inner) += fragments;
        Spent { budget: self, fragments }
    }
}

impl Drop for Spent<'_> {
    fn drop(&mut self) {
        *self.budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.fragments;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Contiguity, Pool, PoolConfig};

    fn shapes(items: &[(&str, usize)]) -> Vec<(Vec<String>, usize)> {
        let items = items.iter().map(|(key, fragments)| (Key::new(*key), *fragments)).collect();
        let batches = split(items, 10, |(key, fragments)| (key, *fragments));
        let names =
            |batch: Vec<(Key, usize)>| batch.iter().map(|(key, _)| key.to_string()).collect();
        batches.into_iter().map(|(batch, sum)| (names(batch), sum)).collect()
    }

    fn batch(keys: &[&str], sum: usize) -> (Vec<String>, usize) {
        (keys.iter().map(ToString::to_string).collect(), sum)
    }

    #[test]
    fn batches_keep_the_order_and_the_limit() {
        let items = [("a", 4), ("b", 6), ("c", 1), ("huge", 11), ("d", 1)];
        let expected =
            [batch(&["a", "b"], 10), batch(&["c"], 1), batch(&["huge"], 11), batch(&["d"], 1)];
        assert_eq!(shapes(&items), expected);
        assert_eq!(shapes(&[]), []);
    }

    #[test]
    fn equal_keys_never_share_a_batch() {
        let items = [("a", 1), ("b", 1), ("a", 1), ("c", 1), ("b", 1), ("c", 1)];
        let expected = [batch(&["a", "b"], 2), batch(&["a", "c", "b"], 3), batch(&["c"], 1)];
        assert_eq!(shapes(&items), expected);
    }

    #[test]
    fn long_buffers_are_several_fragments() {
        let pool = Pool::new(&PoolConfig::with_bytes(80 << 20)).unwrap();
        let count = |len| fragments(&pool.allocate(len, Contiguity::Required).unwrap());
        assert_eq!(count(1), 1);
        assert_eq!(count(WIRE_BYTES), 1);
        assert_eq!(count(WIRE_BYTES + 1), 2);
        assert_eq!(count(60 << 20), 4);
    }

    #[test]
    fn a_budget_lets_one_batch_above_it_pass_alone() {
        let budget = Budget::new(10);
        let small = budget.spend(10);
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let budget = &budget;
            scope.spawn(move || {
                let huge = budget.spend(50);
                sender.send(*budget.used.lock().unwrap()).unwrap();
                drop(huge);
            });
            assert!(receiver.try_recv().is_err(), "it waits for the small one");
            drop(small);
            assert_eq!(receiver.recv(), Ok(50));
        });
        assert_eq!(*budget.used.lock().unwrap(), 0);
    }
}
