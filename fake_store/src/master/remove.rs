//! Removing objects: by key, by pattern, all.
//!
//! `force` overrides leases and nothing else: an object that is being written stays. Space is free at once,
//! also under a reader whose lease was overridden.

use regex::Regex;
use springtide::env::{ErrorCode, Time};

use super::{EventKind, Master, RemovedBy};
use crate::protocol::ClientId;

impl Master {
    /// Removes one object.
    ///
    /// # Errors
    /// [`ErrorCode::ObjectNotFound`], [`ErrorCode::ObjectHasLease`] unless forced,
    /// [`ErrorCode::ReplicaIsNotReady`] while it is being written, in this order.
    pub fn remove(
        &mut self,
        now: Time,
        client: ClientId,
        key: &str,
        force: bool,
    ) -> Result<(), ErrorCode> {
        let object = self.objects.get(key).ok_or(ErrorCode::ObjectNotFound)?;
        let leased = object.is_leased(now);
        if leased && !force {
            return Err(ErrorCode::ObjectHasLease);
        }
        if object.writing {
            return Err(ErrorCode::ReplicaIsNotReady);
        }
        self.erase(key);
        let kind = EventKind::Removed { client, how: RemovedBy::Key, leased };
        self.history.push(now, key, kind);
        Ok(())
    }

    /// Removes the objects whose key contains a match of `pattern`; how many went.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] for a pattern that does not compile; nothing is removed then.
    pub fn remove_by_regex(
        &mut self,
        now: Time,
        client: ClientId,
        pattern: &str,
        force: bool,
    ) -> Result<u64, ErrorCode> {
        let regex = Regex::new(pattern).map_err(|_| ErrorCode::InvalidParams)?;
        Ok(self.remove_where(now, client, force, RemovedBy::Regex, |key| regex.is_match(key)))
    }

    /// Removes all objects; how many went.
    pub fn remove_all(&mut self, now: Time, client: ClientId, force: bool) -> u64 {
        self.remove_where(now, client, force, RemovedBy::All, |_| true)
    }

    fn remove_where(
        &mut self,
        now: Time,
        client: ClientId,
        force: bool,
        how: RemovedBy,
        matches: impl Fn(&str) -> bool,
    ) -> u64 {
        let victims: Vec<(String, bool)> = self
            .objects
            .iter()
            .filter(|(key, object)| !object.writing && matches(key))
            .map(|(key, object)| (key.clone(), object.is_leased(now)))
            .filter(|(_, leased)| force || !leased)
            .collect();
        for (key, leased) in &victims {
            self.erase(key);
            let kind = EventKind::Removed { client, how, leased: *leased };
            self.history.push(now, key, kind);
        }
        victims.len() as u64
    }
}
