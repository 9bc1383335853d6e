//! The two servers of a store without their sockets: the master with its clock and faults, and a node that
//! lends a segment.
//!
//! The in-process transport calls them directly, the network servers frame their calls. Both pass the same
//! fault points and the same health switch, so a scenario means the same in either form.

mod carry;
mod master;
mod node;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use springtide::env::{Clock, ErrorCode};
use tokio::sync::watch;

pub(crate) use self::carry::{Memory, Place, Sink, Source};
pub(crate) use self::{master::Answer, node::Tag};
pub use self::{
    master::MasterService,
    node::{NodeConfig, NodeService},
};
use crate::faults::{Action, Faults, Occurrence};

/// What a server does with whoever calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Health {
    /// Answers.
    #[default]
    Up,
    /// Its process is gone: connections are refused.
    Refused,
    /// Its process is stopped: calls are taken and executed once it is up again.
    Hung,
}

/// How fast bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pacing {
    /// Before the first byte of each transfer.
    #[serde(rename = "latency_ms", with = "crate::millis")]
    pub latency: Duration,
    /// Bytes per second of each transfer; no limit if absent.
    pub bytes_per_sec: Option<u64>,
    /// Bytes that move at once: the caller's memory is read or written in such steps.
    pub chunk_bytes: usize,
}

impl Default for Pacing {
    /// As fast as it goes, 64 KiB at a time.
    fn default() -> Self {
        Self { latency: Duration::ZERO, bytes_per_sec: None, chunk_bytes: 64 << 10 }
    }
}

impl Pacing {
    /// The time that `bytes` take.
    pub(crate) fn time(&self, bytes: usize) -> Duration {
        let rate = self.bytes_per_sec.map_or(u64::MAX, |rate| rate.max(1));
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn chunk(&self) -> usize {
        self.chunk_bytes.clamp(1, CHUNK_BYTES_MAX)
    }
}

/// The largest step of a transfer.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Why an operation got no good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It was answered with a code.
    Code(ErrorCode),
    /// It is never answered.
    Silent,
    /// The connection ended.
    Disconnected,
}

/// Waits for `duration`; not at all if there is none.
pub(crate) async fn pause<C: Clock>(clock: &C, duration: Duration) {
    if duration > Duration::ZERO {
        clock.sleep(duration).await;
    }
}

/// A switch that everything which a server does looks at.
#[derive(Debug, Default)]
pub(crate) struct Switch(watch::Sender<Health>);

impl Switch {
    pub(crate) fn set(&self, health: Health) {
        self.0.send_replace(health);
    }

    pub(crate) fn get(&self) -> Health {
        *self.0.borrow()
    }

    /// Goes on while up, waits while hung.
    pub(crate) async fn gate(&self) -> Result<(), Broken> {
        let mut health = self.0.subscribe();
        // The sender lives as long as `self`.
        let settled = health.wait_for(|health| *health != Health::Hung).await;
        match settled.map(|health| *health) {
            Ok(Health::Up) => Ok(()),
            _ => Err(Broken::Disconnected),
        }
    }
}

/// Passes a fault point of anything that moves no bytes.
pub(crate) async fn pass<C: Clock>(
    clock: &C,
    faults: &Faults,
    occurrence: Occurrence<'_>,
) -> Result<(), Broken> {
    let Some(due) = faults.at(occurrence) else { return Ok(()) };
    let action = match due.action {
        Action::Stall => faults.hold(due.rule).await,
        action => Some(action),
    };
    act(clock, action).await
}

/// Carries out what needs no bytes.
pub(crate) async fn act<C: Clock>(clock: &C, action: Option<Action>) -> Result<(), Broken> {
    match action {
        Some(Action::Fail(code)) => Err(Broken::Code(code.0)),
        Some(Action::DropReply) => Err(Broken::Silent),
        Some(Action::Disconnect) => Err(Broken::Disconnected),
        Some(Action::Delay(duration)) => {
            pause(clock, duration).await;
            Ok(())
        }
        _ => Ok(()),
    }
}
