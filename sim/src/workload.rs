//! Traffic profiles: what is asked for, when, and how often again.
//!
//! The profiles follow published traffic (single-image chat, a sliding window over screenshots, a storm of
//! requests for one set). Rows are production's; a row's bytes are scaled down [`SCALE`] times, as pools,
//! units and segments are, so that every ratio stays. Each profile contains the duplicate race: the same
//! item asked for twice within 10 ms.

use crate::{
    plan::{Item, Request, Topology, Workload},
    seeds::Stream,
};

/// Production bytes for one simulated byte.
pub const SCALE: u64 = 64;

/// Rows of one image on a 28-pixel model: 640², 1280x720, 1024², 1920x1080.
const CHAT_ROWS: [u64; 4] = [529, 1196, 1369, 2691];
/// Rows of a 2400x1080 screenshot on a 32-pixel model.
const WINDOW_ROWS: u64 = 2550;
/// Rows of 4 MiB on a model that is 2048 wide.
const STORM_ROWS: u64 = 1024;
/// Images of a sliding window, and how many of them leave with each turn.
const WINDOW: u64 = 5;

impl Workload {
    /// Every profile.
    pub const ALL: [Self; 3] = [Self::W1, Self::W3, Self::W6];

    /// Elements of a row at two bytes each, scaled: 3584 wide for chat, 2048 for the others.
    pub fn width(self) -> u64 {
        match self {
            Self::W1 => 3584 / SCALE,
            Self::W3 | Self::W6 => 2048 / SCALE,
        }
    }

    /// Draws the traffic from `from_ms` to `until_ms`, in the order of time.
    pub fn draw(
        self,
        stream: &mut Stream,
        topology: &Topology,
        from_ms: u64,
        until_ms: u64,
    ) -> Vec<Request> {
        let mut traffic = Traffic { stream, topology, requests: Vec::new(), items: Vec::new() };
        match self {
            Self::W1 => traffic.chat(from_ms, until_ms),
            Self::W3 => traffic.window(from_ms, until_ms),
            Self::W6 => traffic.storm(from_ms, until_ms),
        }
        let mut requests = traffic.requests;
        requests.sort_by_key(|request| request.at_ms);
        requests
    }
}

/// A profile while it is drawn.
struct Traffic<'a> {
    stream: &'a mut Stream,
    topology: &'a Topology,
    requests: Vec<Request>,
    items: Vec<Item>,
}

impl Traffic<'_> {
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
        if at_ms >= until_ms {
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
        workload.draw(&mut Stream::new(seed, "", "workload"), &topology(), 100, 5_000)
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
