//! How scenarios are written: a base plan, which [`Plan`]'s own small steps change, and the usual faults.

pub(super) use crate::plan::ROWS;
use crate::plan::{Fault, Moment, Op, Plan, Workload};

/// Bytes of a block that holds such an item with its header: 128 units of 512 + 64.
pub(super) const BLOCK: u64 = 128 * 576;
/// Bytes of the units that such an item really takes, as extents.
pub(super) const TAKEN: u64 = 114 * 576;

/// The plan that scenarios begin with: one instance of each kind, faults from 0.2 s to 3.2 s.
pub(super) fn base(name: &str) -> Plan {
    let mut plan = Plan::base(name, Workload::W6);
    // Room for what a scenario has; more would only be looked at.
    (plan.connector.encoder_pool_bytes, plan.connector.prefill_pool_bytes) = (4 << 20, 4 << 20);
    plan.phases.warm_up_ms = 200;
    plan.phases.inject_ms = 3_000;
    plan.phases.heal_ms = 300;
    plan.phases.settle_ms = 5_000;
    plan.phases.verify_ms = 400;
    plan.phases.close_ms = 600;
    plan
}

/// One store call of `op` stands still.
pub(super) fn stall(host: String, op: Op, stall_ms: u64) -> Fault {
    Fault::Stall { host, op, stall_ms, item: None, count: 1, for_ms: 2_000 }
}

/// One store call of `op` for any item fails before its effect.
pub(super) fn fails(host: String, op: Op, code: i32) -> Fault {
    let moment = Moment::Before;
    Fault::StoreCode { host, op, code, moment, item: None, count: 1, for_ms: 2_000 }
}

/// The name of the only encoder.
pub(super) fn encoder() -> String {
    "encoder0".to_owned()
}

/// The name of the first prefill instance.
pub(super) fn prefill() -> String {
    "prefill0".to_owned()
}
