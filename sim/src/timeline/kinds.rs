//! What events are about, and which of them nobody wishes for.

use serde::Serialize;

use crate::event::{Check, Event, RequestEnd, TransferEnd};

/// What a span or an event is about. Spans of one kind stand together in the lane of their host, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A phase of the run.
    Phase,
    /// A fault, from its beginning to its end.
    Fault,
    /// A request, from when it is sent until its client is done with it.
    Request,
    /// An item in the producer's connector, from its ticket to the report.
    Save,
    /// The engine waits for its saves.
    Wait,
    /// A put, while the pool's memory is lent to the store client.
    Put,
    /// A consumer's request waits for its items.
    Ask,
    /// A get, while the pool's memory is lent to the store client.
    Get,
    /// A promised item, until every worker has it.
    Load,
    /// Memory of a transfer of which nobody knows whether it still runs.
    Quarantine,
    /// An object, from when the store has it until it is lost.
    Object,
    /// A connector's shutdown.
    Close,
    /// Starts, deaths and pauses.
    Host,
    /// Accounts of pools and counters.
    Pool,
}

/// How well something went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// As wished.
    Fine,
    /// Not as wished.
    Bad,
    /// Its host was killed.
    Cut,
    /// Not ended when the run did.
    Open,
}

/// What an event is about.
pub(super) fn kind(event: &Event) -> Kind {
    match event {
        Event::Phase(_) => Kind::Phase,
        Event::FaultBegan { .. } | Event::FaultEnded { .. } => Kind::Fault,
        Event::RequestSent { .. } | Event::RequestEnded { .. } => Kind::Request,
        Event::SaveOpened { .. } | Event::SaveEnded { .. } | Event::NotReported { .. } => {
            Kind::Save
        }
        Event::WaitBegan { .. } | Event::WaitEnded { .. } => Kind::Wait,
        Event::Waiting { .. } | Event::Miss { .. } => Kind::Ask,
        Event::Hit { .. } | Event::Delivered { .. } | Event::NotDelivered { .. } => Kind::Load,
        Event::Stored { .. } | Event::Lost { .. } => Kind::Object,
        Event::TransferBegan { put, .. } | Event::TransferEnded { put, .. } => {
            if *put {
                Kind::Put
            } else {
                Kind::Get
            }
        }
        Event::PoolSeen { .. }
        | Event::AtRest { .. }
        | Event::Counted { .. }
        | Event::Bound { .. } => Kind::Pool,
        Event::CloseBegan { .. } | Event::CloseEnded { .. } => Kind::Close,
        Event::Paused(_)
        | Event::Disturbed(_)
        | Event::Started
        | Event::Killed
        | Event::Degraded { .. }
        | Event::Panicked(_)
        | Event::EngineDied { .. } => Kind::Host,
    }
}

/// Whether an event is one that nobody wishes for, allowed or not.
pub(super) fn is_bad(event: &Event) -> bool {
    match event {
        Event::Killed
        | Event::Degraded { .. }
        | Event::Panicked(_)
        | Event::EngineDied { .. }
        | Event::NotReported { .. }
        | Event::Miss { .. }
        | Event::NotDelivered { .. }
        | Event::RequestEnded { end: RequestEnd::Failed(_), .. } => true,
        Event::SaveEnded { end, .. } => !end.is_saved(),
        Event::Delivered { check, .. } => *check != Check::Equal,
        Event::TransferEnded { end: TransferEnd::Ended(result), .. } => result != "ok",
        Event::TransferEnded { .. } => true,
        Event::PoolSeen { verified, .. } => verified.is_err(),
        Event::Counted { own, pairs } => own.is_err() || pairs.iter().any(|(_, a, b)| a != b),
        Event::Bound { limit, seen, .. } => seen > limit,
        _ => false,
    }
}
