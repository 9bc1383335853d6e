//! Traffic profiles: what is asked for, when, and how often again.
//!
//! The profiles follow published traffic (single-image chat, many large images at once, a sliding window over
//! screenshots, bursts of tiles, giants among small items, a storm of requests for one set). Rows are
//! production's; a row's bytes are scaled down [`SCALE`](crate::plan::SCALE) times, as pools, units and
//! segments are, so that every ratio stays. Each profile contains the duplicate race: the same
//! item asked for twice within 10 ms.

use crate::{
    plan::{Item, Request, Topology, Workload},
    seeds::Stream,
};

/// Rows of one image on a 28-pixel model: 640², 1280x720, 1024², 1920x1080.
const CHAT_ROWS: [u64; 4] = [529, 1196, 1369, 2691];
/// Rows of a 2400x1080 screenshot on a 32-pixel model.
const WINDOW_ROWS: u64 = 2550;
/// Rows of 4 MiB on a model that is 2048 wide.
const STORM_ROWS: u64 = 1024;
/// Rows of one image on a 32-pixel model with four features a row: 640², 1024², 1920x1080.
const LARGE_ROWS: [u64; 3] = [400, 1024, 2040];
/// Rows of a 4K image, and of 32 frames of 1280x720, on the same model.
const GIANT_ROWS: [u64; 2] = [8_160, 14_080];
/// Rows of 1 MiB on it.
const SMALL_ROWS: u64 = 32;
/// Bytes of all items that one drawing of large images, tiles or giants makes: memory is bounded.
const DRAWN_BYTES_MAX: u64 = 16 << 20;
/// How many tiles a request has: up to so many of a hundred requests have this many to that many.
const TILES: [(u64, u64, u64); 5] =
    [(66, 1, 1), (71, 2, 4), (86, 5, 9), (88, 10, 16), (100, 17, 25)];
/// Images of a sliding window, and how many of them leave with each turn.
const WINDOW: u64 = 5;

/// Draws the traffic from `from_ms` to `until_ms`, in the order of time.
pub fn draw(
    workload: Workload,
    stream: &mut Stream,
    topology: &Topology,
    from_ms: u64,
    until_ms: u64,
) -> Vec<Request> {
    let rows_left = DRAWN_BYTES_MAX / (2 * workload.width());
    let (requests, items) = Default::default();
    let mut traffic = Traffic { stream, topology, requests, items, rows_left };
    match workload {
        Workload::W1 | Workload::W7 => traffic.chat(from_ms, until_ms),
        Workload::W2 => traffic.large(from_ms, until_ms),
        Workload::W3 => traffic.window(from_ms, until_ms),
        Workload::W4 => traffic.tiles(from_ms, until_ms),
        Workload::W5 => traffic.giants(from_ms, until_ms),
        Workload::W6 => traffic.storm(from_ms, until_ms),
    }
    let mut requests = traffic.requests;
    requests.sort_by_key(|request| request.at_ms);
    requests
}

/// A profile while it is drawn.
struct Traffic<'a> {
    stream: &'a mut Stream,
    topology: &'a Topology,
    requests: Vec<Request>,
    items: Vec<Item>,
    /// Rows that large images, tiles and giants may still have.
    rows_left: u64,
}

