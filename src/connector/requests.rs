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
    pool::{Descriptor, Pin, Pool},
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
}

enum Decision {
    Waiting { key: Key, len: u64, spec: TensorSpec, deadline: Time },
    Ready { pin: Box<Pin>, spec: TensorSpec },
    Local,
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
    arrivals: u32,
    /// The request of the last `ensure_available`: `has_item` has no request argument.
    current: String,
    /// What `has_item` answered yes to in this scheduling pass.
    promised: BTreeSet<(String, String)>,
    /// Mirror of the engine's own encoder cache.
    engine_holds: BTreeSet<String>,
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
            arrivals: 0,
            current: String::new(),
            promised: BTreeSet::new(),
            engine_holds: BTreeSet::new(),
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

    /// Ends the scheduling pass: `freed` has left the engine's own cache.
    pub(super) fn build_step(&mut self, freed: &[String]) -> StepPlan {
        self.promised.clear();
        for identifier in freed {
            self.engine_holds.remove(identifier);
        }
        StepPlan { orders: self.orders.values().map(|order| order.load.clone()).collect() }
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
        for decision in self.requests.remove(request).into_iter().flat_map(BTreeMap::into_values) {
            if matches!(decision, Decision::Waiting { .. }) {
                loads.counters.waiting -= 1;
                loads.counters.withdrawn += 1;
            }
        }
        self.promised.retain(|(promised, _)| promised != request);
    }

    /// Pins what has been loaded, and decides what is missing, for everybody who waits for it.
    pub(super) fn settle(&mut self, loads: &mut Loads, pool: &Pool) {
        for (settled, result) in loads.take_settled() {
            for decision in self.requests.values_mut().flat_map(BTreeMap::values_mut) {
                let Decision::Waiting { key, len, spec, .. } = decision else { continue };
                if *key != settled {
                    continue;
                }
                let next = match result {
                    Err(reason) => Err(reason),
                    Ok(handle) => match pool.pin(handle) {
                        Ok(pin) if pin.len() == *len => {
                            Ok(Decision::Ready { pin: Box::new(pin), spec: *spec })
                        }
                        Ok(_) => Err(MissReason::WrongSpec),
                        // Evicted already: look again at the next step.
                        Err(_) => continue,
                    },
                };
                loads.counters.waiting -= 1;
                *decision = next.map_or_else(
                    |reason| {
                        bump(&mut loads.counters.misses, reason);
                        Decision::Local
                    },
                    |ready| {
                        loads.counters.hits += 1;
                        ready
                    },
                );
            }
        }
    }

    /// Decides everything that waits, for a shutdown.
    pub(super) fn close(&mut self, loads: &mut Loads) {
        for decision in self.requests.values_mut().flat_map(BTreeMap::values_mut) {
            if matches!(decision, Decision::Waiting { .. }) {
                *decision = Decision::Local;
                loads.counters.waiting -= 1;
                bump(&mut loads.counters.misses, MissReason::Closed);
            }
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
        let items = self.requests.entry(request.to_owned()).or_default();
        items.insert(identifier.to_owned(), decision);
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
        self.set(request, &item.identifier, Decision::Waiting { key, len, spec, deadline });
        if self.look_again(request, &item.identifier, loads, pool, now) {
            loads.counters.resident_hits += 1;
        }
    }

    /// Asks for a waiting item once more; true if it lay in the pool.
    fn look_again(
        &mut self,
        request: &str,
        identifier: &str,
        loads: &mut Loads,
        pool: &Pool,
        now: Time,
    ) -> bool {
        let Some(Decision::Waiting { key, len, spec, deadline }) =
            self.decision(request, identifier)
        else {
            return false;
        };
        let (key, len, spec, deadline) = (key.clone(), *len, *spec, *deadline);
        match loads.want(&key, len, deadline, now) {
            Want::Pending => false,
            Want::Miss(reason) => {
                self.decide_local(request, identifier, reason, loads);
                false
            }
            Want::Resident(handle) => match pool.pin(handle) {
                Ok(pin) if pin.len() == len => {
                    loads.counters.waiting -= 1;
                    loads.counters.hits += 1;
                    let ready = Decision::Ready { pin: Box::new(pin), spec };
                    self.set(request, identifier, ready);
                    true
                }
                Ok(_) => {
                    self.decide_local(request, identifier, MissReason::WrongSpec, loads);
                    false
                }
                Err(_) => {
                    // The pool has evicted it: ask the store.
                    loads.residents.remove(&key);
                    loads.want(&key, len, deadline, now);
                    false
                }
            },
        }
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
        self.set(request, identifier, Decision::Local);
    }
}
