//! How orders end on a rank: what a worker has copied to its device, and what it has not.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{loads::bump, requests::OrderId};
use crate::{durations::Durations, env::DeviceError, pool::StaleHandle};

/// How one order ended on this rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The order.
    pub order: OrderId,
    /// `Ok` when the tensor holds the item; such orders are acknowledged to the scheduler.
    pub result: Result<(), DeliverError>,
}

/// Counts of what a worker has copied to its device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeliveryCounters {
    /// Orders that were copied.
    pub delivered: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Orders that were not, by [`DeliverError::name`].
    pub failed: BTreeMap<String, u64>,
    /// How long each took, copied or not.
    pub copy_in: Durations,
}

impl DeliveryCounters {
    /// Whether the counts add up.
    ///
    /// # Errors
    /// The sum that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let (failed, timed): (u64, u64) = (self.failed.values().sum(), self.copy_in.count());
        if self.delivered + failed == timed {
            return Ok(());
        }
        Err(format!("{} delivered + {failed} failed != {timed} timed", self.delivered))
    }

    pub(super) fn count(&mut self, result: &Result<(), DeliverError>, bytes: u64, took: Duration) {
        self.copy_in.record(took);
        match result {
            Ok(()) => {
                self.delivered += 1;
                self.bytes += bytes;
            }
            Err(error) => bump(&mut self.failed, error.name()),
        }
    }
}

/// An order that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliverError {
    /// This worker has no mapping of the scheduler's region.
    #[error("this worker maps no region")]
    NoRegion,
    /// The tensor is not what the order describes.
    #[error("expected a tensor of {expected}, got {got}")]
    Tensor {
        /// The order's type and shape.
        expected: String,
        /// The tensor's.
        got: String,
    },
    /// The memory has been reused: the scheduler did not keep its promise.
    #[error("{0}")]
    Stale(#[from] StaleHandle),
    /// The device did not copy.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// The device did not answer within the I/O timeout. The copy may still run.
    #[error("the device did not answer")]
    NoAnswer,
}

impl DeliverError {
    /// Name in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoRegion => "no_region",
            Self::Tensor { .. } => "tensor",
            Self::Stale(_) => "stale",
            Self::Device(_) => "device",
            Self::NoAnswer => "no_answer",
        }
    }
}
