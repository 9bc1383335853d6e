//! From events to spans: which event ends what another one began.
//!
//! A killed host ends all that it was about to do. What two events say about the same thing at the same time
//! (two puts of one object) is paired in order. An end whose beginning was not seen stays a mere event.

use std::{collections::BTreeMap, mem};

use serde::Serialize;

use super::{
    bands::Band,
    kinds::{Kind, Tone, is_bad},
};
use crate::{
    event::{Event, TransferEnd},
    plan::Plan,
    recorder::Recorded,
};

/// Something that lasted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// On which host.
    pub host: usize,
    /// What it is.
    pub kind: Kind,
    /// Row among those of its host and kind: what is parallel has different ones.
    pub row: usize,
    /// The object.
    pub key: Option<usize>,
    /// What it is called.
    pub name: String,
    /// When it began.
    pub start_us: u64,
    /// When it ended.
    pub end_us: Option<u64>,
    /// The event that began it.
    pub began: u64,
    /// The event that ended it.
    pub ended: Option<u64>,
    /// How it went.
    pub tone: Tone,
}

/// What an end has in common with its beginning, besides the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pair {
    Fault(String),
    Request(u32),
    Save(String, String),
    Wait(u64),
    Transfer(String, bool),
    Ask(u32),
    Load(String),
    Quarantine,
    Object(String),
    Close(u64),
}

/// Spans while the events come in.
pub(super) struct Spans {
    pub(super) hosts: Vec<String>,
    keys: Vec<String>,
    key_index: BTreeMap<String, usize>,
    workers: u32,
    spans: Vec<Span>,
    pub(super) bands: Vec<Band>,
    /// Open spans, the oldest first.
    open: BTreeMap<(usize, Pair), Vec<usize>>,
    /// Workers that have had their share of a promised item.
    served: BTreeMap<usize, u32>,
}

/// When and by which event.
pub(super) type At = (u64, u64);

