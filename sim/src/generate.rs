//! From a seed to a plan, swarm-style.
//!
//! A seed draws not only faults but also the configuration, the topology and *which kinds* of fault may occur
//! at all: a run with every kind at once rarely gets deep into any. Each decision has a stream of its own, so
//! adding one shifts no other.

use springtide::env::ErrorCode;

use crate::{
    plan::{
        Direction, Eviction, Fault, FaultKind, MessageFate, Moment, Op, Plan, Scheduled, Workload,
    },
    seeds::Stream,
};

const MIB: u64 = 1 << 20;

/// Codes that a master or a node gives for reasons of its own; half of the codes that are drawn. The other
/// half are of all that Mooncake has.
const CODES: [i32; 8] = [-1, -200, -601, -703, -704, -800, -900, -901];

/// The faults of W7: those that take whole processes, and what the store does under pressure.
const PROCESSES: [FaultKind; 6] = [
    FaultKind::Crash,
    FaultKind::Pause,
    FaultKind::Partition,
    FaultKind::FillStore,
    FaultKind::ShortLease,
    FaultKind::EvictAll,
];

/// Kinds of fault under which bytes are right although nobody checks them.
const SAFE_WITHOUT_CHECKSUM: [FaultKind; 10] = [
    FaultKind::Pause,
    FaultKind::StoreCode,
    FaultKind::ShortRead,
    FaultKind::LateKernel,
    FaultKind::FailCopy,
    FaultKind::SlowCopy,
    FaultKind::HogPool,
    FaultKind::DoubleSave,
    FaultKind::Panic,
    FaultKind::Close,
];

/// The plan that `seed` draws, with faults of every kind.
pub fn generate(seed: u64) -> Plan {
    generate_with(seed, &|_| true)
}

/// The plan that `seed` draws with faults of the kinds that `allowed` lets through. What the seed decides
/// about everything else is the same whatever they are.
pub fn generate_with(seed: u64, allowed: &dyn Fn(FaultKind) -> bool) -> Plan {
    let stream = |purpose| Stream::new(seed, "", purpose);
    let workload = *stream("workload").pick(&Workload::ALL);
    let name = format!("random {}", format!("{workload:?}").to_lowercase());
    let mut plan = Plan { seed, ..Plan::base(&name, workload) };
    topology(&mut stream("topology"), &mut plan);
    connector(&mut stream("connector"), &mut plan);
    store(&mut stream("store"), &mut plan);
    engine(&mut stream("engine"), &mut plan);
    plan.connector.link = stream("link").chance(1, 2);
    plan.engine.schedules_ahead = stream("ahead").chance(1, 3);
    traffic(&mut stream("traffic"), workload, &mut plan);
    faults(&mut stream("faults"), workload, allowed, &mut plan);
    plan
}

fn topology(stream: &mut Stream, plan: &mut Plan) {
    let topology = &mut plan.topology;
    topology.encoders = stream.between(1, 2) as u32;
    topology.prefills = stream.between(1, 2) as u32;
    topology.nodes = stream.between(1, 2) as u32;
    topology.tensor_parallel = if stream.chance(1, 4) { 2 } else { 1 };
    let pairs = topology.encoders.min(topology.prefills);
    topology.namespaces = if stream.chance(1, 3) { pairs } else { 1 };
    plan.link.tick_ms = *stream.pick(&[1, 2, 2, 5]);
    plan.link.latency_ms = *stream.pick(&[0, 1, 1, 3]);
}

