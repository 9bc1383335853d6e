//! What a CUDA driver and its devices do with streams and events, as far as order matters.
//!
//! Work is added to streams and done only when the test says so (`FakeCuda::run`), so everything is late. Each
//! piece of work knows what comes before it: the work of its stream, of the events that its stream waits for, and
//! of the events that the host has seen. Two pieces that touch the same bytes, one of them writing, and of which
//! neither comes before the other, are a race: reported when the second is added, whatever order they happen to
//! be done in.

use std::collections::{BTreeMap, VecDeque};

use springtide::runtime::cuda::{Context, CudaError, Event, Ordinal, Result, Stream};

/// How far each stream must have come.
pub(super) type Clock = BTreeMap<u64, u64>;

/// Whose bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Host,
    Device(Ordinal),
}

/// Bytes that a piece of work touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) space: Space,
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) writes: bool,
}

impl Access {
    fn meets(&self, other: &Self) -> bool {
        self.space == other.space && self.at < other.at + other.len && other.at < self.at + self.len
    }
}

pub(super) enum Work {
    /// Copies between host and device when it is done.
    CopyOut {
        from: u64,
        to: usize,
        len: usize,
    },
    CopyIn {
        from: usize,
        to: u64,
        len: usize,
    },
    /// Fills device memory, once it has been let go.
    Kernel {
        number: u64,
        fill: Option<(u64, u64, u8)>,
    },
    Wait {
        stream: u64,
        position: u64,
    },
}

struct Added {
    position: u64,
    work: Work,
    accesses: Vec<Access>,
}

struct Past {
    what: &'static str,
    stream: u64,
    position: u64,
    access: Access,
}

struct Lane {
    ordinal: Ordinal,
    clock: Clock,
    queue: VecDeque<Added>,
    added: u64,
    done: u64,
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) shares: BTreeMap<Ordinal, u32>,
    lanes: BTreeMap<u64, Lane>,
    events: BTreeMap<u64, Option<(u64, u64, Clock)>>,
    blocks: BTreeMap<u64, (Ordinal, Vec<u8>)>,
    locked: BTreeMap<u64, u64>,
    past: Vec<Past>,
    /// What the host has seen come.
    host: Clock,
    released: Vec<u64>,
    /// Calls that will fail: how many come before it, and the code.
    pub(super) failures: BTreeMap<&'static str, (u32, i32)>,
    pub(super) violations: Vec<String>,
    numbers: u64,
}

/// What is to be copied between memories when work is done.
pub(super) enum Move {
    Out { bytes: Vec<u8>, to: usize },
    In { from: usize, to: u64, len: usize },
}

impl Model {
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn violation(&mut self, text: impl Into<String>) {
        self.violations.push(text.into());
    }

    /// Whether a call that is to fail is this one.
    pub(super) fn fails(&mut self, call: &'static str) -> Result<()> {
        match self.failures.remove(call) {
            None => Ok(()),
            Some((0, code)) => Err(error(call, code)),
            Some((before, code)) => {
                self.failures.insert(call, (before - 1, code));
                Ok(())
            }
        }
    }

    /// The device of a context that somebody has a share in.
    pub(super) fn current(&self, call: &'static str, context: Context) -> Result<Ordinal> {
        let ordinal = Ordinal(context.0 as i32 - FIRST_CONTEXT);
        self.shares
            .contains_key(&ordinal)
            .then_some(ordinal)
            .ok_or_else(|| error(call, INVALID_CONTEXT))
    }

    pub(super) fn add_stream(&mut self, ordinal: Ordinal) -> Stream {
        let number = self.number();
        let lane = Lane { ordinal, clock: Clock::new(), queue: VecDeque::new(), added: 0, done: 0 };
        self.lanes.insert(number, lane);
        Stream(number)
    }

    fn lane(&mut self, call: &'static str, context: Context, stream: Stream) -> Result<&mut Lane> {
        let ordinal = self.current(call, context)?;
        if stream.0 == 0 {
            self.violation(format!("{call} on the default stream"));
            self.lanes.entry(0).or_insert_with(|| Lane {
                ordinal,
                clock: Clock::new(),
                queue: VecDeque::new(),
                added: 0,
                done: 0,
            });
        }
        let lane = self.lanes.get_mut(&stream.0).filter(|lane| lane.ordinal == ordinal);
        lane.ok_or_else(|| error(call, INVALID_HANDLE))
    }

