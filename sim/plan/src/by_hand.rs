//! How plans are written by hand: small steps that change one.

use super::{Fault, Item, Plan, Request, Scheduled};

/// Rows of the usual item: 64 KiB of payload.
pub const ROWS: u64 = 1024;

impl Plan {
    /// The same plan with one thing changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A request for items of the usual size, at encoder 0 and prefill 0.
    #[must_use]
    pub fn ask(self, at_ms: u64, items: &[&str]) -> Self {
        self.ask_at(at_ms, items, 0, 0)
    }

    /// The same at other instances.
    #[must_use]
    pub fn ask_at(mut self, at_ms: u64, items: &[&str], encoder: u32, prefill: u32) -> Self {
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
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn but(mut self, change: impl FnOnce(&mut Request)) -> Self {
        change(self.requests.last_mut().expect("a request was added"));
        self
    }

    /// A fault.
    #[must_use]
    pub fn fault(mut self, at_ms: u64, fault: Fault) -> Self {
        self.faults.push(Scheduled { at_ms, fault });
        self
    }
}