fn connector(stream: &mut Stream, plan: &mut Plan) {
    let connector = &mut plan.connector;
    // From "holds a handful of items" to "holds everything".
    connector.encoder_pool_bytes = *stream.pick(&[1, 2, 4, 8, 16]) * MIB;
    connector.prefill_pool_bytes = *stream.pick(&[1, 2, 4, 8, 16]) * MIB;
    connector.extents_max = *stream.pick(&[1, 4, 8, 16]);
    connector.eviction = *stream.pick(&[Eviction::Fifo, Eviction::Lru, Eviction::S3Fifo]);
    connector.save_deadline_ms = *stream.pick(&[300, 1_000, 3_000]);
    connector.load_deadline_ms = *stream.pick(&[60, 150, 400]);
    connector.batch_bytes_max = *stream.pick(&[256 << 10, MIB, 4 * MIB]);
    connector.batch_items_max = *stream.pick(&[1, 4, 16]);
    connector.in_flight_bytes_max = *stream.pick(&[512 << 10, 2 * MIB, 8 * MIB]);
    connector.queue_items_max = *stream.pick(&[4, 32, 256]);
    connector.attempts_max = *stream.pick(&[2, 8, 16]);
    connector.retry_pause_ms = *stream.pick(&[5, 20, 50]);
    connector.absent_ttl_ms = *stream.pick(&[0, 50, 200]);
    connector.failed_ttl_ms = *stream.pick(&[0, 300, 1_000]);
    connector.quarantine_permille = *stream.pick(&[100, 250, 1_000]);
    connector.payload_checksum = !stream.chance(1, 10);
    connector.prefill_saves = stream.chance(1, 5);
}

fn store(stream: &mut Stream, plan: &mut Plan) {
    let store = &mut plan.store;
    store.segment_bytes = *stream.pick(&[2, 4, 16, 32]) * MIB;
    store.replicas = if stream.chance(1, 4) { 2 } else { 1 };
    store.lease_ttl_ms = *stream.pick(&[20, 200, 1_000, 5_000]);
    store.watermark_permille = *stream.pick(&[500, 900, 950]);
    store.eviction_permille = *stream.pick(&[50, 200]);
    store.rpc_timeout_ms = *stream.pick(&[100, 500]);
    store.transfer_limit_ms = *stream.pick(&[300, 1_500]);
    store.close_fences = !stream.chance(1, 8);
}

fn engine(stream: &mut Stream, plan: &mut Plan) {
    let engine = &mut plan.engine;
    engine.encode_us_per_row = *stream.pick(&[1, 5, 10]);
    engine.step_ms = *stream.pick(&[2, 5, 10]);
    engine.batch_requests_max = *stream.pick(&[1, 4, 16]);
    engine.cache_items_max = *stream.pick(&[5, 12, 64]);
    engine.wait_ms = *stream.pick(&[50, 500, 1_500]);
}

fn traffic(stream: &mut Stream, workload: Workload, plan: &mut Plan) {
    let until_ms = plan.phases.settle_at();
    plan.requests = crate::workload::draw(workload, stream, &plan.topology, 0, until_ms);
    if stream.chance(1, 10) && !plan.requests.is_empty() {
        // An item that no pool takes, and one without a row.
        let giant = plan.connector.prefill_pool_bytes / (plan.engine.width * 2) + 1;
        for rows in [giant.min(100_000), 0] {
            let at = stream.below(plan.requests.len() as u64) as usize;
            let item = &mut plan.requests[at].items[0];
            item.id = format!("odd{rows}");
            item.rows = rows;
        }
        plan.engine.encode_us_per_row = plan.engine.encode_us_per_row.min(2);
    }
    // A request whose items do not fit into the engine's cache together is never scheduled.
    let longest = plan.requests.iter().map(|request| request.items.len()).max().unwrap_or(0) as u32;
    plan.engine.cache_items_max = plan.engine.cache_items_max.max(longest);
    if matches!(workload, Workload::W2 | Workload::W5) {
        // A giant takes half a second on its way, and many small items come beside it.
        plan.engine.batch_requests_max = plan.engine.batch_requests_max.max(4);
        plan.store.transfer_limit_ms = 1_500;
        plan.connector.load_deadline_ms = plan.connector.load_deadline_ms.max(400);
    }
    // An engine that must encode everything itself still has to get through: faults of the store are to be
    // told from an overload.
    let rows: u64 = plan.requests.iter().flat_map(|request| &request.items).map(|i| i.rows).sum();
    let budget_us = 1_500_000 * u64::from(plan.topology.prefills);
    let engine = &mut plan.engine;
    engine.encode_us_per_row = engine.encode_us_per_row.min(budget_us / rows.max(1)).max(1);
    // Nor does a step that waits for a full store.
    if plan.connector.prefill_saves {
        plan.engine.wait_ms = plan.engine.wait_ms.min(50);
    }
}