impl Traffic<'_> {
    /// Requests with one to eight fresh large images, all within a tenth of a second; the images of one in
    /// eight are asked for again at once.
    fn large(&mut self, from_ms: u64, until_ms: u64) {
        let burst_ms = from_ms + self.stream.between(100, 1_500);
        for _ in 0..self.stream.between(10, 30) {
            let mut images = Vec::new();
            for _ in 0..self.stream.between(1, 8) {
                let rows = *self.stream.pick(&LARGE_ROWS);
                images.extend(self.bounded(rows));
            }
            let at_ms = burst_ms + self.stream.between(0, 100);
            self.request(at_ms, images.clone(), until_ms);
            if self.stream.chance(1, 8) {
                let again_ms = at_ms + self.stream.between(0, 10);
                self.request(again_ms, images, until_ms);
            }
        }
    }

    /// Bursts of requests with tiles, a tenth of them seen before.
    fn tiles(&mut self, from_ms: u64, until_ms: u64) {
        let mut at_ms = from_ms + self.stream.between(0, 300);
        while at_ms < until_ms {
            for _ in 0..self.stream.between(4, 16) {
                let share = self.stream.below(100);
                let bucket = TILES.iter().find(|(up_to, ..)| share < *up_to);
                let (_, low, high) = bucket.copied().unwrap_or(TILES[0]);
                let mut tiles = Vec::new();
                for _ in 0..self.stream.between(low, high) {
                    let again = !self.items.is_empty() && self.stream.chance(1, 10);
                    tiles.extend(match again {
                        true => Some(self.stream.pick(&self.items).clone()),
                        false => self.bounded(STORM_ROWS),
                    });
                }
                let at_ms = at_ms + self.stream.between(0, 200);
                self.request(at_ms, tiles.clone(), until_ms);
                if self.stream.chance(1, 16) {
                    let again_ms = at_ms + self.stream.between(0, 10);
                    self.request(again_ms, tiles, until_ms);
                }
            }
            at_ms += self.stream.between(800, 2_500);
        }
    }

    /// One giant a second, and many small items.
    fn giants(&mut self, from_ms: u64, until_ms: u64) {
        let mut at_ms = from_ms + self.stream.between(0, 1_000);
        while at_ms < until_ms {
            let rows = *self.stream.pick(&GIANT_ROWS);
            let giant: Vec<Item> = self.bounded(rows).into_iter().collect();
            self.request(at_ms, giant, until_ms);
            at_ms += self.stream.between(700, 1_300);
        }
        let mut at_ms = from_ms + self.stream.wait(25);
        while at_ms < until_ms {
            let small = vec![self.fresh(SMALL_ROWS)];
            self.request(at_ms, small.clone(), until_ms);
            if self.stream.chance(1, 16) {
                let again_ms = at_ms + self.stream.between(0, 10);
                self.request(again_ms, small, until_ms);
            }
            at_ms += self.stream.wait(25);
        }
    }

    /// A fresh item, unless all the rows have been given out.
    fn bounded(&mut self, rows: u64) -> Option<Item> {
        self.rows_left = self.rows_left.checked_sub(rows)?;
        Some(self.fresh(rows))
    }

    /// One image a request, Poisson with 20 a second, 30 % of them seen before.
    fn chat(&mut self, from_ms: u64, until_ms: u64) {
        let mut at_ms = from_ms + self.stream.wait(50);
        while at_ms < until_ms {
            let seen_before = !self.items.is_empty() && self.stream.chance(3, 10);
            let item = if seen_before {
                self.stream.pick(&self.items).clone()
            } else {
                let rows = *self.stream.pick(&CHAT_ROWS);
                self.fresh(rows)
            };
            self.request(at_ms, vec![item.clone()], until_ms);
            if self.stream.chance(1, 16) {
                let again_ms = at_ms + self.stream.between(0, 10);
                self.request(again_ms, vec![item], until_ms);
            }
            at_ms += self.stream.wait(50);
        }
    }

    /// Users who each look at a window of five images that moves on by one a turn.
    fn window(&mut self, from_ms: u64, until_ms: u64) {
        for _ in 0..self.stream.between(4, 8) {
            let mut at_ms = from_ms + self.stream.between(0, 400);
            let mut window: Vec<Item> = (0..WINDOW).map(|_| self.fresh(WINDOW_ROWS)).collect();
            for _turn in 0..self.stream.between(3, 8) {
                self.request(at_ms, window.clone(), until_ms);
                if self.stream.chance(1, 8) {
                    let again_ms = at_ms + self.stream.between(0, 10);
                    self.request(again_ms, window.clone(), until_ms);
                }
                at_ms += self.stream.between(200, 800);
                window.remove(0);
                window.push(self.fresh(WINDOW_ROWS));
            }
        }
    }

    /// Bursts of requests that all want the same two images at once.
    fn storm(&mut self, from_ms: u64, until_ms: u64) {
        let mut at_ms = from_ms + self.stream.between(0, 300);
        while at_ms < until_ms {
            let set = vec![self.fresh(STORM_ROWS), self.fresh(STORM_ROWS)];
            for _ in 0..self.stream.between(8, 24) {
                let jitter_ms = self.stream.between(0, 10);
                self.request(at_ms + jitter_ms, set.clone(), until_ms);
            }
            at_ms += self.stream.between(500, 1_500);
        }
    }

    fn fresh(&mut self, rows: u64) -> Item {
        let item = Item { id: format!("item{:03}", self.items.len()), rows };
        self.items.push(item.clone());
        item
    }

    fn request(&mut self, at_ms: u64, items: Vec<Item>, until_ms: u64) {
        if at_ms >= until_ms || items.is_empty() {
            return;
        }
        let model = self.stream.below(u64::from(self.topology.namespaces)) as u32;
        let encoder = self.instance(self.topology.encoders, model);
        let prefill = self.instance(self.topology.prefills, model);
        let abort_after_ms = self.stream.chance(1, 25).then(|| self.stream.between(5, 300));
        self.requests.push(Request {
            at_ms,
            encoder,
            prefill,
            items,
            decode_steps: self.stream.between(1, 6) as u32,
            abort_after_ms,
            preempt: self.stream.chance(1, 20),
            early: self.stream.chance(1, 20),
        });
    }

    /// An instance that serves `model`, of `count`; instance `n` serves model `n % namespaces`.
    fn instance(&mut self, count: u32, model: u32) -> u32 {
        let step = self.topology.namespaces;
        let serving = (count - model).div_ceil(step);
        model + step * self.stream.below(u64::from(serving)) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::Plan;

    fn topology() -> Topology {
        let topology = Plan::base("workload", Workload::W1).topology;
        Topology { encoders: 3, prefills: 2, nodes: 2, namespaces: 2, ..topology }
    }

    fn draw(workload: Workload, seed: u64) -> Vec<Request> {
        super::draw(workload, &mut Stream::new(seed, "", "workload"), &topology(), 100, 5_000)
    }

    #[test]
    fn every_profile_has_the_duplicate_race() {
        for workload in Workload::ALL {
            let raced = (0..10).any(|seed| {
                let mut last = BTreeMap::new();
                draw(workload, seed).iter().any(|request| {
                    request.items.iter().any(|item| {
                        let earlier = last.insert(item.id.clone(), request.at_ms);
                        earlier.is_some_and(|at| at.abs_diff(request.at_ms) <= 10)
                    })
                })
            });
            assert!(raced, "{workload:?}");
        }
    }

    #[test]
    fn requests_are_sorted_and_within_their_time_and_models() {
        for workload in Workload::ALL {
            let requests = draw(workload, 1);
            assert!(requests.is_sorted_by_key(|request| request.at_ms));
            for request in &requests {
                assert!((100..5_000).contains(&request.at_ms));
                assert!(request.encoder < 3 && request.prefill < 2);
                assert_eq!(request.encoder % 2, request.prefill % 2);
            }
        }
    }

    #[test]
    fn the_window_repeats_four_of_five() {
        let requests = draw(Workload::W3, 4);
        let distinct =
            requests.iter().flat_map(|r| &r.items).collect::<std::collections::BTreeSet<_>>();
        let asked: usize = requests.iter().map(|r| r.items.len()).sum();
        assert!(distinct.len() * 2 < asked, "{} of {asked}", distinct.len());
    }
}
