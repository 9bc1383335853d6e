//! Time of an allocation and its free, at a steady fill, against the same crates.

use std::{
    collections::VecDeque,
    sync::{Barrier, Mutex},
};

use springtide::pool::{Contiguity, Pool, PoolConfig};

use super::Scale;
use crate::{
    measure::{Times, Turn, interleave},
    models::{Draw, HEADER},
    report::{Goal, Row, Section},
    rivals::{Allocator, Frames, Offset, PowerOfTwo, Springtide},
};

const GIB: u64 = 1 << 30;
/// Items that lie in the region while others come and go: it is about 60 % full.
const LIVE_PER_GIB: u64 = 64;

pub(super) fn run(scale: Scale) -> Section {
    let mut rows = Vec::new();
    for gib in [1, 4, 16, 64] {
        rows.extend(one_thread(gib, scale));
    }
    rows.push(growth(scale));
    rows.extend(four_threads(scale));
    Section {
        suite: "cost",
        about: "Nanoseconds of an allocation and its free, 2-18 MiB items, the region about 60 % full: median \
                of rounds. \"Pool\" is the whole pool with its lock, ledger, guards and state words.",
        rows,
    }
}

/// Items that come and go in an allocator.
struct Ring<A: Allocator> {
    allocator: A,
    live: VecDeque<A::Token>,
    draw: Draw,
    pairs: usize,
}

impl<A: Allocator> Ring<A> {
    fn new(mut allocator: A, live: u64, pairs: usize) -> Self {
        let mut draw = Draw::new(11);
        let live = (0..live).filter_map(|_| allocator.allocate(size(&mut draw))).collect();
        Self { allocator, live, draw, pairs }
    }

    fn turn(&mut self) {
        for _ in 0..self.pairs {
            if let Some(token) = self.live.pop_front() {
                self.allocator.free(token);
            }
            if let Some(token) = self.allocator.allocate(size(&mut self.draw)) {
                self.live.push_back(token);
            }
        }
    }
}

fn size(draw: &mut Draw) -> u64 {
    const MIB_TENTHS: [u64; 8] = [18, 36, 53, 82, 94, 105, 160, 184];
    MIB_TENTHS[draw.below(MIB_TENTHS.len())] * (1 << 20) / 10
}

fn turn<'a, A: Allocator + 'a>(allocator: A, gib: u64, pairs: usize) -> Turn<'a> {
    let mut ring = Ring::new(allocator, gib * LIVE_PER_GIB, pairs);
    Box::new(move || ring.turn())
}

fn one_thread(gib: u64, scale: Scale) -> Vec<Row> {
    let (rounds, pairs) = (scale.pick(15, 101), 5_000);
    let bytes = gib * GIB;
    let times = interleave(
        rounds,
        vec![
            turn(Springtide::with_extents(bytes, 1), gib, pairs),
            turn(Springtide::new(bytes), gib, pairs),
            turn(Offset::new(bytes), gib, pairs),
            turn(Frames::new(bytes), gib, pairs),
            turn(PowerOfTwo::new(bytes), gib, pairs),
        ],
    );
    let rivals = [(2, "offset-allocator 0.2"), (3, "buddy_system_allocator 0.13")];
    let fastest = if times[2].median() < times[3].median() { rivals[0] } else { rivals[1] };
    let what = |extents: &str| format!("{gib} GiB, 1 thread, {extents}");
    let mut rows = vec![row(what("1 extent"), &times[0], fastest.1, &times[fastest.0], pairs)];
    rows[0].goal = Some(Goal::AtMost(1.0));
    for (index, rival) in rivals {
        rows.push(row(what("8 extents"), &times[1], rival, &times[index], pairs));
    }
    rows
}

/// The largest region against the smallest.
fn growth(scale: Scale) -> Row {
    let (rounds, pairs) = (scale.pick(15, 101), 5_000);
    let turns = [64, 1].map(|gib| turn(Springtide::with_extents(gib * GIB, 1), gib, pairs));
    let times = interleave(rounds, turns.into());
    let mut row = row("64 GiB, 1 extent".into(), &times[0], "1 GiB, 1 extent", &times[1], pairs);
    row.goal = Some(Goal::AtMost(1.3));
    row
}

/// The whole pool against each crate behind a lock, four threads at once.
fn four_threads(scale: Scale) -> Vec<Row> {
    const THREADS: usize = 4;
    let (rounds, pairs) = (scale.pick(7, 41), 2_000);
    let pool = Pool::new(&PoolConfig::with_bytes(GIB)).expect("1 GiB of address space");
    let (offset, frames) = (Mutex::new(Offset::new(GIB)), Mutex::new(Frames::new(GIB)));
    let times = interleave(
        rounds,
        vec![
            Box::new(|| together(THREADS, |seed| pool_pairs(&pool, seed, pairs))),
            Box::new(|| together(THREADS, |seed| locked_pairs(&offset, seed, pairs))),
            Box::new(|| together(THREADS, |seed| locked_pairs(&frames, seed, pairs))),
        ],
    );
    let what = || format!("Pool, 1 GiB, {THREADS} threads, 8 extents");
    let pairs = pairs * THREADS;
    vec![
        row(what(), &times[0], "offset-allocator 0.2 in a Mutex", &times[1], pairs),
        row(what(), &times[0], "buddy_system_allocator 0.13 in a Mutex", &times[2], pairs),
    ]
}

/// Runs `work` on `threads` threads that begin together.
fn together(threads: usize, work: impl Fn(u64) + Sync) {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        for seed in 0..threads as u64 {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(seed);
            });
        }
    });
}

fn pool_pairs(pool: &Pool, seed: u64, pairs: usize) {
    let mut draw = Draw::new(seed);
    for _ in 0..pairs {
        drop(pool.allocate(size(&mut draw) + HEADER, Contiguity::Extents));
    }
}

fn locked_pairs<A: Allocator>(allocator: &Mutex<A>, seed: u64, pairs: usize) {
    let mut draw = Draw::new(seed);
    for _ in 0..pairs {
        let size = size(&mut draw);
        let token = allocator.lock().expect("no thread panics").allocate(size);
        if let Some(token) = token {
            allocator.lock().expect("no thread panics").free(token);
        }
    }
}

fn row(what: String, ours: &Times, rival: &str, theirs: &Times, pairs: usize) -> Row {
    let figure = |times: &Times| format!("{:.0} ns", times.median() * 1e9 / pairs as f64);
    let [low, median, high] = ours.over(theirs);
    Row {
        what,
        ours: figure(ours),
        rival: rival.into(),
        theirs: figure(theirs),
        ratio: median,
        quartiles: Some([low, high]),
        goal: None,
    }
}
