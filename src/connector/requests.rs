//! What each request has been promised, decided without I/O.
//!
//! For every item of every request one decision is taken, once: *waiting*, then *ready* (validated and
//! pinned for this request) or *local* (the engine encodes it, with the reason). `has_item` is true only for
//! *ready*: an engine that is told "yes" and gets nothing dies. A pin lives from the decision to the
//! acknowledgement of all ranks; it is not given back by the end of the request alone, since the step that
//! copies may still be in flight.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    key::Namespace,
    loads::{Loads, MissReason, Want, bump},
    object,
};
use crate::{
    env::{Key, TensorSpec, Time},
    pool::{Descriptor, Handle, Pin, Pool},
};

/// Requests that arrive together give up at slightly different times, so that they do not all encode in one
/// step: this many different times.
const SPREAD: u32 = 8;

/// An item that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRequest {
    /// The media item's identifier.
    pub identifier: String,
    /// Rows (encoder tokens) that the engine expects.
    pub rows: u64,
}

/// Whether a request can be scheduled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Every item is decided.
    Ready,
    /// Leave it out of this step.
    Wait,
}

/// What became of one item of one request, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemDecision {
    /// Being looked up or fetched.
    Waiting,
    /// Validated and pinned for the request.
    Ready,
    /// The engine encodes it, and why.
    Local(MissReason),
    /// Handed to the workers.
    Ordered,
}

/// One load that workers are asked to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OrderId(pub u64);

/// A load for the workers: plain data, sent to every rank until all have acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOrder {
    /// Name of the order in acknowledgements.
    pub id: OrderId,
    /// The engine's name for the item.
    pub identifier: String,
    /// Type and shape of the tensor.
    pub spec: TensorSpec,
    /// Where the object lies in the shared region.
    pub source: Descriptor,
}

/// What a step carries to the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Every order that some rank has not acknowledged.
    pub orders: Vec<LoadOrder>,
    /// Items of the engine's own cache that rank 0 of a producer should save once more, if it holds them: the
    /// store may have lost them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub save_again: Vec<String>,
}

impl StepPlan {
    /// Whether it asks nothing of the workers.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty() && self.save_again.is_empty()
    }
}

enum Decision {
    Waiting { key: Key, len: u64, spec: TensorSpec, deadline: Time },
    Ready { pin: Box<Pin>, spec: TensorSpec },
    Local(MissReason),
    Ordered,
}

struct Order {
    load: LoadOrder,
    acknowledged: BTreeSet<u32>,
    /// Keeps the memory until all ranks have copied it.
    _pin: Box<Pin>,
}

pub(super) struct Requests {
    namespace: Namespace,
    patience: Duration,
    ranks: u32,
    requests: BTreeMap<String, BTreeMap<String, Decision>>,
    /// Who waits for a key, as (request, identifier).
    waiters: BTreeMap<Key, BTreeSet<(String, String)>>,
    arrivals: u32,
    /// The request of the last `ensure_available`: `has_item` has no request argument.
    current: String,
    /// What `has_item` answered yes to in this scheduling pass.
    promised: BTreeSet<(String, String)>,
    /// Mirror of the engine's own encoder cache.
    engine_holds: BTreeSet<String>,
    /// What has entered it in this scheduling pass.
    entered: BTreeSet<String>,
    orders: BTreeMap<OrderId, Order>,
    next_order: u64,
}

impl Requests {
    pub(super) fn new(namespace: Namespace, patience: Duration, ranks: u32) -> Self {
        Self {
            namespace,
            patience,
            ranks,
            requests: BTreeMap::new(),
            waiters: BTreeMap::new(),
            arrivals: 0,
            current: String::new(),
            promised: BTreeSet::new(),
            engine_holds: BTreeSet::new(),
            entered: BTreeSet::new(),
            orders: BTreeMap::new(),
            next_order: 0,
        }
    }

    /// Orders that some rank has not acknowledged.
    pub(super) fn open_orders(&self) -> usize {
        self.orders.len()
    }

