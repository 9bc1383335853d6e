//! The scheduler's two machines over a real pool, under an engine that asks for anything and a store that
//! answers in any order and with any code.

use std::collections::VecDeque;

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serialize};
use springtide_testing::corpus;

use super::*;
use crate::{
    connector::{
        config::LoadConfig,
        key::NamespaceParts,
        loads::{Action, FetchEnd},
        object::{Rejection, key_tag, object_bytes},
    },
    env::{ErrorCode, StoreError},
    pool::{Contiguity, Handle, Lease, PoolConfig, QuarantineCause, UNIT_HEADER},
};

const UNIT: u64 = 64 + UNIT_HEADER;
const UNITS: u64 = 12;
const RANKS: u32 = 2;
const PATIENCE: Duration = Duration::from_millis(400);
const REQUESTS: u8 = 4;
const ITEMS: u8 = 5;

/// One step. `choice` picks among the store calls, or orders, that are open.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Step {
    Ask { request: u8, items: Vec<(u8, u64)> },
    Has { item: u8 },
    Allocated { request: u8, item: u8 },
    Build { freed: Vec<u8> },
    Acknowledge { rank: u32, choice: usize },
    Ended,
    Finish { request: u8 },
    Act,
    Answer { choice: usize, answer: Answer },
    Evict { units: u64 },
    Pass { millis: u64 },
    Close,
}

/// What the store says; each kind of call takes of it what fits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Answer {
    Yes,
    No,
    OtherLength,
    Rejected,
    Code(i32),
    Uncertain(i32),
    Lost,
}