    pub(super) fn end_stream(&mut self, context: Context, stream: Stream) -> Result<()> {
        let is_busy = !self.lane("cuStreamDestroy", context, stream)?.queue.is_empty();
        if is_busy {
            self.violation("a stream was destroyed under its work");
        }
        self.lanes.remove(&stream.0);
        Ok(())
    }

    pub(super) fn release(&mut self, ordinal: Ordinal) -> Result<()> {
        let Some(shares) = self.shares.get_mut(&ordinal) else {
            return Err(error("cuDevicePrimaryCtxRelease", INVALID_CONTEXT));
        };
        *shares -= 1;
        if *shares == 0 {
            self.shares.remove(&ordinal);
            if self.lanes.values().any(|lane| lane.ordinal == ordinal) {
                self.violation("a context was released before its streams");
            }
        }
        Ok(())
    }

    pub(super) fn add_event(&mut self) -> Event {
        let number = self.number();
        self.events.insert(number, None);
        Event(number)
    }

    pub(super) fn end_event(&mut self, event: Event) -> Result<()> {
        self.events
            .remove(&event.0)
            .map(drop)
            .ok_or_else(|| error("cuEventDestroy", INVALID_HANDLE))
    }

    pub(super) fn record(&mut self, context: Context, event: Event, stream: Stream) -> Result<()> {
        let lane = self.lane("cuEventRecord", context, stream)?;
        let point = (stream.0, lane.added, lane.clock.clone());
        let event =
            self.events.get_mut(&event.0).ok_or_else(|| error("cuEventRecord", INVALID_HANDLE))?;
        *event = Some(point);
        Ok(())
    }

    pub(super) fn wait(&mut self, context: Context, stream: Stream, event: Event) -> Result<()> {
        let point =
            self.events.get(&event.0).ok_or_else(|| error("cuStreamWaitEvent", INVALID_HANDLE))?;
        let Some((on, position, before)) = point.clone() else { return Ok(()) };
        self.add("wait", context, stream, Work::Wait { stream: on, position }, Vec::new())?;
        let lane = self.lane("cuStreamWaitEvent", context, stream)?;
        merge(&mut lane.clock, &before);
        Ok(())
    }

    pub(super) fn query(&mut self, event: Event) -> Result<bool> {
        let point =
            self.events.get(&event.0).ok_or_else(|| error("cuEventQuery", INVALID_HANDLE))?;
        let Some((on, position, before)) = point.clone() else { return Ok(true) };
        let come = self.lanes.get(&on).is_none_or(|lane| lane.done >= position);
        if come {
            merge(&mut self.host, &before);
        }
        Ok(come)
    }

