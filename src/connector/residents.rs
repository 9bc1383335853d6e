//! Which items lie validated in the pool: the first level of the cache.
//!
//! An index from key to handle and back. It owns no memory: a handle may have gone stale, so a reader pins it
//! ([`crate::pool::Pool::pin`]) and drops the entry when that fails.

use std::collections::BTreeMap;

use crate::{env::Key, pool::Handle};

#[derive(Default)]
pub(super) struct Residents {
    by_key: BTreeMap<Key, Handle>,
    by_handle: BTreeMap<Handle, Key>,
}

impl Residents {
    pub(super) fn get(&self, key: &Key) -> Option<Handle> {
        self.by_key.get(key).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Files a resident under its key; returns the one it replaces, which the caller discards.
    pub(super) fn insert(&mut self, key: Key, handle: Handle) -> Option<Handle> {
        let replaced = self.by_key.insert(key.clone(), handle).filter(|old| *old != handle);
        if let Some(old) = replaced {
            self.by_handle.remove(&old);
        }
        self.by_handle.insert(handle, key);
        replaced
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Handle> {
        let handle = self.by_key.remove(key)?;
        self.by_handle.remove(&handle);
        Some(handle)
    }

    /// The pool evicted this.
    pub(super) fn evicted(&mut self, handle: Handle) -> Option<Key> {
        let key = self.by_handle.remove(&handle)?;
        self.by_key.remove(&key);
        Some(key)
    }
}
