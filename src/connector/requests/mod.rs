//! What each request has been promised, decided without I/O.
//!
//! For every item of every request one decision is taken, once: *waiting*, then *ready* (validated and
//! pinned for this request) or *local* (the engine encodes it, with the reason). `has_item` is true only for
//! *ready*: an engine that is told "yes" and gets nothing dies. A pin lives from the decision to the
//! acknowledgement of all ranks; it is not given back by the end of the request alone, since the step that
//! copies may still be in flight.

mod decide;
mod orders;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use self::orders::{Availability, ItemDecision, ItemRequest, LoadOrder, OrderId, StepPlan};
use super::{
    key::Namespace,
    loads::{Loads, MissReason},
};
use crate::{
    env::{Key, TensorSpec, Time},
    log::{shown, step},
    pool::{Pin, Pool},
};

enum Decision {
    Waiting { key: Key, len: u64, spec: TensorSpec, deadline: Time },
    Ready { pin: Box<Pin>, spec: TensorSpec },
    Local(MissReason),
    Ordered,
}

/// How the scheduler learns that an order has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// So many ranks say so.
    ByRanks(u32),
    /// The step that carried it has ended.
    ByStep,
}

struct Order {
    load: LoadOrder,
    acknowledged: BTreeSet<u32>,
    /// Number of the first step that carried it, counted from 1.
    sent_in: Option<u64>,
    /// Keeps the memory until all ranks have copied it.
    _pin: Box<Pin>,
}

pub(super) struct Requests {
    namespace: Namespace,
    patience: Duration,
    by: Acknowledged,
    /// Steps that were built, and that have ended.
    steps: (u64, u64),
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
    pub(super) fn new(namespace: Namespace, patience: Duration, by: Acknowledged) -> Self {
        Self {
            namespace,
            patience,
            by,
            steps: (0, 0),
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
                step!(&self.namespace.key(identifier), order = id.0, "ordered");
                let identifier = identifier.to_owned();
                let load = LoadOrder { id, identifier, spec, source: pin.descriptor() };
                let acknowledged = BTreeSet::new();
                let order = Order { load, acknowledged, sent_in: None, _pin: pin };
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
        self.steps.0 += 1;
        let orders = self.orders.values_mut().map(|order| {
            order.sent_in.get_or_insert(self.steps.0);
            order.load.clone()
        });
        StepPlan { orders: orders.collect(), save_again: Vec::new() }
    }

    /// A rank has copied these.
    pub(super) fn acknowledge(&mut self, rank: u32, orders: &[OrderId], loads: &mut Loads) {
        let Acknowledged::ByRanks(ranks) = self.by else { return };
        if rank >= ranks {
            return;
        }
        for id in orders {
            let Some(order) = self.orders.get_mut(id) else { continue };
            order.acknowledged.insert(rank);
            if order.acknowledged.len() == ranks as usize {
                self.orders.remove(id);
                loads.counters.acknowledged += 1;
            }
        }
    }

    /// The oldest step that had not come back has ended, on all ranks.
    pub(super) fn step_ended(&mut self, loads: &mut Loads) {
        let (built, ended) = &mut self.steps;
        *ended = (*ended + 1).min(*built);
        if self.by != Acknowledged::ByStep {
            return;
        }
        let (before, ended) = (self.orders.len(), *ended);
        self.orders.retain(|_, order| order.sent_in.is_none_or(|step| step > ended));
        loads.counters.acknowledged += (before - self.orders.len()) as u64;
    }

    /// The request has ended or was aborted. Pins that no step has taken are given back.
    pub(super) fn finished(&mut self, request: &str, loads: &mut Loads) {
        for (identifier, decision) in self.requests.remove(request).into_iter().flatten() {
            if let Decision::Waiting { key, .. } = decision {
                self.stop_waiting(&key, request, &identifier);
                step!(&key, request = %shown(request), "withdrawn");
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
}

#[cfg(test)]
mod props;
