//! The injected world of the explorer: a clock that is moved by hand, a device that copies at once, no
//! network.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use springtide::{
    env::{
        Clock, DType, Device, DeviceError, Env, Listener, Network, Outcome, Shape, Task,
        TensorSpec, Time,
    },
    pool::{Transfer, View},
};

use super::{
    executor::{Executor, lock},
    store::Client,
};

/// Elements of a row, two bytes each.
pub(super) const WIDTH: u64 = 32;

/// Time that moves when the search says so.
#[derive(Clone, Default)]
pub(super) struct HandClock(Arc<Mutex<Hands>>);

#[derive(Default)]
struct Hands {
    now: Time,
    next: u64,
    sleepers: BTreeMap<u64, (Time, Waker)>,
}

impl HandClock {
    /// The next time at which somebody wakes up.
    pub(super) fn next(&self) -> Option<Time> {
        lock(&self.0).sleepers.values().map(|(until, _)| *until).min()
    }

    /// It is `now`: whoever slept until then wakes up.
    pub(super) fn move_to(&self, now: Time) {
        let woken: Vec<Waker> = {
            let mut hands = lock(&self.0);
            hands.now = hands.now.max(now);
            let due = hands.sleepers.values().filter(|(until, _)| *until <= now);
            due.map(|(_, waker)| waker.clone()).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Time {
        lock(&self.0).now
    }

    fn sleep_until(&self, deadline: Time) -> impl Future<Output = ()> + Send {
        Sleep { clock: self.clone(), deadline, id: None }
    }
}

/// A sleep that leaves no trace when it is given up.
struct Sleep {
    clock: HandClock,
    deadline: Time,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.deadline == Time::NEVER {
            return Poll::Pending;
        }
        let mut hands = lock(&self.clock.0);
        if hands.now >= self.deadline {
            return Poll::Ready(());
        }
        let id = self.id.unwrap_or(hands.next);
        hands.next += u64::from(self.id.is_none());
        hands.sleepers.insert(id, (self.deadline, cx.waker().clone()));
        drop(hands);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            lock(&self.clock.0).sleepers.remove(&id);
        }
    }
}

/// A tensor of one row.
#[derive(Clone)]
pub(super) struct Row(Arc<Mutex<Vec<u8>>>);

impl Row {
    /// The row of an item: every byte is the item's last letter.
    pub(super) fn of(item: &str) -> Self {
        let fill = item.bytes().last().unwrap_or(0);
        Self(Arc::new(Mutex::new(vec![fill; spec().bytes() as usize])))
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        lock(&self.0).clone()
    }
}

/// Type and shape of every item.
pub(super) fn spec() -> TensorSpec {
    let shape = Shape::rows(1, WIDTH).expect("a row has a shape");
    TensorSpec::new(DType::Bf16, shape).expect("a row has a length")
}

/// A device whose copies are over when they begin.
#[derive(Clone, Copy)]
pub(super) struct Instant;

impl Device for Instant {
    type Tensor = Row;
    type Event = ();

    fn spec(&self, _tensor: &Row) -> TensorSpec {
        spec()
    }

    fn copy_out(
        &self,
        tensor: Row,
        (): (),
        mut dest: Transfer,
        offset: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        dest.write_at(offset, &tensor.bytes());
        std::future::ready(Outcome::Ended { buffer: dest.finish(), result: Ok(()) })
    }

    fn copy_in(
        &self,
        source: View,
        offset: u64,
        tensor: Row,
        (): (),
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        source.read_at(offset, &mut lock(&tensor.0));
        std::future::ready(Ok(()))
    }
}

/// Nobody is there.
#[derive(Clone, Copy)]
pub(super) struct NoNetwork;

/// What listens to nobody: there is none.
pub(super) enum NoListener {}

impl Listener for NoListener {
    type Stream = tokio::io::DuplexStream;

    async fn accept(&mut self) -> io::Result<(Self::Stream, String)> {
        match *self {}
    }

    fn local_addr(&self) -> io::Result<String> {
        match *self {}
    }
}

impl Network for NoNetwork {
    type Stream = tokio::io::DuplexStream;
    type Listener = NoListener;

    async fn bind(&self, _address: &str) -> io::Result<NoListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect(&self, _address: &str) -> io::Result<Self::Stream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The environment of one host.
#[derive(Clone)]
pub(super) struct HandEnv {
    pub(super) clock: HandClock,
    pub(super) store: Client,
    pub(super) executor: Executor,
}

impl Env for HandEnv {
    type Clock = HandClock;
    type Network = NoNetwork;
    type Store = Client;
    type Device = Instant;

    fn clock(&self) -> &HandClock {
        &self.clock
    }

    fn network(&self) -> &NoNetwork {
        &NoNetwork
    }

    fn store(&self) -> &Client {
        &self.store
    }

    fn device(&self) -> &Instant {
        &Instant
    }

    fn spawn(&self, task: Task) {
        self.executor.spawn(task);
    }
}
