//! How a put is replicated, with owned names.

use std::{
    ffi::{CString, c_char},
    num::NonZeroUsize,
};

use crate::types::ReplicateConfig;

/// Copies and pins of the objects of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Number of copies; the store keeps fewer if there are fewer segments.
    pub replicas: NonZeroUsize,
    /// Evict only when nothing without a pin is left (the master's soft pin time applies).
    pub soft_pin: bool,
    /// Never evict.
    pub hard_pin: bool,
    /// Segments (each the `local_hostname` of its owner) to place copies on first, in this order. Unknown
    /// names are ignored by the store.
    pub preferred_segments: Vec<CString>,
}

impl Default for Replication {
    /// One replica, no pins, no preference.
    fn default() -> Self {
        let replicas = NonZeroUsize::MIN;
        Self { replicas, soft_pin: false, hard_pin: false, preferred_segments: Vec::new() }
    }
}

impl Replication {
    /// Calls `f` with the C view, which is valid for the call only.
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const ReplicateConfig) -> R) -> R {
        let names: Vec<*const c_char> =
            self.preferred_segments.iter().map(|name| name.as_ptr()).collect();
        let config = ReplicateConfig {
            replica_num: self.replicas.get(),
            with_soft_pin: self.soft_pin.into(),
            with_hard_pin: self.hard_pin.into(),
            preferred_segments: names.as_ptr(),
            preferred_segments_count: names.len(),
        };
        f(&config)
    }
}
