//! How an item of a request comes to its decision, and what it leaves behind.

use super::{Decision, ItemRequest, Requests};
use crate::{
    connector::{
        loads::{Loads, MissReason, Want, bump},
        object,
    },
    env::{Key, Time},
    log::{shown, step},
    pool::{Handle, Pool},
};

/// Requests that arrive together give up at slightly different times, so that they do not all encode in one
/// step: this many different times.
const SPREAD: u32 = 8;

impl Requests {
    pub(super) fn decision(&self, request: &str, identifier: &str) -> Option<&Decision> {
        self.requests.get(request)?.get(identifier)
    }

    pub(super) fn set(&mut self, request: &str, identifier: &str, decision: Decision) {
        if !self.requests.contains_key(request) {
            self.arrivals = self.arrivals.wrapping_add(1);
        }
        if let Decision::Waiting { key, .. } = &decision {
            let waiter = (request.to_owned(), identifier.to_owned());
            self.waiters.entry(key.clone()).or_default().insert(waiter);
        }
        let items = self.requests.entry(request.to_owned()).or_default();
        let before = items.insert(identifier.to_owned(), decision);
        if let Some(Decision::Waiting { key, .. }) = before {
            self.stop_waiting(&key, request, identifier);
        }
    }

    pub(super) fn stop_waiting(&mut self, key: &Key, request: &str, identifier: &str) {
        let Some(waiters) = self.waiters.get_mut(key) else { return };
        waiters.remove(&(request.to_owned(), identifier.to_owned()));
        if waiters.is_empty() {
            self.waiters.remove(key);
        }
    }

    /// Whether an item that the request has asked for already was of another length then. The engine keeps one
    /// tensor under one identifier: it cannot be both.
    pub(super) fn is_of_another_length(&self, request: &str, item: &ItemRequest) -> bool {
        let before = match self.decision(request, &item.identifier) {
            Some(Decision::Waiting { len, .. }) => *len,
            Some(Decision::Ready { pin, .. }) => pin.len(),
            _ => return false,
        };
        let spec = self.namespace.spec(item.rows);
        !spec.is_ok_and(|spec| object::object_bytes(&spec) == before)
    }

    /// Takes back what has been decided for an item, which is asked for in a second length. What `has_item`
    /// has answered in this pass stands.
    pub(super) fn refuse_second(&mut self, request: &str, identifier: &str, loads: &mut Loads) {
        if self.promised.contains(&(request.to_owned(), identifier.to_owned())) {
            return;
        }
        if !matches!(self.decision(request, identifier), Some(Decision::Waiting { .. })) {
            loads.counters.lookups += 1;
            loads.counters.waiting += 1;
        }
        self.decide_local(request, identifier, MissReason::WrongSpec, loads);
    }

    /// Looks at an item for the first time, or anew after the engine has dropped it.
    pub(super) fn begin(
        &mut self,
        request: &str,
        item: &ItemRequest,
        loads: &mut Loads,
        pool: &Pool,
        now: Time,
    ) {
        loads.counters.lookups += 1;
        loads.counters.waiting += 1;
        let key = self.namespace.key(&item.identifier);
        step!(&key, request = %shown(request), rows = item.rows, "asked for");
        let spec = match self.namespace.spec(item.rows) {
            Ok(spec) if spec.bytes() > 0 => spec,
            spec => {
                let reason = if spec.is_ok() { MissReason::Empty } else { MissReason::WrongSpec };
                return self.decide_local(request, &item.identifier, reason, loads);
            }
        };
        let early = self.patience / (SPREAD * 8) * (self.arrivals % SPREAD);
        let deadline = now + (self.patience - early);
        let len = object::object_bytes(&spec);
        if len > pool.region().len() {
            return self.decide_local(request, &item.identifier, MissReason::TooLarge, loads);
        }
        self.set(request, &item.identifier, Decision::Waiting { key, len, spec, deadline });
        self.look_again(request, &item.identifier, loads, pool, now);
        if matches!(self.decision(request, &item.identifier), Some(Decision::Ready { .. })) {
            loads.counters.resident_hits += 1;
        }
    }

    /// Asks for a waiting item once more.
    pub(super) fn look_again(
        &mut self,
        request: &str,
        identifier: &str,
        loads: &mut Loads,
        pool: &Pool,
        now: Time,
    ) {
        let Some(Decision::Waiting { key, len, deadline, .. }) = self.decision(request, identifier)
        else {
            return;
        };
        let (key, len, deadline) = (key.clone(), *len, *deadline);
        match loads.want(&key, len, deadline, now) {
            Want::Pending => {}
            Want::Miss(reason) => self.decide_local(request, identifier, reason, loads),
            Want::Resident(handle) => {
                if !self.decide_resident(request, identifier, handle, loads, pool) {
                    // The pool has evicted it: ask the store.
                    loads.residents.remove(&key);
                    loads.want(&key, len, deadline, now);
                }
            }
        }
    }

    /// Decides a waiting item by what lies in the pool; false if that has gone.
    pub(super) fn decide_resident(
        &mut self,
        request: &str,
        identifier: &str,
        handle: Handle,
        loads: &mut Loads,
        pool: &Pool,
    ) -> bool {
        let Some(Decision::Waiting { key, len, spec, .. }) = self.decision(request, identifier)
        else {
            return true;
        };
        let (len, spec) = (*len, *spec);
        let Ok(pin) = pool.pin(handle) else { return false };
        if pin.len() == len {
            step!(key, request = %shown(request), "ready");
            loads.counters.waiting -= 1;
            loads.counters.hits += 1;
            self.set(request, identifier, Decision::Ready { pin: Box::new(pin), spec });
        } else {
            self.decide_local(request, identifier, MissReason::WrongSpec, loads);
        }
        true
    }

    pub(super) fn decide_local(
        &mut self,
        request: &str,
        identifier: &str,
        reason: MissReason,
        loads: &mut Loads,
    ) {
        loads.counters.waiting -= 1;
        step!(
            &self.namespace.key(identifier),
            request = %shown(request),
            %reason,
            "missed"
        );
        bump(&mut loads.counters.misses, reason);
        self.set(request, identifier, Decision::Local(reason));
    }
}
