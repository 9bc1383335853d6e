//! Whether an item costs the same among many as alone.

use super::Scale;
use crate::{
    measure::{now, quantile},
    pair::{self, Consumer, Producer},
    report::{Goal, Row, Section},
};

/// 64 KiB: small, so that the connector's own work shows beside the copies.
const ROWS: u64 = 32;
const POOL: u64 = 256 << 20;
/// A cost may grow by this much.
const GOAL: Goal = Goal::AtMost(1.3);

pub(super) fn run(scale: Scale) -> Section {
    let mut rows = Vec::new();
    rows.extend(in_flight(scale.pick(15, 101)));
    rows.push(keys_known(scale.pick(100, 400)));
    rows.extend(consumers(scale.pick(15, 101)));
    Section {
        suite: "growth",
        about: "Cost of an item of 64 KiB as its number grows, over the cost with the smallest number; median of \
                interleaved rounds.",
        rows,
    }
}

fn row(what: String, ours: &[f64], rival: &str, theirs: &[f64]) -> Row {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    let micros = |seconds: &[f64]| format!("{:.1} µs", quantile(seconds, 0.5) * 1e6);
    Row {
        what,
        ours: micros(ours),
        rival: rival.into(),
        theirs: micros(theirs),
        ratio: quantile(&ratios, 0.5),
        quartiles: Some([quantile(&ratios, 0.25), quantile(&ratios, 0.75)]),
        goal: Some(GOAL),
    }
}

/// New names.
fn names(count: usize, next: &mut u64) -> Vec<String> {
    (0..count)
        .map(|_| {
            *next += 1;
            format!("item{next}")
        })
        .collect()
}

/// Seconds an item: saved and waited for, then requested.
async fn round(
    producer: &Producer,
    consumer: &mut Consumer,
    count: usize,
    next: &mut u64,
) -> [f64; 2] {
    let names = names(count, next);
    let started = now();
    producer.save(&names, ROWS).await;
    let saved = now();
    assert_eq!(consumer.request(&names, ROWS).await, count as u64);
    [saved - started, now() - saved].map(|time| time.as_secs_f64() / count as f64)
}

fn in_flight(rounds: usize) -> Vec<Row> {
    const COUNTS: [usize; 3] = [1, 8, 64];
    let mut times = vec![[Vec::new(), Vec::new()]; COUNTS.len()];
    pair::run(POOL, async |world| {
        let (producer, mut consumer) = (world.producer().await, world.consumer().await);
        let mut next = 0;
        for turn in 0..=rounds {
            for (count, times) in COUNTS.iter().zip(&mut times) {
                let round = round(&producer, &mut consumer, *count, &mut next).await;
                // The first warms up.
                if turn > 0 {
                    times.iter_mut().zip(round).for_each(|(times, time)| times.push(time));
                }
            }
        }
    });
    let mut rows = Vec::new();
    for (index, count) in COUNTS.iter().enumerate().skip(1) {
        for (way, what) in ["saved", "loaded"].iter().enumerate() {
            let what = format!("{what}, {count} at once");
            rows.push(row(what, &times[index][way], "alone", &times[0][way]));
        }
    }
    rows
}

/// A consumer that knows many keys against one that knows few.
fn keys_known(rounds: usize) -> Row {
    const FEW: usize = 10;
    const MANY: usize = 100_000;
    let (mut few_times, mut many_times) = (Vec::new(), Vec::new());
    pair::run(POOL, async |world| {
        let producer = world.producer().await;
        let (mut few, mut many) = (world.consumer().await, world.consumer().await);
        for (consumer, count) in [(&mut few, FEW), (&mut many, MANY)] {
            let absent: Vec<String> = (0..count).map(|n| format!("absent{n}")).collect();
            for names in absent.chunks(1_000) {
                consumer.request(names, ROWS).await;
            }
        }
        let mut next = 0;
        for _ in 0..rounds {
            let names = names(1, &mut next);
            producer.save(&names, ROWS).await;
            for (consumer, times) in [(&mut few, &mut few_times), (&mut many, &mut many_times)] {
                let started = now();
                consumer.request(&names, ROWS).await;
                times.push((now() - started).as_secs_f64());
            }
        }
    });
    row(format!("loaded, {MANY} keys known"), &many_times, &format!("{FEW} keys known"), &few_times)
}

/// Consumers of one producer, one after the other, against one.
fn consumers(rounds: usize) -> Vec<Row> {
    const MOST: usize = 8;
    let mut times = vec![Vec::new(); MOST];
    pair::run(POOL / 4, async |world| {
        let producer = world.producer().await;
        let mut consumers = Vec::new();
        for _ in 0..MOST {
            consumers.push(world.consumer().await);
        }
        let mut next = 0;
        for turn in 0..=rounds {
            let names = names(8, &mut next);
            producer.save(&names, ROWS).await;
            for (consumer, times) in consumers.iter_mut().zip(&mut times) {
                let started = now();
                assert_eq!(consumer.request(&names, ROWS).await, names.len() as u64);
                if turn > 0 {
                    times.push((now() - started).as_secs_f64() / names.len() as f64);
                }
            }
        }
    });
    [4, MOST]
        .map(|nth| {
            row(format!("loaded by consumer {nth}"), &times[nth - 1], "consumer 1", &times[0])
        })
        .into()
}
