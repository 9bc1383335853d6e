//! How scenarios are written: a base plan and small steps to change it.

use crate::plan::{Fault, Item, Moment, Op, Plan, Request, Scheduled, Workload};

/// Rows of a scenario's usual item: 64 KiB of payload.
pub(super) const ROWS: u64 = 1024;
/// Bytes of a block that holds such an item with its header: 128 units of 512 + 64.
pub(super) const BLOCK: u64 = 128 * 576;
/// Bytes of the units that such an item really takes, as extents.
pub(super) const TAKEN: u64 = 114 * 576;

/// The plan that scenarios begin with: one instance of each kind, faults from 0.2 s to 3.2 s.
pub(super) fn base(name: &str) -> Plan {
    let mut plan = Plan::base(name, Workload::W6);
    plan.phases.warm_up_ms = 200;
    plan.phases.inject_ms = 3_000;
    plan.phases.heal_ms = 300;
    plan.phases.settle_ms = 5_000;
    plan.phases.verify_ms = 400;
    plan.phases.close_ms = 600;
    plan
}

impl Plan {
    /// The same plan with one thing changed.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A request for items of the usual size, at encoder 0 and prefill 0.
    pub(super) fn ask(self, at_ms: u64, items: &[&str]) -> Self {
        self.ask_at(at_ms, items, 0, 0)
    }

    /// The same at other instances.
    pub(super) fn ask_at(mut self, at_ms: u64, items: &[&str], encoder: u32, prefill: u32) -> Self {
        let item = |id: &&str| Item { id: (*id).to_owned(), rows: ROWS };
        self.requests.push(Request {
            at_ms,
            encoder,
            prefill,
            items: items.iter().map(item).collect(),
            decode_steps: 1,
            abort_after_ms: None,
            preempt: false,
            early: false,
        });
        self
    }

    /// Changes the request that was added last.
    pub(super) fn but(mut self, change: impl FnOnce(&mut Request)) -> Self {
        change(self.requests.last_mut().expect("a request was added"));
        self
    }

    /// A fault.
    pub(super) fn fault(mut self, at_ms: u64, fault: Fault) -> Self {
        self.faults.push(Scheduled { at_ms, fault });
        self
    }
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
