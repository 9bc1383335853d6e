//! A node: the owner of one segment, which gives and takes its bytes.
//!
//! A transfer is opened (the node looks at its health, the address and its faults) and then carried in
//! steps over time. Nothing checks whether an object still lies at the address: a node moves bytes, only
//! the master knows objects. That is why a late transfer can overwrite a stranger.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use springtide::env::{Clock, ErrorCode};

use super::{Broken, Health, Pacing, Place, Sink, Source, Switch, act, pass, pause};
use crate::{
    faults::{Action, Faults, Occurrence, Point, RuleId, When},
    memory::{SegmentMemory, lock},
    protocol::{ClientId, Segment, SegmentId},
};

/// How a node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// How fast it moves bytes.
    pub pacing: Pacing,
    /// The clients' transfer limit, which late writes outlast.
    pub transfer_limit: Duration,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let transfer_limit = springtide::env::StoreError::MOONCAKE_TRANSFER_LIMIT;
        Self { pacing: Pacing::default(), transfer_limit }
    }
}

/// The owner of one segment.
#[derive(Debug)]
pub struct NodeService<C> {
    clock: C,
    faults: Faults,
    config: NodeConfig,
    health: Switch,
    owner: ClientId,
    segment: Segment,
    memory: SegmentMemory,
    slowdown: Mutex<u32>,
    pings_ok: AtomicBool,
    /// The last two objects written, so that foreign bytes can be those of a real object.
    written: Mutex<Vec<Written>>,
}

#[derive(Clone, Debug)]
struct Written {
    key: String,
    offset: u64,
    bytes: u64,
}

/// What a transfer says about itself when it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Tag {
    /// [`Point::Read`] or [`Point::Write`].
    pub(crate) point: Point,
    pub(crate) client: ClientId,
    pub(crate) key: String,
    /// Which replica of the object it is for.
    pub(crate) replica: usize,
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Tag {
    fn occurrence(&self, when: When) -> Occurrence<'_> {
        let Self { point, client, key, replica, .. } = self;
        Occurrence { point: *point, when, key, client: *client, replica: *replica }
    }
}

/// An opened transfer: what will go wrong with it is settled.
#[derive(Debug)]
pub(crate) struct Opened {
    tag: Tag,
    /// Bytes that will move: fewer than asked for in a short read.
    pub(crate) bytes: u64,
    /// What happens when so many bytes have moved.
    stop: Option<(u64, RuleId, Action)>,
    flip: Option<u64>,
    foreign: bool,
}

impl<C: Clock> NodeService<C> {
    /// A node with zeroed memory for `segment`, lent by `owner`.
    pub fn new(
        clock: C,
        faults: Faults,
        config: NodeConfig,
        owner: ClientId,
        segment: Segment,
    ) -> Self {
        Self {
            memory: SegmentMemory::new(segment.bytes),
            clock,
            faults,
            config,
            health: Switch::default(),
            owner,
            segment,
            slowdown: Mutex::new(1),
            pings_ok: AtomicBool::new(true),
            written: Mutex::new(Vec::new()),
        }
    }

