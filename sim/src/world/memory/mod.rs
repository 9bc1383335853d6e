//! A network in memory: links between hosts, sockets on them, and messages under way with their times.
//!
//! A message takes its link's latency, and arrives in the order of sending among those of one time. Links can be
//! cut, held and slowed down, each way for itself; a cut loses what is under way, a hold keeps it. Nothing is
//! sent again: a connection that has lost a segment waits for it for ever, and whoever ends a cut breaks the
//! connections over it ([`Links::reset`](super::network::Links::reset)), as on the other network. What is sent
//! to a host that is down arrives when it comes up again, and is refused there. The answer to a connection's
//! first message takes no time.

mod routes;
mod socket;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    io,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Poll, Waker},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use self::routes::{Route, RouteState};
use self::socket::{Phase, Segment, Socket, SocketId};
pub use self::stream::{HostNet, MemoryListener, MemoryStream};

/// The network of a world. Clones share it.
#[derive(Clone, Debug)]
pub struct Net(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    names: Vec<String>,
    hosts: Vec<HostState>,
    /// The way from each host to each.
    routes: BTreeMap<(usize, usize), Route>,
    sockets: BTreeMap<SocketId, Socket>,
    sockets_made: SocketId,
    /// Under way, by arrival and order of sending.
    flying: BTreeMap<(Instant, u64), Message>,
    sent: u64,
    /// Who carries, and until when it sleeps.
    carrier: Option<(Instant, Waker)>,
    closed: bool,
}

#[derive(Debug, Default)]
struct HostState {
    down: bool,
    /// What came while it was down.
    parked: Vec<Message>,
    /// Bound ports.
    listeners: BTreeMap<u16, Listening>,
}

#[derive(Debug, Default)]
struct Listening {
    /// Connections that were not accepted yet, by the end that asks.
    asking: VecDeque<SocketId>,
    acceptor: Option<Waker>,
}

#[derive(Debug)]
struct Message {
    from: usize,
    to: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A connection is asked for.
    Ask { client: SocketId, port: u16 },
    /// A segment of a connection.
    Segment { from: SocketId, to: SocketId, number: u64, segment: Segment },
    /// A connection is broken.
    Reset { to: SocketId },
}

impl Net {
    /// A network between `hosts`, all links of which have this latency.
    pub fn new(hosts: &[String], latency: Duration) -> Self {
        let numbers = 0..hosts.len();
        let pairs = numbers.clone().flat_map(|from| numbers.clone().map(move |to| (from, to)));
        let route = |pair| (pair, Route::whole(latency));
        Self(Arc::new(Mutex::new(State {
            names: hosts.to_vec(),
            hosts: hosts.iter().map(|_| HostState::default()).collect(),
            routes: pairs.map(route).collect(),
            sockets: BTreeMap::new(),
            sockets_made: 0,
            flying: BTreeMap::new(),
            sent: 0,
            carrier: None,
            closed: false,
        })))
    }