impl Spans {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut hosts = vec!["world".to_owned()];
        hosts.extend(plan.hosts());
        Self {
            hosts,
            keys: Vec::new(),
            key_index: BTreeMap::new(),
            workers: plan.topology.tensor_parallel,
            spans: Vec::new(),
            bands: Vec::new(),
            open: BTreeMap::new(),
            served: BTreeMap::new(),
        }
    }

    pub(super) fn host(&mut self, name: &str) -> usize {
        self.hosts.iter().position(|host| host == name).unwrap_or_else(|| {
            self.hosts.push(name.to_owned());
            self.hosts.len() - 1
        })
    }

    pub(super) fn key(&mut self, name: &str) -> usize {
        *self.key_index.entry(name.to_owned()).or_insert_with(|| {
            self.keys.push(name.to_owned());
            self.keys.len() - 1
        })
    }

    /// Takes the next event; tells how well it is.
    pub(super) fn take(&mut self, at: u64, recorded: &Recorded) -> Tone {
        let host = self.host(&recorded.host);
        let at = (at, recorded.number);
        let event = &recorded.event;
        match event {
            Event::FaultBegan { .. }
            | Event::FaultEnded { .. }
            | Event::Paused(_)
            | Event::Disturbed(_)
            | Event::Started
            | Event::Killed
            | Event::Degraded { .. } => self.condition(at, host, event),
            _ => self.work(at, host, event),
        }
        if is_bad(event) { Tone::Bad } else { Tone::Fine }
    }

    /// What hosts do.
    fn work(&mut self, at: At, host: usize, event: &Event) {
        let tone = if is_bad(event) { Tone::Bad } else { Tone::Fine };
        match event {
            Event::RequestSent { request, .. } => {
                let name = format!("request {request}");
                self.begin(at, host, Kind::Request, Pair::Request(*request), None, name);
            }
            Event::RequestEnded { request, .. } => {
                self.end(at, host, &Pair::Request(*request), tone);
                // One that was answered in another way, or given up, waits no longer.
                let pair = Pair::Ask(*request);
                (0..self.hosts.len()).for_each(|host| self.end_all(at, host, &pair));
            }
            Event::SaveOpened { key, ticket } => {
                let pair = Pair::Save(key.clone(), ticket.clone());
                self.begin(at, host, Kind::Save, pair, Some(key), format!("{key} {ticket}"));
            }
            Event::SaveEnded { key, ticket, .. } => {
                self.end(at, host, &Pair::Save(key.clone(), ticket.clone()), tone);
            }
            Event::WaitBegan { deadline } => {
                let pair = Pair::Wait(deadline.as_millis());
                self.begin(at, host, Kind::Wait, pair, None, format!("until {deadline}"));
            }
            Event::WaitEnded { deadline } => {
                self.end(at, host, &Pair::Wait(deadline.as_millis()), tone);
            }
            Event::CloseBegan { deadline } => {
                let pair = Pair::Close(deadline.as_millis());
                self.begin(at, host, Kind::Close, pair, None, format!("until {deadline}"));
            }
            Event::CloseEnded { deadline } => {
                self.end(at, host, &Pair::Close(deadline.as_millis()), tone);
            }
            Event::Stored { key, .. } => {
                // What replaces an object ends the one that was there.
                self.end(at, host, &Pair::Object(key.clone()), Tone::Fine);
                let pair = Pair::Object(key.clone());
                self.begin(at, host, Kind::Object, pair, Some(key), key.clone());
            }
            Event::Lost { key, .. } => self.end(at, host, &Pair::Object(key.clone()), Tone::Fine),
            Event::PoolSeen { usage, .. } | Event::AtRest { usage, .. }
                if usage.quarantined == 0 =>
            {
                self.end_all(at, host, &Pair::Quarantine);
            }
            _ => self.transfer(at, host, event, tone),
        }
    }

    /// What the consumer does, and transfers of both sides.
    fn transfer(&mut self, at: At, host: usize, event: &Event, tone: Tone) {
        match event {
            Event::Waiting { request } => {
                let name = format!("request {request}");
                self.begin(at, host, Kind::Ask, Pair::Ask(*request), None, name);
            }
            Event::Hit { request, key } => {
                self.end(at, host, &Pair::Ask(*request), tone);
                let pair = Pair::Load(key.clone());
                self.begin(at, host, Kind::Load, pair, Some(key), key.clone());
            }
            Event::Miss { request, .. } => {
                self.end(at, host, &Pair::Ask(*request), tone);
            }
            Event::Delivered { key, .. } | Event::NotDelivered { key, .. } => {
                self.deliver(at, host, key, tone);
            }
            Event::TransferBegan { key, bytes, put } => {
                let kind = if *put { Kind::Put } else { Kind::Get };
                let pair = Pair::Transfer(key.clone(), *put);
                self.begin(at, host, kind, pair, Some(key), format!("{key} {bytes} bytes"));
            }
            Event::TransferEnded { key, put, end, .. } => {
                self.end(at, host, &Pair::Transfer(key.clone(), *put), tone);
                if matches!(end, TransferEnd::Uncertain(_)) {
                    let (pair, name) = (Pair::Quarantine, key.clone());
                    self.begin(at, host, Kind::Quarantine, pair, Some(key), name);
                }
            }
            _ => {}
        }
    }

    /// One worker has had a promised item, or not: all requests that it was promised to have had it by then.
    fn deliver(&mut self, at: At, host: usize, key: &str, tone: Tone) {
        let slot = (host, Pair::Load(key.to_owned()));
        let Some(open) = self.open.get_mut(&slot) else { return };
        let (workers, served) = (self.workers, &mut self.served);
        let done: Vec<usize> = open
            .extract_if(.., |span| {
                let served = served.entry(*span).or_default();
                *served += 1;
                *served >= workers || tone == Tone::Bad
            })
            .collect();
        done.into_iter().for_each(|span| self.close(at, span, tone));
    }

    pub(super) fn begin(
        &mut self,
        (at, number): At,
        host: usize,
        kind: Kind,
        pair: Pair,
        key: Option<&str>,
        name: String,
    ) {
        let key = key.map(|key| self.key(key));
        self.open.entry((host, pair)).or_default().push(self.spans.len());
        self.spans.push(Span {
            host,
            kind,
            row: 0,
            key,
            name,
            start_us: at,
            end_us: None,
            began: number,
            ended: None,
            tone: Tone::Open,
        });
    }

    /// Ends the oldest open span of the pair.
    pub(super) fn end(&mut self, at: At, host: usize, pair: &Pair, tone: Tone) {
        let open = self.open.get_mut(&(host, pair.clone()));
        if let Some(open) = open.filter(|open| !open.is_empty()) {
            let span = open.remove(0);
            self.close(at, span, tone);
        }
    }

    fn end_all(&mut self, at: At, host: usize, pair: &Pair) {
        for span in self.open.remove(&(host, pair.clone())).unwrap_or_default() {
            self.close(at, span, Tone::Fine);
        }
    }

    /// A host dies, and all that it was about to do. What the store has does not end with its master: the
    /// store's own history tells what is lost.
    pub(super) fn cut(&mut self, at: At, host: usize) {
        let of_host = |(owner, pair): &(usize, Pair)| {
            *owner == host && !matches!(pair, Pair::Object(_) | Pair::Fault(_))
        };
        let cut: Vec<_> = self.open.extract_if(.., |slot, _| of_host(slot)).collect();
        for span in cut.into_iter().flat_map(|(_, spans)| spans) {
            self.close(at, span, Tone::Cut);
        }
    }

    fn close(&mut self, (at, number): At, span: usize, tone: Tone) {
        let span = &mut self.spans[span];
        (span.end_us, span.ended, span.tone) = (Some(at), Some(number), tone);
    }

    /// Hosts, keys, spans with their rows, and bands.
    pub(super) fn finish(mut self) -> (Vec<String>, Vec<String>, Vec<Span>, Vec<Band>) {
        let spans = rows(mem::take(&mut self.spans));
        (self.hosts, self.keys, spans, self.bands)
    }
}

/// Gives each span, in the order of their beginnings, the first row in which nothing else is under way.
fn rows(mut spans: Vec<Span>) -> Vec<Span> {
    let mut free_from: BTreeMap<(usize, Kind), Vec<u64>> = BTreeMap::new();
    for span in &mut spans {
        let rows = free_from.entry((span.host, span.kind)).or_default();
        span.row = rows.iter().position(|free| *free <= span.start_us).unwrap_or(rows.len());
        let end = span.end_us.unwrap_or(u64::MAX);
        match rows.get_mut(span.row) {
            Some(free) => *free = end,
            None => rows.push(end),
        }
    }
    spans
}