fn faults(
    stream: &mut Stream,
    workload: Workload,
    allowed: &dyn Fn(FaultKind) -> bool,
    plan: &mut Plan,
) {
    let known: &[FaultKind] = if workload == Workload::W7 { &PROCESSES } else { FaultKind::ALL };
    let checked = plan.connector.payload_checksum;
    let may = |kind: &FaultKind| {
        allowed(*kind)
            && (checked || workload == Workload::W7 || SAFE_WITHOUT_CHECKSUM.contains(kind))
    };
    let mut kinds: Vec<FaultKind> = known.iter().filter(|kind| may(kind)).copied().collect();
    stream.shuffle(&mut kinds);
    kinds.truncate(stream.between(1, 6) as usize);
    if kinds.is_empty() {
        return;
    }
    for _ in 0..stream.between(1, 12) {
        let kind = *stream.pick(&kinds);
        let at_ms = stream.between(plan.phases.inject_at(), plan.phases.heal_at() - 100);
        let left_ms = plan.phases.heal_at() - at_ms;
        let fault = Draw { stream, plan, left_ms }.fault(kind);
        plan.faults.push(Scheduled { at_ms, fault });
    }
    plan.faults.sort_by_key(|scheduled| scheduled.at_ms);
}

/// One fault while it is drawn.
struct Draw<'a> {
    stream: &'a mut Stream,
    plan: &'a Plan,
    /// Until healing begins.
    left_ms: u64,
}