    /// Adds work to a stream, and reports what it races with.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        context: Context,
        stream: Stream,
        work: Work,
        accesses: Vec<Access>,
    ) -> Result<()> {
        let host = self.host.clone();
        let lane = self.lane(what, context, stream)?;
        let ordinal = lane.ordinal;
        merge(&mut lane.clock, &host);
        lane.added += 1;
        let position = lane.added;
        lane.clock.insert(stream.0, position);
        let before = lane.clock.clone();
        lane.queue.push_back(Added { position, work, accesses: accesses.clone() });
        for access in accesses {
            match access.space {
                Space::Device(of) if of != ordinal => {
                    let (of, on) = (of.0, ordinal.0);
                    self.violation(format!(
                        "{what} of memory of device {of} on a stream of device {on}"
                    ));
                }
                _ => {}
            }
            let races = |past: &&Past| {
                past.access.meets(&access)
                    && (past.access.writes || access.writes)
                    && before.get(&past.stream).is_none_or(|reached| *reached < past.position)
            };
            if let Some(past) = self.past.iter().find(races) {
                let text = format!("race: {what} is not ordered after {}", past.what);
                self.violations.push(text);
            }
            self.past.push(Past { what, stream: stream.0, position, access });
        }
        Ok(())
    }

    /// What touches bytes and is not done.
    fn touching(&self, access: &Access) -> bool {
        let works = self.lanes.values().flat_map(|lane| &lane.queue);
        works.flat_map(|added| &added.accesses).any(|touched| touched.meets(access))
    }

    pub(super) fn add_block(&mut self, ordinal: Ordinal, bytes: Vec<u8>) -> u64 {
        let at = 0x7000_0000_0000 + (self.number() << 32);
        self.blocks.insert(at, (ordinal, bytes));
        at
    }

    pub(super) fn free_block(&mut self, at: u64) {
        if let Some((ordinal, bytes)) = self.blocks.remove(&at) {
            let space = Space::Device(ordinal);
            if self.touching(&Access { space, at, len: bytes.len() as u64, writes: true }) {
                self.violation("device memory was freed under work that uses it");
            }
        }
    }

    pub(super) fn block(&mut self, at: u64) -> &mut (Ordinal, Vec<u8>) {
        self.blocks.get_mut(&at).expect("a block of this driver")
    }

    /// The block that holds an address, and where in it.
    pub(super) fn place(&mut self, at: u64) -> Option<(Ordinal, &mut [u8])> {
        let (start, (ordinal, bytes)) = self.blocks.range_mut(..=at).next_back()?;
        let offset = (at - start) as usize;
        Some((*ordinal, bytes.get_mut(offset..)?))
    }

    pub(super) fn lock(&mut self, at: u64, len: u64) -> Result<()> {
        let meets = |(start, length): (&u64, &u64)| *start < at + len && at < start + length;
        if self.locked.iter().any(meets) {
            return Err(error("cuMemHostRegister", ALREADY_REGISTERED));
        }
        self.locked.insert(at, len);
        Ok(())
    }

    pub(super) fn unlock(&mut self, at: u64) -> Result<()> {
        let len =
            self.locked.remove(&at).ok_or_else(|| error("cuMemHostUnregister", NOT_REGISTERED))?;
        if self.touching(&Access { space: Space::Host, at, len, writes: true }) {
            self.violation("pages were unlocked under a copy");
        }
        Ok(())
    }

    pub(super) fn locked(&self) -> Vec<u64> {
        self.locked.values().copied().collect()
    }

    /// Real drivers refuse a copy that crosses from one locked range into another.
    pub(super) fn check_crossing(&self, call: &'static str, at: u64, len: u64) -> Result<()> {
        match self.locked.range(..=at).next_back() {
            Some((start, length)) if at < start + length && at + len > start + length => {
                Err(error(call, INVALID_VALUE))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn let_go(&mut self, kernel: u64) {
        self.released.push(kernel);
    }

    /// Does the next piece of work that waits for nothing; `None` if all that is left is late.
    pub(super) fn step(&mut self) -> Option<Option<Move>> {
        let released = &self.released;
        let reached: Clock = self.lanes.iter().map(|(number, lane)| (*number, lane.done)).collect();
        let can = |lane: &&mut Lane| match lane.queue.front().map(|added| &added.work) {
            Some(Work::Wait { stream, position }) => {
                reached.get(stream).is_none_or(|reached| reached >= position)
            }
            Some(Work::Kernel { number, .. }) => released.contains(number),
            Some(_) => true,
            None => false,
        };
        let lane = self.lanes.values_mut().find(can)?;
        let added = lane.queue.pop_front()?;
        lane.done = added.position;
        Some(match added.work {
            Work::CopyOut { from, to, len } => {
                let bytes = self.place(from).map(|(_, bytes)| bytes[..len].to_vec());
                bytes.map(|bytes| Move::Out { bytes, to })
            }
            Work::CopyIn { from, to, len } => Some(Move::In { from, to, len }),
            Work::Kernel { fill: Some((at, len, byte)), .. } => {
                if let Some((_, bytes)) = self.place(at) {
                    bytes[..len as usize].fill(byte);
                }
                None
            }
            Work::Kernel { fill: None, .. } | Work::Wait { .. } => None,
        })
    }
}

pub(super) const FIRST_CONTEXT: i32 = 0x1000;
const INVALID_VALUE: i32 = 1;
const INVALID_CONTEXT: i32 = 201;
const INVALID_HANDLE: i32 = 400;
const ALREADY_REGISTERED: i32 = 712;
const NOT_REGISTERED: i32 = 713;

fn merge(clock: &mut Clock, other: &Clock) {
    for (stream, position) in other {
        let reached = clock.entry(*stream).or_default();
        *reached = (*reached).max(*position);
    }
}

pub(super) fn error(call: &'static str, code: i32) -> CudaError {
    CudaError::Call { call, code, name: "CUDA_ERROR".into() }
}