    /// Requests that have not finished.
    pub(super) fn open_requests(&self) -> usize {
        self.requests.len()
    }

    /// Decides what can be decided about the items of a request.
    pub(super) fn ensure_available(
        &mut self,
        request: &str,
        items: &[ItemRequest],
        loads: &mut Loads,
        pool: &Pool,
        now: Time,
    ) -> Availability {
        request.clone_into(&mut self.current);
        let mut wait = false;
        for item in items {
            if self.engine_holds.contains(&item.identifier) {
                continue;
            }
            let decided = self.decision(request, &item.identifier);
            if matches!(decided, None | Some(Decision::Ordered)) {
                self.begin(request, item, loads, pool, now);
            } else if self.is_of_another_length(request, item) {
                self.refuse_second(request, &item.identifier, loads);
            } else if let Some(Decision::Waiting { deadline, .. }) = decided
                && *deadline <= now
            {
                self.decide_local(request, &item.identifier, MissReason::Deadline, loads);
            } else {
                self.look_again(request, &item.identifier, loads, pool, now);
            }
            let decided = self.decision(request, &item.identifier);
            wait |= matches!(decided, Some(Decision::Waiting { .. }));
        }
        if wait { Availability::Wait } else { Availability::Ready }
    }

    /// What has been decided about an item of a request.
    pub(super) fn decided(&self, request: &str, identifier: &str) -> Option<ItemDecision> {
        Some(match self.decision(request, identifier)? {
            Decision::Waiting { .. } => ItemDecision::Waiting,
            Decision::Ready { .. } => ItemDecision::Ready,
            Decision::Local(reason) => ItemDecision::Local(*reason),
            Decision::Ordered => ItemDecision::Ordered,
        })
    }

    /// Whether the item lies validated and pinned for the request that was asked for last.
    pub(super) fn has_item(&mut self, identifier: &str) -> bool {
        let ready =
            matches!(self.decision(&self.current, identifier), Some(Decision::Ready { .. }));
        if ready {
            self.promised.insert((self.current.clone(), identifier.to_owned()));
        }
        ready
    }

    /// The engine has allocated its cache for the item, to encode it or to load it.
    pub(super) fn allocated(&mut self, request: &str, identifier: &str, loads: &mut Loads) {
        self.engine_holds.insert(identifier.to_owned());
        self.entered.insert(identifier.to_owned());
        if !self.promised.remove(&(request.to_owned(), identifier.to_owned())) {
            return;
        }
        let Some(decision) = self.requests.get_mut(request).and_then(|r| r.get_mut(identifier))
        else {
            return;
        };
        match std::mem::replace(decision, Decision::Ordered) {
            Decision::Ready { pin, spec } => {
                let id = OrderId(self.next_order);
                self.next_order += 1;
                let identifier = identifier.to_owned();
                let load = LoadOrder { id, identifier, spec, source: pin.descriptor() };
                let order = Order { load, acknowledged: BTreeSet::new(), _pin: pin };
                self.orders.insert(id, order);
                loads.counters.orders += 1;
            }
            other => *decision = other,
        }
    }

    /// Ends the scheduling pass: `freed` has left the engine's own cache. What left and came back in the same
    /// pass is there: workers drop before they load and encode.
    pub(super) fn build_step(&mut self, freed: &[String]) -> StepPlan {
        self.promised.clear();
        let entered = std::mem::take(&mut self.entered);
        for identifier in freed.iter().filter(|identifier| !entered.contains(*identifier)) {
            self.engine_holds.remove(identifier);
        }
        let orders = self.orders.values().map(|order| order.load.clone()).collect();
        StepPlan { orders, save_again: Vec::new() }
    }

    /// A rank has copied these.
    pub(super) fn acknowledge(&mut self, rank: u32, orders: &[OrderId], loads: &mut Loads) {
        if rank >= self.ranks {
            return;
        }
        for id in orders {
            let Some(order) = self.orders.get_mut(id) else { continue };
            order.acknowledged.insert(rank);
            if order.acknowledged.len() == self.ranks as usize {
                self.orders.remove(id);
                loads.counters.acknowledged += 1;
            }
        }
    }

