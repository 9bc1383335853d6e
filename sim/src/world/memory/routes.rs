//! The ways between hosts, each direction for itself, and what faults do to them.

use std::time::Duration;

use tokio::time::Instant;

use super::{Message, Net, State};

/// The way from one host to another.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) state: RouteState,
    pub(super) latency: Duration,
    pub(super) held: Vec<Message>,
}

/// What becomes of messages on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteState {
    Whole,
    Cut,
    Held,
}

impl Route {
    /// A way that nothing disturbs.
    pub(super) fn whole(latency: Duration) -> Self {
        Self { state: RouteState::Whole, latency, held: Vec::new() }
    }
}

impl Net {
    /// Loses what is and will be under way from one host to another.
    pub fn cut(&self, from: &str, to: &str) {
        let mut state = self.lock();
        let way = state.way(from, to);
        let route = state.route(way);
        route.state = RouteState::Cut;
        route.held.clear();
        state.flying.retain(|_, message| (message.from, message.to) != way);
    }

    /// Makes a way whole again; what was lost or is held stays so.
    pub fn mend(&self, from: &str, to: &str) {
        let mut state = self.lock();
        let way = state.way(from, to);
        state.route(way).state = RouteState::Whole;
    }

    /// Keeps what is and will be under way from one host to another.
    pub fn hold(&self, from: &str, to: &str) {
        let mut state = self.lock();
        let way = state.way(from, to);
        let on_way = |message: &Message| (message.from, message.to) == way;
        let held: Vec<Message> =
            state.flying.extract_if(.., |_, message| on_way(message)).map(|(_, m)| m).collect();
        let route = state.route(way);
        route.state = RouteState::Held;
        route.held.extend(held);
    }

    /// Makes a way whole again and delivers what was held.
    pub fn release(&self, from: &str, to: &str) {
        let mut state = self.lock();
        let way = state.way(from, to);
        let route = state.route(way);
        route.state = RouteState::Whole;
        let held = std::mem::take(&mut route.held);
        let now = Instant::now();
        held.into_iter().for_each(|message| state.fly(now, message));
    }

    /// Sets the latency of what is sent from now on.
    pub fn set_latency(&self, from: &str, to: &str, latency: Duration) {
        let mut state = self.lock();
        let way = state.way(from, to);
        state.route(way).latency = latency;
    }
}

impl State {
    fn way(&self, from: &str, to: &str) -> (usize, usize) {
        (self.number(from), self.number(to))
    }

    pub(super) fn route(&mut self, way: (usize, usize)) -> &mut Route {
        self.routes.get_mut(&way).expect("there is a way between any two hosts")
    }
}
