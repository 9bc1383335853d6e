//! Conversations that show the same images again: how many are served from the pool, and what that saves.

use super::Scale;
use crate::{
    measure::{now, quantile},
    pair,
    report::{Goal, Row, Section},
};

/// Users, turns of each, images in the window of a turn: four of five are those of the turn before.
const USERS: usize = 30;
const TURNS: usize = 8;
const WINDOW: usize = 5;
/// 1.25 MiB: an eighth of the workload's 10 MiB, so that the whole fits a small machine.
const ROWS: u64 = 640;

pub(super) fn run(scale: Scale) -> Section {
    let users = scale.pick(USERS / 3, USERS);
    let (from_store, asked) = windows(users);
    let served = 1.0 - from_store as f64 / asked as f64;
    // What is new of each user: the first window and one image a turn.
    let best = 1.0 - (users * (WINDOW + TURNS - 1)) as f64 / asked as f64;
    let [resident, fetched] = latencies(scale.pick(50, 400));
    let micros = |seconds: f64| format!("{:.0} µs", seconds * 1e6);
    let rows = vec![
        Row {
            what: format!("{users} users, {TURNS} turns, items served from the pool"),
            ours: format!("{served:.3}"),
            rival: "every repetition".into(),
            theirs: format!("{best:.3}"),
            ratio: served / best,
            quartiles: None,
            goal: Some(Goal::AtLeast(0.99)),
        },
        Row {
            what: "request for one item of 1.25 MiB, in the pool".into(),
            ours: micros(resident),
            rival: "in the store of the same process".into(),
            theirs: micros(fetched),
            ratio: resident / fetched,
            quartiles: None,
            goal: Some(Goal::AtMost(0.5)),
        },
    ];
    Section {
        suite: "residents",
        about: "A sliding window of five images, four of which were in the turn before: what comes from the pool \
                and not from the store; and the time from a request to its items.",
        rows,
    }
}

/// Items that the store delivered, and items that were asked for.
fn windows(users: usize) -> (u64, usize) {
    let distinct = users * (WINDOW + TURNS - 1);
    pair::run(bytes_for(distinct), async |world| {
        let (producer, mut consumer) = (world.producer().await, world.consumer().await);
        let (mut delivered, mut asked) = (0, 0);
        for turn in 0..TURNS {
            for user in 0..users {
                let window: Vec<String> =
                    (turn..turn + WINDOW).map(|image| format!("user{user}-image{image}")).collect();
                let new = if turn == 0 { &window[..] } else { &window[WINDOW - 1..] };
                producer.save(new, ROWS).await;
                delivered += consumer.request(&window, ROWS).await;
                asked += WINDOW;
            }
        }
        assert_eq!(consumer.hits_and_misses(), (asked as u64, 0));
        (delivered, asked)
    })
}

/// Median seconds of a request for an item that lies in the pool, and for one that the store delivers.
fn latencies(items: usize) -> [f64; 2] {
    pair::run(bytes_for(items), async |world| {
        let (producer, mut consumer) = (world.producer().await, world.consumer().await);
        let (mut resident, mut fetched) = (Vec::new(), Vec::new());
        for item in 0..items {
            let name = [format!("item{item}")];
            producer.save(&name, ROWS).await;
            for (times, gets) in [(&mut fetched, 1), (&mut resident, 0)] {
                let started = now();
                assert_eq!(consumer.request(&name, ROWS).await, gets);
                times.push((now() - started).as_secs_f64());
            }
        }
        [quantile(&resident, 0.5), quantile(&fetched, 0.5)]
    })
}

/// A pool that holds so many items.
fn bytes_for(items: usize) -> u64 {
    items as u64 * (ROWS * pair::WIDTH * 2 * 6 / 5) + (16 << 20)
}
