//! How full a region is when an allocation first fails, after many items have come and gone.
//!
//! An allocation that fails takes victims, in one of three orders, until it succeeds: a sample is the payload
//! held over the region's bytes at the moment of the failure. The same items and the same draws go to each
//! allocator. A byte-perfect one shows what the sizes themselves allow.

use std::collections::VecDeque;

use super::Scale;
use crate::{
    models::Draw,
    report::{Goal, Row, Section},
    rivals::{Allocator, BytePerfect, Offset, PowerOfTwo, Springtide},
};

const GIB: u64 = 1 << 30;
const MIB: f64 = (1 << 20) as f64;

/// Which item goes when there is no room.
#[derive(Clone, Copy, Debug)]
enum Victims {
    Fifo,
    Lru,
    Random,
}

/// A distribution of payload bytes.
type Sizes = fn(&mut Draw) -> u64;

const SIZES: [(&str, Sizes); 6] = [
    ("log-uniform 64 KiB-64 MiB", log_uniform),
    ("equal bytes per octave", equal_bytes),
    ("W1 chat", |draw| among(draw, &[3.6, 8.2, 9.4, 18.4])),
    ("W2 multi-image", |draw| among(draw, &[12.5, 27.5, 32.0, 63.75])),
    ("W3, W4 windows and tiles", |draw| among(draw, &[4.0, 9.96])),
    ("W5 giants", giants),
];

/// Every item a size of its own, small ones as likely as large ones on a logarithmic scale.
fn log_uniform(draw: &mut Draw) -> u64 {
    (65536.0 * 1024f64.powf(draw.unit())) as u64
}

/// Small items in such numbers that each octave of sizes has the same bytes.
fn equal_bytes(draw: &mut Draw) -> u64 {
    // Density 1/x^2 over [a, b]: the inverse of its distribution.
    let (a, b) = (65536.0, 65536.0 * 1024.0);
    (a / (1.0 - draw.unit() * (1.0 - a / b))) as u64
}

fn among(draw: &mut Draw, mib: &[f64]) -> u64 {
    (mib[draw.below(mib.len())] * MIB) as u64
}

fn giants(draw: &mut Draw) -> u64 {
    let mib = if draw.below(51) == 0 { [255.0, 318.75][draw.below(2)] } else { 1.0 };
    (mib * MIB) as u64
}

/// What a run of one allocator gave.
struct Outcome {
    mean: f64,
    worst: f64,
    parts_mean: f64,
    parts_max: usize,
}

pub(super) fn run(scale: Scale) -> Section {
    Section {
        suite: "churn",
        about: "Payload held over region bytes at the moment an allocation fails: mean (worst). Parts are the \
                extents of an item: mean, most.",
        rows: [1, 16].into_iter().flat_map(|gib| rows(gib, scale.pick(200, 2_000))).collect(),
    }
}

fn rows(gib: u64, failures: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, sizes) in SIZES {
        for victims in [Victims::Fifo, Victims::Lru, Victims::Random] {
            let cell = Cell { bytes: gib * GIB, sizes, victims, failures };
            rows.extend(compare(&format!("{gib} GiB, {name}, victims {victims:?}"), &cell));
        }
    }
    rows
}

fn compare(what: &str, cell: &Cell) -> Vec<Row> {
    let ours = cell.play(Springtide::new(cell.bytes));
    let perfect = cell.play(BytePerfect::new(cell.bytes));
    let figure = |outcome: &Outcome| format!("{:.3} ({:.3})", outcome.mean, outcome.worst);
    let row = |rival: &str, theirs: &Outcome, goal| Row {
        what: what.into(),
        ours: format!("{}, parts {:.1}, {}", figure(&ours), ours.parts_mean, ours.parts_max),
        rival: rival.into(),
        theirs: figure(theirs),
        ratio: ours.mean / theirs.mean,
        quartiles: None,
        goal,
    };
    let mut rows = vec![
        row("byte-perfect", &perfect, Some(Goal::AtLeast(0.95))),
        row("offset-allocator 0.2", &cell.play(Offset::new(cell.bytes)), None),
        row("plain power-of-two buddy", &cell.play(PowerOfTwo::new(cell.bytes)), None),
        row("springtide, one extent", &cell.play(Springtide::with_extents(cell.bytes, 1)), None),
    ];
    let worst = row("byte-perfect", &perfect, Some(Goal::AtLeast(0.8)));
    rows.insert(
        1,
        Row { what: format!("{what}, worst"), ratio: ours.worst / perfect.worst, ..worst },
    );
    rows
}

/// One experiment.
struct Cell {
    bytes: u64,
    sizes: Sizes,
    victims: Victims,
    /// Allocations that fail before the run ends.
    failures: usize,
}

impl Cell {
    fn play<A: Allocator>(&self, mut allocator: A) -> Outcome {
        let (mut draw, mut choice) = (Draw::new(7), Draw::new(8));
        let mut live: VecDeque<(u64, A::Token)> = VecDeque::new();
        let (mut held, mut samples) = (0, Vec::with_capacity(self.failures));
        let (mut items, mut parts, mut parts_max) = (0, 0, 0);
        while samples.len() < self.failures {
            let payload = (self.sizes)(&mut draw);
            let mut failed = false;
            let token = loop {
                if let Some(token) = allocator.allocate(payload) {
                    break token;
                }
                if !std::mem::replace(&mut failed, true) {
                    samples.push(held as f64 / self.bytes as f64);
                }
                let (payload, token) = self.victim(&mut live, &mut choice);
                held -= payload;
                allocator.free(token);
            };
            let scattered = A::parts(&token);
            (items, parts, parts_max) = (items + 1, parts + scattered, parts_max.max(scattered));
            held += payload;
            live.push_back((payload, token));
            self.touch(&mut live, &mut choice);
        }
        // The first failures meet a region that has hardly been used.
        let steady = &samples[samples.len() / 4..];
        Outcome {
            mean: steady.iter().sum::<f64>() / steady.len() as f64,
            worst: steady.iter().copied().fold(f64::INFINITY, f64::min),
            parts_mean: parts as f64 / items as f64,
            parts_max,
        }
    }

    fn victim<T>(&self, live: &mut VecDeque<T>, choice: &mut Draw) -> T {
        let victim = match self.victims {
            Victims::Fifo | Victims::Lru => live.pop_front(),
            Victims::Random => live.swap_remove_back(choice.below(live.len())),
        };
        victim.expect("the sizes of the suites fit an empty region")
    }

    /// Every other item that comes meets one that is used again.
    fn touch<T>(&self, live: &mut VecDeque<T>, choice: &mut Draw) {
        if matches!(self.victims, Victims::Lru) && choice.below(2) == 0 {
            let item = live.remove(choice.below(live.len())).expect("the index is in range");
            live.push_back(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same items give the same figures everywhere, so what is far from noise is a test.
    #[test]
    fn a_worn_region_is_nearly_as_full_as_bytes_allow_and_fuller_than_with_one_extent() {
        for row in rows(1, 200) {
            let least = match row.rival.as_str() {
                "byte-perfect" if row.what.ends_with("worst") => 0.3,
                "byte-perfect" if row.what.contains("W5") => 0.85,
                "byte-perfect" => 0.92,
                "springtide, one extent" if !row.what.contains("W5") => 1.05,
                _ => 0.0,
            };
            assert!(row.ratio >= least, "{row:?}");
        }
    }
}
