//! The words of the timeline, one line an event. The trace hash covers them, so they hold nothing that
//! differs between machines.

use std::fmt;

use springtide::pool::Usage;

use super::{Check, Event, RequestEnd, SaveEnd, TransferEnd};

impl fmt::Display for SaveEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored => f.write_str("stored"),
            Self::AlreadyThere => f.write_str("already there"),
            Self::Dropped(reason) => write!(f, "dropped: {reason}"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

impl fmt::Display for RequestEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Aborted => f.write_str("aborted"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => f.write_str("equal"),
            Self::Spec { expected } => write!(f, "expected {expected}"),
            Self::Bytes { first } => write!(f, "differs from byte {first} on"),
            Self::Foreign => f.write_str("another model's bytes"),
        }
    }
}

impl fmt::Display for TransferEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(result) => f.write_str(result),
            Self::SourceChanged => f.write_str("source changed while it was sent"),
            Self::Uncertain(error) => write!(f, "uncertain: {error}"),
        }
    }
}

impl fmt::Display for Event {
    /// The event as a line of the timeline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = |result: &Result<(), String>| match result {
            Ok(()) => "consistent".to_owned(),
            Err(what) => format!("inconsistent: {what}"),
        };
        let put_or_get = |put: &bool| if *put { "put" } else { "get" };
        match self {
            Self::Phase(name) => write!(f, "== {name} =="),
            Self::FaultBegan { text, .. } => write!(f, "fault begins: {text}"),
            Self::FaultEnded { text, .. } => write!(f, "fault ends: {text}"),
            Self::Paused(on) => f.write_str(if *on { "paused" } else { "resumed" }),
            Self::Disturbed(on) => f.write_str(if *on { "link disturbed" } else { "link whole" }),
            Self::Started => f.write_str("started"),
            Self::Killed => f.write_str("killed"),
            Self::Degraded { reason } => write!(f, "runs without a connector: {reason}"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::RequestSent { request, visits: [encoder, prefill] } => {
                write!(f, "request {request} sent, visits {encoder}, {prefill}")
            }
            Self::RequestEnded { request, end } => write!(f, "request {request} {end}"),
            Self::SaveOpened { key, ticket } => write!(f, "save {key} opens ticket {ticket}"),
            Self::SaveEnded { key, ticket, end } => write!(f, "save {key} ticket {ticket}: {end}"),
            Self::NotReported { key, ticket } => {
                write!(f, "save {key} ticket {ticket}: not in the report")
            }
            Self::WaitBegan { deadline } => write!(f, "wait until {deadline}"),
            Self::WaitEnded { deadline } => write!(f, "wait until {deadline} returns"),
            Self::Waiting { request } => write!(f, "request {request} waits for its items"),
            Self::Hit { request, key } => write!(f, "request {request} hit {key}"),
            Self::Miss { request, key, reason, asked } => {
                write!(f, "request {request} miss {key}: {reason} (asked {asked})")
            }
            Self::Delivered { key, rank, spec, check } => {
                write!(f, "delivered {key} {spec} to rank {rank}: {check}")
            }
            Self::NotDelivered { key, rank, reason } => {
                write!(f, "not delivered {key} to rank {rank}: {reason}")
            }
            Self::EngineDied { reason } => write!(f, "engine died: {reason}"),
            Self::Stored { key, bytes } => write!(f, "store has {key}, {bytes} bytes"),
            Self::Lost { key, cause } => write!(f, "store lost {key}: {cause}"),
            Self::TransferBegan { key, bytes, put } => {
                write!(f, "{} {key} of {bytes} bytes begins", put_or_get(put))
            }
            Self::TransferEnded { key, bytes, put, end } => {
                write!(f, "{} {key} of {bytes} bytes: {end}", put_or_get(put))
            }
            Self::PoolSeen { usage, verified } => {
                write!(f, "pool {}, {}", Accounts(usage), outcome(verified))
            }
            Self::AtRest { usage, abandoned } => {
                write!(f, "at rest, {abandoned} abandoned, pool {}", Accounts(usage))
            }
            Self::Counted { own, pairs } => {
                write!(f, "counters {}", outcome(own))?;
                pairs.iter().try_for_each(|(what, connector, simulator)| {
                    write!(f, ", {what} {connector}/{simulator}")
                })
            }
            Self::Bound { what, limit, seen } => write!(f, "bound {what}: {seen} of {limit}"),
            Self::CloseBegan { deadline } => write!(f, "close until {deadline}"),
            Self::CloseEnded { deadline } => write!(f, "close until {deadline} returns"),
        }
    }
}

/// The accounts of a pool on one line.
struct Accounts<'a>(&'a Usage);

impl fmt::Display for Accounts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { total, filling, in_flight, resident, pinned, quarantined, counters, .. } =
            self.0;
        write!(
            f,
            "{total} bytes: filling {filling}, in flight {in_flight}, resident {resident} (pinned \
             {pinned}), quarantined {quarantined}, evictions {}, violations {}",
            counters.evictions,
            counters.poison_violations + counters.guard_violations,
        )
    }
}