fn answer() -> impl Strategy<Value = Answer> {
    let code = prop::sample::select([-703, -704, -707, -800, -900, -901, -600, -9999].as_slice());
    prop_oneof![
        8 => Just(Answer::Yes),
        2 => Just(Answer::No),
        1 => Just(Answer::OtherLength),
        1 => Just(Answer::Rejected),
        3 => code.clone().prop_map(Answer::Code),
        1 => code.prop_map(Answer::Uncertain),
        1 => Just(Answer::Lost),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let choice = any::<u8>().prop_map(usize::from);
    let item = (0..ITEMS, prop_oneof![6 => Just(2), 2 => 1..6_u64, 1 => Just(0), 1 => Just(400)]);
    prop_oneof![
        8 => (0..REQUESTS, vec(item, 1..4)).prop_map(|(request, items)| Step::Ask { request, items }),
        5 => (0..ITEMS).prop_map(|item| Step::Has { item }),
        5 => (0..REQUESTS, 0..ITEMS).prop_map(|(request, item)| Step::Allocated { request, item }),
        4 => vec(0..ITEMS, 0..4).prop_map(|freed| Step::Build { freed }),
        5 => (0..RANKS + 1, choice.clone())
            .prop_map(|(rank, choice)| Step::Acknowledge { rank, choice }),
        3 => Just(Step::Ended),
        2 => (0..REQUESTS).prop_map(|request| Step::Finish { request }),
        10 => Just(Step::Act),
        14 => (choice, answer()).prop_map(|(choice, answer)| Step::Answer { choice, answer }),
        2 => (1..UNITS).prop_map(|units| Step::Evict { units }),
        4 => prop_oneof![3 => 1..30_u64, 1 => 100..700_u64].prop_map(|millis| Step::Pass { millis }),
        1 => prop::bool::weighted(0.1).prop_map(|close| if close { Step::Close } else { Step::Act }),
    ]
}

/// A store call that has not been answered.
enum Call {
    Lookup(Key),
    Size(Key, u64),
    Remove,
    Fetch(Key, Box<Lease>),
}

struct Shell {
    pool: Pool,
    loads: Loads,
    requests: Requests,
    now: Time,
    calls: VecDeque<Call>,
    by: Acknowledged,
    /// What each order has promised, who has acknowledged it, and the first step that carried it.
    orders: BTreeMap<OrderId, (Handle, BTreeSet<u32>, u64)>,
    built: u64,
    ended: u64,
    /// Lengths that keys are fetched in.
    lengths: BTreeMap<Key, u64>,
    /// When each request was first asked for, and has not finished since.
    open: BTreeSet<u8>,
    current: Option<u8>,
    closed: bool,
}

fn store_error(code: i32) -> StoreError {
    StoreError::new(ErrorCode::from_number(code), Duration::from_millis(1))
}

impl Shell {
    fn new(by: Acknowledged) -> Self {
        let config = LoadConfig {
            absent_ttl: Duration::from_millis(50),
            failed_ttl: Duration::from_millis(200),
            attempts_max: 4,
            batch_items_max: 2,
            batch_bytes_max: 4 * UNIT,
            in_flight_bytes_max: 5 * UNIT,
            keys_max: 4,
            ..LoadConfig::default()
        };
        let parts = NamespaceParts { width: 32, ..NamespaceParts::default() };
        let pool = PoolConfig {
            unit_payload: 64,
            quarantine_max: UNITS * UNIT / 2,
            ..PoolConfig::with_bytes(UNITS * UNIT)
        };
        Self {
            pool: Pool::new(&pool).unwrap(),
            loads: Loads::new(config, 16, 8),
            requests: Requests::new(Namespace::new(&parts), PATIENCE, by),
            now: Time::ZERO,
            calls: VecDeque::new(),
            by,
            orders: BTreeMap::new(),
            built: 0,
            ended: 0,
            lengths: BTreeMap::new(),
            open: BTreeSet::new(),
            current: None,
            closed: false,
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Ask { request, items } => self.ask(request, items),
            Step::Has { item } => self.has(item),
            Step::Allocated { request, item } => {
                self.requests.allocated(&name(request), &name(item), &mut self.loads);
            }
            Step::Build { freed } => self.build(&freed),
            Step::Acknowledge { rank, choice } => self.acknowledge(rank, choice),
            Step::Ended => self.step_ended(),
            Step::Finish { request } => {
                self.requests.finished(&name(request), &mut self.loads);
                self.open.remove(&request);
            }
            Step::Act => self.act(),
            Step::Answer { choice, answer } => self.answer(choice, answer),
            Step::Evict { units } => {
                for handle in self.pool.evict_until_fits(units * UNIT, Contiguity::Extents) {
                    self.loads.residents.evicted(handle);
                }
            }
            Step::Pass { millis } => self.now = self.now + Duration::from_millis(millis),
            Step::Close => {
                self.loads.close();
                self.requests.close(&mut self.loads);
                self.closed = true;
            }
        }
        self.check();
    }

    fn ask(&mut self, request: u8, items: Vec<(u8, u64)>) {
        let items: Vec<ItemRequest> = items
            .into_iter()
            .map(|(item, rows)| ItemRequest { identifier: name(item), rows })
            .collect();
        for item in &items {
            let spec = self.requests.namespace.spec(item.rows).unwrap();
            let key = self.requests.namespace.key(&item.identifier);
            self.lengths.insert(key, object_bytes(&spec));
        }
        let Self { requests, loads, pool, now, .. } = self;
        let availability = requests.ensure_available(&name(request), &items, loads, pool, *now);
        self.open.insert(request);
        self.current = Some(request);
        let waits = items.iter().any(|item| {
            let decided = self.requests.decided(&name(request), &item.identifier);
            let held = self.requests.engine_holds.contains(&item.identifier);
            decided == Some(ItemDecision::Waiting) && !held
        });
        assert!(!waits || availability == Availability::Wait, "scheduled too early");
        assert!(availability == Availability::Ready || !self.closed, "a closed connector waits");
        // Whoever waits has a deadline that is still to come.
        for item in self.requests.requests.values().flat_map(BTreeMap::values).filter(|_| waits) {
            if let Decision::Waiting { deadline, .. } = item {
                assert!(*deadline <= self.now + PATIENCE);
            }
        }
    }

    fn has(&mut self, item: u8) {
        let has = self.requests.has_item(&name(item));
        let Some(current) = self.current else { return assert!(!has) };
        let decided = self.requests.decided(&name(current), &name(item));
        assert_eq!(has, decided == Some(ItemDecision::Ready));
        if has {
            let decision = self.requests.decision(&name(current), &name(item));
            let Some(Decision::Ready { pin, .. }) = decision else { unreachable!() };
            let key = self.requests.namespace.key(&name(item));
            assert_eq!(content(pin), content_of(&key, pin.len()), "another item's bytes");
        }
    }

    fn build(&mut self, freed: &[u8]) {
        let freed: Vec<String> = freed.iter().map(|item| name(*item)).collect();
        let plan = self.requests.build_step(&freed);
        self.built += 1;
        for order in &plan.orders {
            let new = (order.source.handle, BTreeSet::new(), self.built);
            let known = self.orders.entry(order.id).or_insert(new);
            assert_eq!(known.0, order.source.handle, "an order changes");
        }
        let ordered: BTreeSet<OrderId> = plan.orders.iter().map(|order| order.id).collect();
        assert!(self.orders.keys().all(|id| ordered.contains(id)), "an order is forgotten");
        let mapper = self.pool.mapper();
        for order in plan.orders {
            let view = mapper.view(&order.source).expect("an order's memory is pinned");
            let mut bytes = vec![0; order.source.len as usize];
            view.read_at(0, &mut bytes);
            view.check().expect("an order's memory is pinned");
            let key = self.requests.namespace.key(&order.identifier);
            assert_eq!(bytes, content_of(&key, order.source.len), "another item's bytes");
        }
    }

    fn acknowledge(&mut self, rank: u32, choice: usize) {
        let Some(at) = choice.checked_rem(self.orders.len()) else { return };
        let id = *self.orders.keys().nth(at).unwrap();
        self.requests.acknowledge(rank, &[id], &mut self.loads);
        if self.by == Acknowledged::ByStep {
            return;
        }
        let acknowledged = &mut self.orders.get_mut(&id).unwrap().1;
        if rank < RANKS {
            acknowledged.insert(rank);
        }
        if acknowledged.len() == RANKS as usize {
            self.orders.remove(&id);
        }
    }

    fn step_ended(&mut self) {
        self.requests.step_ended(&mut self.loads);
        self.ended = self.built.min(self.ended + 1);
        if self.by == Acknowledged::ByStep {
            self.orders.retain(|_, (_, _, step)| *step > self.ended);
        }
    }

    /// Carries out all that the machine wants done now.
    fn act(&mut self) {
        for _ in 0..1000 {
            match self.loads.next_action(self.now) {
                None => {
                    let wakeup = self.loads.next_wakeup();
                    assert!(wakeup.is_none_or(|at| at > self.now), "a timer that has passed stays");
                    return self.settle();
                }
                Some(Action::Lookup(keys)) => {
                    keys.into_iter().for_each(|key| self.begin(Call::Lookup(key)));
                }
                Some(Action::Size(key)) => {
                    let len = self.lengths[&key];
                    self.begin(Call::Size(key, len));
                }
                Some(Action::Remove(..)) => self.calls.push_back(Call::Remove),
                Some(Action::Fetch(batch)) => self.fetch(batch),
            }
            assert!(!self.closed, "a closed machine begins something");
        }
        panic!("the machine never comes to rest");
    }

    fn begin(&mut self, call: Call) {
        let busy = self
            .calls
            .iter()
            .any(|other| key_of(other).is_some_and(|key| Some(key) == key_of(&call)));
        assert!(!busy, "two calls for one key");
        self.calls.push_back(call);
    }

    fn fetch(&mut self, batch: Vec<(Key, u64)>) {
        for (key, len) in batch {
            let mut lease = self.pool.allocate(len, Contiguity::Extents);
            if lease.is_err() {
                for handle in self.pool.evict_until_fits(len, Contiguity::Extents) {
                    self.loads.residents.evicted(handle);
                }
                lease = self.pool.allocate(len, Contiguity::Extents);
            }
            match lease {
                Ok(lease) => self.begin(Call::Fetch(key, Box::new(lease))),
                Err(_) => self.loads.no_room(&key, self.now),
            }
        }
    }

    fn answer(&mut self, choice: usize, answer: Answer) {
        let Some(at) = choice.checked_rem(self.calls.len()) else { return };
        let call = self.calls.remove(at).unwrap();
        let now = self.now;
        match (call, answer) {
            (Call::Lookup(key), answer) => {
                let exists = match answer {
                    Answer::Code(code) | Answer::Uncertain(code) => Err(store_error(code)),
                    answer => Ok(!matches!(answer, Answer::No)),
                };
                self.loads.looked_up(&key, exists, now);
            }
            (Call::Size(key, len), answer) => {
                let size = match answer {
                    Answer::OtherLength => Ok(len + 1),
                    Answer::Code(code) | Answer::Uncertain(code) => Err(store_error(code)),
                    Answer::No => Err(store_error(-704)),
                    _ => Ok(len),
                };
                self.loads.sized(&key, size, now);
            }
            (Call::Remove, answer) => self.loads.removed(matches!(answer, Answer::Yes)),
            (Call::Fetch(key, lease), answer) => return self.fetched(&key, *lease, answer),
        }
        self.settle();
    }

    fn fetched(&mut self, key: &Key, mut lease: Lease, answer: Answer) {
        let mut pin = None;
        let end = match answer {
            Answer::Yes | Answer::No => {
                lease.write_at(0, &content_of(key, lease.len()));
                FetchEnd::Loaded(pin.insert(lease.publish(key_tag(key))).handle())
            }
            Answer::OtherLength | Answer::Rejected => FetchEnd::Rejected(Rejection::Checksum),
            Answer::Code(code) => FetchEnd::Failed(store_error(code)),
            Answer::Uncertain(code) => {
                lease.into_transfer().quarantine(QuarantineCause::Uncertain);
                FetchEnd::Uncertain(store_error(code))
            }
            Answer::Lost => FetchEnd::Lost,
        };
        self.loads.fetched(key, end, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        self.requests.settle(&mut self.loads, &self.pool);
    }

    /// What must hold after every step.
    fn check(&self) {
        assert_eq!(self.loads.counters.check(), Ok(()));
        let decisions = self.requests.requests.values().flat_map(BTreeMap::values);
        let waiting = decisions.clone().filter(|d| matches!(d, Decision::Waiting { .. })).count();
        let ready = decisions.filter(|d| matches!(d, Decision::Ready { .. })).count();
        assert_eq!(self.loads.counters.waiting, waiting as u64);
        let waiters: usize = self.requests.waiters.values().map(BTreeSet::len).sum();
        assert_eq!(waiters, waiting, "somebody waits for nothing");
        assert!(waiting == 0 || !self.closed, "a closed connector lets requests wait");
        let flying = self.calls.iter().filter_map(|call| match call {
            Call::Fetch(_, lease) => Some(lease.len()),
            _ => None,
        });
        assert_eq!(self.loads.in_flight_bytes(), flying.sum::<u64>());
        assert_eq!(self.pool.usage().pinned > 0, ready + self.requests.open_orders() > 0);
        self.pool.verify().unwrap();
    }

    /// Ends everything; nothing stays pinned.
    fn finish(mut self) {
        while !self.calls.is_empty() {
            self.answer(0, Answer::Lost);
        }
        for request in 0..REQUESTS {
            self.run(Step::Finish { request });
        }
        self.build(&[]);
        for id in self.orders.keys().copied().collect::<Vec<_>>() {
            (0..RANKS).for_each(|rank| self.requests.acknowledge(rank, &[id], &mut self.loads));
        }
        while self.by == Acknowledged::ByStep && self.ended < self.built {
            assert!(self.orders.is_empty() || self.requests.open_orders() > 0, "released early");
            self.step_ended();
        }
        self.check();
        let usage = self.pool.usage();
        assert_eq!((usage.pinned, usage.filling, usage.in_flight), (0, 0, 0));
        assert_eq!((self.requests.open_orders(), self.requests.open_requests()), (0, 0));
        assert_eq!((self.loads.counters.waiting, self.loads.in_flight_bytes()), (0, 0));
        assert_eq!(self.loads.counters.orders, self.loads.counters.acknowledged);
    }
}

fn name(number: u8) -> String {
    number.to_string()
}

fn key_of(call: &Call) -> Option<&Key> {
    match call {
        Call::Lookup(key) | Call::Size(key, _) | Call::Fetch(key, _) => Some(key),
        Call::Remove => None,
    }
}

/// The bytes that an item has: no other has the same.
fn content_of(key: &Key, len: u64) -> Vec<u8> {
    key_tag(key).to_le_bytes().into_iter().cycle().take(len as usize).collect()
}

fn content(pin: &Pin) -> Vec<u8> {
    pin.segments().flatten().copied().collect()
}

#[test]
fn requests_keep_their_promises_whatever_engine_and_store_do() {
    corpus::check("requests", 2000, vec(step(), 1..150), |steps| {
        for by in [Acknowledged::ByRanks(RANKS), Acknowledged::ByStep] {
            let mut shell = Shell::new(by);
            for step in &steps {
                shell.run(step.clone());
            }
            shell.finish();
        }
    });
}