    /// The request has ended or was aborted. Pins that no step has taken are given back.
    pub(super) fn finished(&mut self, request: &str, loads: &mut Loads) {
        for (identifier, decision) in self.requests.remove(request).into_iter().flatten() {
            if let Decision::Waiting { key, .. } = decision {
                self.stop_waiting(&key, request, &identifier);
                loads.counters.waiting -= 1;
                loads.counters.withdrawn += 1;
            }
        }
        self.promised.retain(|(promised, _)| promised != request);
    }

    /// Pins what has been loaded, and decides what is missing, for everybody who waits for it.
    pub(super) fn settle(&mut self, loads: &mut Loads, pool: &Pool) {
        for (key, result) in loads.take_settled() {
            for (request, identifier) in self.waiters.get(&key).cloned().into_iter().flatten() {
                match result {
                    Err(reason) => self.decide_local(&request, &identifier, reason, loads),
                    Ok(handle) => {
                        self.decide_resident(&request, &identifier, handle, loads, pool);
                    }
                }
            }
        }
    }

    /// Decides everything that waits, for a shutdown.
    pub(super) fn close(&mut self, loads: &mut Loads) {
        for (request, identifier) in self.waiters.clone().into_values().flatten() {
            self.decide_local(&request, &identifier, MissReason::Closed, loads);
        }
    }

    // -- inside ----------------------------------------------------------------------------------------

    fn decision(&self, request: &str, identifier: &str) -> Option<&Decision> {
        self.requests.get(request)?.get(identifier)
    }

    fn set(&mut self, request: &str, identifier: &str, decision: Decision) {
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

    fn stop_waiting(&mut self, key: &Key, request: &str, identifier: &str) {
        let Some(waiters) = self.waiters.get_mut(key) else { return };
        waiters.remove(&(request.to_owned(), identifier.to_owned()));
        if waiters.is_empty() {
            self.waiters.remove(key);
        }
    }

    /// Whether an item that the request has asked for already was of another length then. The engine keeps one
    /// tensor under one identifier: it cannot be both.
    fn is_of_another_length(&self, request: &str, item: &ItemRequest) -> bool {
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
    fn refuse_second(&mut self, request: &str, identifier: &str, loads: &mut Loads) {
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
    fn begin(
        &mut self,
        request: &str,
        item: &ItemRequest,
        loads: &mut Loads,
        pool: &Pool,
        now: Time,
    ) {
        loads.counters.lookups += 1;
        loads.counters.waiting += 1;
        let spec = match self.namespace.spec(item.rows) {
            Ok(spec) if spec.bytes() > 0 => spec,
            spec => {
                let reason = if spec.is_ok() { MissReason::Empty } else { MissReason::WrongSpec };
                return self.decide_local(request, &item.identifier, reason, loads);
            }
        };
        let early = self.patience / (SPREAD * 8) * (self.arrivals % SPREAD);
        let deadline = now + (self.patience - early);
        let key = self.namespace.key(&item.identifier);
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
    fn look_again(
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
    fn decide_resident(
        &mut self,
        request: &str,
        identifier: &str,
        handle: Handle,
        loads: &mut Loads,
        pool: &Pool,
    ) -> bool {
        let Some(Decision::Waiting { len, spec, .. }) = self.decision(request, identifier) else {
            return true;
        };
        let (len, spec) = (*len, *spec);
        let Ok(pin) = pool.pin(handle) else { return false };
        if pin.len() == len {
            loads.counters.waiting -= 1;
            loads.counters.hits += 1;
            self.set(request, identifier, Decision::Ready { pin: Box::new(pin), spec });
        } else {
            self.decide_local(request, identifier, MissReason::WrongSpec, loads);
        }
        true
    }

    fn decide_local(
        &mut self,
        request: &str,
        identifier: &str,
        reason: MissReason,
        loads: &mut Loads,
    ) {
        loads.counters.waiting -= 1;
        bump(&mut loads.counters.misses, reason);
        self.set(request, identifier, Decision::Local(reason));
    }
}