impl Draw<'_> {
    fn fault(&mut self, kind: FaultKind) -> Fault {
        match kind {
            FaultKind::Crash => {
                let host = self.host(|host| host != "client");
                Fault::Crash { host, for_ms: self.short() }
            }
            FaultKind::Pause => Fault::Pause { host: self.host(|_| true), for_ms: self.short() },
            FaultKind::Partition => {
                let (a, b) = self.link();
                Fault::Partition { a, b, for_ms: self.short() }
            }
            FaultKind::PartitionOneway => {
                let (from, to) = self.link();
                Fault::PartitionOneway { from, to, for_ms: self.short() }
            }
            FaultKind::Hold => {
                let (a, b) = self.link();
                Fault::Hold { a, b, for_ms: self.short() }
            }
            FaultKind::Slow => {
                let (a, b) = self.link();
                let latency_ms = self.stream.between(5, 100);
                Fault::Slow { a, b, latency_ms, for_ms: self.short() }
            }
            FaultKind::FillStore => {
                let object_bytes = *self.stream.pick(&[16 << 10, 64 << 10, 256 << 10]);
                let capacity = self.plan.store.segment_bytes * u64::from(self.plan.topology.nodes);
                let share = self.stream.between(50, 110);
                let objects = (capacity * share / 100 / object_bytes).clamp(1, 512) as u32;
                Fault::FillStore { object_bytes, objects, for_ms: self.short() }
            }
            FaultKind::ShortLease => {
                let ttl_ms = *self.stream.pick(&[1, 10, 50, 500]);
                Fault::ShortLease { ttl_ms, for_ms: self.short() }
            }
            FaultKind::DoubleSave => {
                let host = self.instance();
                Fault::DoubleSave { host, count: self.count(), for_ms: self.long() }
            }
            FaultKind::EvictAll => Fault::EvictAll,
            FaultKind::Remove => Fault::Remove { item: self.item() },
            FaultKind::Plant => Fault::Plant {
                item: self.item(),
                bytes: *self.stream.pick(&[1, 64, 65_600, 163_264]),
                forged: false,
            },
            FaultKind::HogPool => {
                let (host, permille) = (self.instance(), self.stream.between(300, 1_000));
                Fault::HogPool { host, permille, for_ms: self.short() }
            }
            FaultKind::Close => Fault::Close { host: self.instance() },
            FaultKind::Panic => {
                let (host, count, for_ms) = (self.instance(), self.count(), self.long());
                let op = *self.stream.pick(match host.starts_with("encoder") {
                    true => &[Op::PutStart, Op::Exists][..],
                    false => &[Op::Query, Op::Exists, Op::Size, Op::Remove],
                });
                Fault::Panic { host, op, count, for_ms }
            }
            FaultKind::FailCopy | FaultKind::SlowCopy | FaultKind::LateKernel => {
                self.device_fault(kind)
            }
            _ => self.operation_fault(kind),
        }
    }

    fn device_fault(&mut self, kind: FaultKind) -> Fault {
        let (host, count, for_ms) = (self.instance(), self.count(), self.long());
        match kind {
            FaultKind::FailCopy => Fault::FailCopy { host, count, for_ms },
            FaultKind::SlowCopy => {
                let direction = *self.stream.pick(&[Direction::Out, Direction::In]);
                let late_ms = self.stream.between(5, 300);
                Fault::SlowCopy { host, direction, late_ms, count, for_ms }
            }
            _ => {
                let late_ms = self.stream.between(5, 300);
                Fault::LateKernel { host, late_ms, count, for_ms }
            }
        }
    }

    fn operation_fault(&mut self, kind: FaultKind) -> Fault {
        let (host, count, for_ms) = (self.instance(), self.count(), self.long());
        let moment = *self.stream.pick(&[Moment::Before, Moment::After]);
        let op = match kind {
            FaultKind::LateWrite | FaultKind::Broken => self.transfer(&host),
            FaultKind::FlippedByte | FaultKind::ForeignBytes => self.transfer(&host),
            _ => self.call(&host),
        };
        match kind {
            FaultKind::Messages => {
                let by_ms = self.stream.between(5, 400);
                let transfer = matches!(op, Op::PutTransfer | Op::GetTransfer);
                let fate = *self.stream.pick(
                    &[
                        MessageFate::LoseRequest,
                        MessageFate::LoseReply,
                        MessageFate::Delay { by_ms },
                        MessageFate::DelayReply { by_ms },
                        MessageFate::Duplicate { after_ms: by_ms },
                    ][..if transfer { 4 } else { 5 }],
                );
                Fault::Messages { host, op, fate, item: None, count, for_ms }
            }
            FaultKind::StoreCode => {
                let all: Vec<i32> = ErrorCode::ALL.iter().map(|code| code.number()).collect();
                let any = self.stream.chance(1, 2);
                let code = *self.stream.pick(if any { &all[..] } else { &CODES });
                // A registration that fails shows when the instance starts again, the other at its end.
                let op = match self.stream.below(16) {
                    0 => Op::Register,
                    1 => Op::Unregister,
                    _ => op,
                };
                Fault::StoreCode { host, op, code, moment, item: None, count, for_ms }
            }
            FaultKind::Stall => {
                let stall_ms = self.stream.between(10, 1_000);
                Fault::Stall { host, op, stall_ms, item: None, count, for_ms }
            }
            FaultKind::Disconnect => Fault::Disconnect { host, op, moment, count, for_ms },
            FaultKind::Broken => {
                let bytes = self.stream.between(0, 100_000);
                Fault::Broken { host, op, bytes, count, for_ms }
            }
            FaultKind::LateWrite => {
                let late_ms = self.stream.between(10, 1_000);
                Fault::LateWrite { host, op, late_ms, item: None, count, for_ms }
            }
            FaultKind::ShortRead => {
                let missing = *self.stream.pick(&[1, 64, 512, 1 << 30]);
                Fault::ShortRead { host, missing, count, for_ms }
            }
            FaultKind::FlippedByte => {
                let position = self.stream.between(0, 200_000);
                Fault::FlippedByte { host, op, position, item: None, count, for_ms }
            }
            _ => Fault::ForeignBytes { host, op, count, for_ms },
        }
    }

    fn host(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let mut hosts = self.plan.hosts();
        hosts.retain(|host| wanted(host));
        self.stream.pick(&hosts).clone()
    }

    fn instance(&mut self) -> String {
        self.host(|host| host.starts_with("encoder") || host.starts_with("prefill"))
    }

    fn link(&mut self) -> (String, String) {
        let mut hosts = self.plan.hosts();
        self.stream.shuffle(&mut hosts);
        (hosts.swap_remove(0), hosts.swap_remove(0))
    }

    fn item(&mut self) -> String {
        let items = self.plan.items();
        let ids: Vec<&str> = items.into_keys().collect();
        if ids.is_empty() { "item000".to_owned() } else { (*self.stream.pick(&ids)).to_owned() }
    }

    /// A call that the connector of `host` makes.
    fn call(&mut self, host: &str) -> Op {
        let puts = [Op::PutStart, Op::PutTransfer, Op::PutEnd, Op::PutRevoke, Op::Exists];
        let gets = [Op::Query, Op::GetTransfer, Op::Exists, Op::Size, Op::Remove];
        *self.stream.pick(if host.starts_with("encoder") { &puts } else { &gets })
    }

    fn transfer(&mut self, host: &str) -> Op {
        if host.starts_with("encoder") { Op::PutTransfer } else { Op::GetTransfer }
    }

    fn count(&mut self) -> u32 {
        *self.stream.pick(&[1, 1, 2, 5, 20])
    }

    /// A length for what disturbs everything.
    fn short(&mut self) -> u64 {
        self.stream.between(10, 1_500).min(self.left_ms)
    }

    /// A length for what lies in wait.
    fn long(&mut self) -> u64 {
        self.stream.between(100, 3_000).min(self.left_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_seed_draws_a_plan_that_passes_its_check() {
        for seed in 0..300 {
            let plan = generate(seed);
            assert!(plan.check().is_ok(), "seed {seed}: {}", plan.check().unwrap_err());
            assert!(!plan.requests.is_empty() && !plan.faults.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn a_seed_always_draws_the_same_plan() {
        assert_eq!(generate(5), generate(5));
        assert_ne!(generate(5), generate(6));
    }

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let drawn: BTreeSet<FaultKind> = (0..300)
            .flat_map(|seed| generate(seed).faults)
            .map(|scheduled| scheduled.fault.kind())
            .collect();
        let missing: Vec<&FaultKind> =
            FaultKind::ALL.iter().filter(|kind| !drawn.contains(kind)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_kind_that_is_switched_off_is_never_drawn() {
        for seed in 0..100 {
            let without = generate_with(seed, &|kind| kind != FaultKind::Crash);
            assert!(without.faults.iter().all(|s| s.fault.kind() != FaultKind::Crash));
            let only = generate_with(seed, &|kind| kind == FaultKind::Pause);
            assert!(only.faults.iter().all(|s| s.fault.kind() == FaultKind::Pause));
            assert_eq!(only.requests, generate(seed).requests, "traffic does not depend on it");
            assert!(generate_with(seed, &|_| false).faults.is_empty());
        }
    }

    #[test]
    fn a_plan_survives_its_file() {
        let plan = generate(7);
        assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
    }

    #[test]
    fn the_plan_of_seed_7() {
        let mut plan = generate(7);
        plan.requests.truncate(3);
        insta::assert_snapshot!(plan.to_json());
    }
}
