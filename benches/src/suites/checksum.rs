//! The checksum of a payload against copying it, for the candidates.

use std::hint::black_box;

use super::Scale;
use crate::{
    measure::{Turn, interleave},
    report::{Goal, Row, Section},
};

/// A name and a pass over bytes.
type Candidate = (&'static str, fn(&[u8]) -> u64);

const CANDIDATES: [Candidate; 3] = [
    ("xxh3 (the one in use)", xxhash_rust::xxh3::xxh3_64),
    ("crc32c", |bytes| crc32c::crc32c(bytes).into()),
    ("blake3", |bytes| u64::from(blake3::hash(bytes).as_bytes()[0])),
];

pub(super) fn run(scale: Scale) -> Section {
    let rounds = scale.pick(11, 61);
    let mut rows = Vec::new();
    for mib in [1, 16, 64] {
        let source = vec![0xa5u8; mib << 20];
        let mut target = vec![0u8; mib << 20];
        // Turns of some 16 MiB each, so that the clock's grain does not show.
        let repeats = 16usize.div_ceil(mib);
        let mut turns: Vec<Turn<'_>> = vec![Box::new(|| {
            for _ in 0..repeats {
                target.copy_from_slice(black_box(&source));
                black_box(&target);
            }
        })];
        for (_, hash) in CANDIDATES {
            let source = &source;
            turns.push(Box::new(move || {
                for _ in 0..repeats {
                    black_box(hash(black_box(source)));
                }
            }));
        }
        let times = interleave(rounds, turns);
        let rate =
            |seconds: f64| format!("{:.1} GB/s", (repeats * (mib << 20)) as f64 / seconds / 1e9);
        for ((name, _), ours) in CANDIDATES.iter().zip(&times[1..]) {
            let [low, median, high] = ours.over(&times[0]);
            rows.push(Row {
                what: format!("{mib} MiB, {name}"),
                ours: rate(ours.median()),
                rival: "memcpy".into(),
                theirs: rate(times[0].median()),
                ratio: median,
                quartiles: Some([low, high]),
                goal: name.starts_with("xxh3").then_some(Goal::AtMost(0.25)),
            });
        }
    }
    Section {
        suite: "checksum",
        about: "Time of one pass over a payload, over the time of copying it; one thread.",
        rows,
    }
}