    /// The client that lends the segment.
    pub fn owner(&self) -> ClientId {
        self.owner
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Stops or starts giving and taking bytes.
    pub fn set_health(&self, health: Health) {
        self.health.set(health);
    }

    /// Whether it gives and takes bytes.
    pub fn health(&self) -> Health {
        self.health.get()
    }

    /// Makes every transfer take so many times longer.
    pub fn set_slowdown(&self, times: u32) {
        *lock(&self.slowdown) = times.max(1);
    }

    /// Whether the owner's last ping was answered.
    pub fn pings_ok(&self) -> bool {
        self.pings_ok.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pings_ok(&self, ok: bool) {
        self.pings_ok.store(ok, Ordering::Relaxed);
    }

    /// Whoever moves a transfer's bytes on the segment's side.
    pub(crate) fn place(&self, tag: &Tag) -> Place<'_> {
        Place { memory: &self.memory, start: tag.offset }
    }

    /// Accepts a transfer, or not.
    pub(crate) async fn open(&self, tag: Tag) -> Result<Opened, Broken> {
        self.health.gate().await?;
        if tag.segment != self.segment.id || !self.memory.contains(tag.offset, tag.bytes) {
            return Err(Broken::Code(ErrorCode::TransferFail));
        }
        let bytes = tag.bytes;
        let due = self.faults.at(tag.occurrence(When::Before));
        let mut opened = Opened { tag, bytes, stop: None, flip: None, foreign: false };
        let Some(due) = due else { return Ok(opened) };
        let at = due.bytes.map(|at| at.min(bytes));
        match due.action {
            Action::PartialBytes(n) => {
                let fail = Action::fail(ErrorCode::TransferFail);
                opened.stop = Some((n.min(bytes), due.rule, fail));
            }
            Action::LateWrite(_) => {
                opened.stop = Some((at.unwrap_or(bytes / 2), due.rule, due.action));
            }
            Action::FlipByte(at) => opened.flip = Some(at.checked_rem(bytes).unwrap_or(0)),
            Action::ForeignBytes => opened.foreign = true,
            Action::ShortRead(n) => opened.bytes = bytes.saturating_sub(n),
            action => match at {
                None | Some(0) => self.stop(due.rule, action).await?,
                Some(at) => opened.stop = Some((at, due.rule, action)),
            },
        }
        Ok(opened)
    }

    /// Moves an opened transfer's bytes, `paced` by this node unless the other side does that. Returns how
    /// many moved.
    pub(crate) async fn carry(
        &self,
        opened: Opened,
        source: &mut impl Source,
        sink: &mut impl Sink,
        paced: bool,
    ) -> Result<u64, Broken> {
        let pacing = self.config.pacing;
        let Opened { tag, bytes, mut stop, flip, foreign } = opened;
        let mut chunk = vec![0; pacing.chunk().min(bytes.max(1) as usize)];
        let mut done = 0;
        if paced {
            self.wait(pacing.latency).await;
        }
        loop {
            if let Some((_, rule, action)) = stop.take_if(|(at, ..)| *at == done) {
                self.stop(rule, action).await?;
            }
            if done == bytes {
                break;
            }
            let until = stop.map_or(bytes, |(at, ..)| at);
            let step = (until - done).min(chunk.len() as u64) as usize;
            self.health.gate().await?;
            if paced {
                self.wait(pacing.time(step)).await;
            }
            let part = &mut chunk[..step];
            source.fill(done, part).await.map_err(|_| Broken::Disconnected)?;
            if foreign {
                self.make_foreign(&tag.key, done, part);
            }
            if let Some(at) = flip.filter(|at| (done..done + step as u64).contains(at)) {
                part[(at - done) as usize] ^= 0xFF;
            }
            sink.store(done, part).await.map_err(|_| Broken::Disconnected)?;
            done += step as u64;
        }
        if tag.point == Point::Write {
            self.remember(&tag);
        }
        pass(&self.clock, &self.faults, tag.occurrence(When::After)).await?;
        Ok(done)
    }

    async fn stop(&self, rule: RuleId, action: Action) -> Result<(), Broken> {
        let action = match action {
            Action::Stall => self.faults.hold(rule).await,
            Action::LateWrite(after) => Some(Action::Delay(self.config.transfer_limit + after)),
            action => Some(action),
        };
        act(&self.clock, action).await
    }

    async fn wait(&self, duration: Duration) {
        let slowdown = *lock(&self.slowdown);
        pause(&self.clock, duration.saturating_mul(slowdown)).await;
    }

    fn remember(&self, tag: &Tag) {
        let mut written = lock(&self.written);
        written.retain(|other| other.key != tag.key);
        written.push(Written { key: tag.key.clone(), offset: tag.offset, bytes: tag.bytes });
        if written.len() > 2 {
            written.remove(0);
        }
    }

    /// Turns a part of an object into what lies in another one's place, or at least into something else.
    fn make_foreign(&self, key: &str, done: u64, part: &mut [u8]) {
        let other = lock(&self.written).iter().rfind(|other| other.key != key).cloned();
        for (i, byte) in part.iter_mut().enumerate() {
            let mut foreign = [!*byte];
            if let Some(other) = &other {
                let at = other.offset + (done + i as u64) % other.bytes.max(1);
                // An address that was written lies in the segment.
                self.memory.read(at, &mut foreign).expect("a written place");
            }
            *byte = foreign[0];
        }
    }
}