    /// The network as one host sees it.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn of(&self, host: &str) -> HostNet {
        HostNet::new(self.clone(), self.lock().number(host))
    }

    /// Delivers messages at their times until `until`; what arrives at that instant is delivered, and what
    /// it wakes runs afterwards.
    pub async fn carry(&self, until: Instant) {
        let mut sleep = pin!(sleep_until(until));
        poll_fn(|cx| {
            loop {
                let now = Instant::now();
                let mut state = self.lock();
                let next = state.deliver(now).map_or(until, |next| next.min(until));
                if now >= until {
                    state.carrier = None;
                    return Poll::Ready(());
                }
                state.carrier = Some((next, cx.waker().clone()));
                drop(state);
                if sleep.deadline() != next {
                    sleep.as_mut().reset(next);
                }
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// A host goes down: nothing arrives there any more.
    pub fn stop(&self, host: &str) {
        let mut state = self.lock();
        let number = state.number(host);
        state.hosts[number].down = true;
    }

    /// A host comes up again, and what came meanwhile finds nobody.
    pub fn restart(&self, host: &str) {
        let mut state = self.lock();
        let number = state.number(host);
        state.hosts[number].down = false;
        let parked = std::mem::take(&mut state.hosts[number].parked);
        parked.into_iter().for_each(|message| state.arrive(message));
    }

    /// Takes no message any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.flying.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while held")
    }
}

impl State {
    fn number(&self, host: &str) -> usize {
        self.find(host).unwrap_or_else(|| panic!("expected a host of the plan, got {host}"))
    }

    fn find(&self, host: &str) -> Option<usize> {
        self.names.iter().position(|name| name == host)
    }

    /// Sends a message on its way.
    fn send(&mut self, from: usize, to: usize, what: What) {
        if self.closed {
            return;
        }
        let message = Message { from, to, what };
        let route = self.route((from, to));
        match route.state {
            RouteState::Whole => {
                let at = Instant::now() + route.latency;
                self.fly(at, message);
            }
            RouteState::Held => route.held.push(message),
            RouteState::Cut => {}
        }
    }

    fn fly(&mut self, at: Instant, message: Message) {
        self.sent += 1;
        self.flying.insert((at, self.sent), message);
        if self.carrier.as_ref().is_some_and(|(until, _)| at < *until) {
            let (_, carrier) = self.carrier.take().expect("just looked at");
            carrier.wake();
        }
    }

    /// Delivers what has arrived by `now`; when the next message arrives.
    fn deliver(&mut self, now: Instant) -> Option<Instant> {
        while let Some(first) = self.flying.first_entry() {
            let at = first.key().0;
            if at > now {
                return Some(at);
            }
            let message = first.remove();
            if self.hosts[message.to].down {
                self.hosts[message.to].parked.push(message);
            } else {
                self.arrive(message);
            }
        }
        None
    }

    fn arrive(&mut self, message: Message) {
        let Message { from, to, what } = message;
        match what {
            What::Ask { client, port } => match self.hosts[to].listeners.get_mut(&port) {
                Some(listening) => {
                    listening.asking.push_back(client);
                    if let Some(acceptor) = listening.acceptor.take() {
                        acceptor.wake();
                    }
                }
                None => self.refuse(client),
            },
            What::Segment { from: sender, to: socket, number, segment } => {
                match self.sockets.get_mut(&socket).filter(|socket| socket.phase == Phase::Open) {
                    Some(socket) => socket.receive(number, segment),
                    None => self.send(to, from, What::Reset { to: sender }),
                }
            }
            What::Reset { to: socket } => {
                if let Some(socket) = self.sockets.get_mut(&socket) {
                    socket.turn(Phase::Reset);
                }
            }
        }
    }

    fn refuse(&mut self, client: SocketId) {
        if let Some(socket) = self.sockets.get_mut(&client) {
            socket.turn(Phase::Refused);
        }
    }

    /// A new end of a connection.
    fn open(&mut self, host: usize, peer_host: usize, peer: Option<SocketId>) -> SocketId {
        self.sockets_made += 1;
        self.sockets.insert(self.sockets_made, Socket::new(host, peer_host, peer));
        self.sockets_made
    }

    /// Accepts the next connection to a bound port, unless its client has given up.
    fn accept(&mut self, host: usize, port: u16) -> Option<(SocketId, SocketId)> {
        let listening = self.hosts[host].listeners.get_mut(&port)?;
        while let Some(client) = listening.asking.pop_front() {
            if let Some(asking) = self.sockets.get(&client) {
                let server = self.open(host, asking.host, Some(client));
                let asking = self.sockets.get_mut(&client).expect("just looked at");
                asking.peer = Some(server);
                asking.turn(Phase::Open);
                return Some((server, client));
            }
        }
        None
    }

    fn bind(&mut self, host: usize, port: u16) -> io::Result<u16> {
        let listeners = &mut self.hosts[host].listeners;
        let free = || (49_152..=u16::MAX).find(|port| !listeners.contains_key(port));
        let port = if port == 0 { free().ok_or(io::ErrorKind::AddrInUse)? } else { port };
        if listeners.contains_key(&port) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        listeners.insert(port, Listening::default());
        Ok(port)
    }

    fn unbind(&mut self, host: usize, port: u16) {
        let listening = self.hosts[host].listeners.remove(&port);
        let asking = listening.into_iter().flat_map(|listening| listening.asking);
        asking.for_each(|client| self.refuse(client));
    }

    /// An end of a connection is dropped: the other one hears of it.
    fn drop_socket(&mut self, id: SocketId) {
        let Some(mut socket) = self.sockets.remove(&id) else { return };
        let (Phase::Open, Some(peer)) = (socket.phase, socket.peer) else { return };
        let (host, peer_host) = (socket.host, socket.peer_host);
        if socket.has_unread() {
            // The peer must learn that what it sent was lost.
            self.send(host, peer_host, What::Reset { to: peer });
        } else if !socket.shut {
            let (number, segment) = (socket.next_number(), Segment::End);
            self.send(host, peer_host, What::Segment { from: id, to: peer, number, segment });
        }
    }
}
