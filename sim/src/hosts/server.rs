//! The front of an engine: takes jobs from connections, gives answers back, notices aborts.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use springtide::env::{Listener, Network};
use tokio::{
    io::AsyncReadExt,
    sync::{Notify, oneshot},
};

use super::wire::{self, Answer, ENGINE_PORT, Job};
use crate::world::{host::Host, network::SimStream};

/// A job that waits for its answer.
#[derive(Debug)]
pub struct Arrival {
    /// What to do.
    pub job: Job,
    answer: Option<oneshot::Sender<()>>,
    aborted: Arc<AtomicBool>,
}

impl Arrival {
    /// Whether the client has gone.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Answers the client; one that has gone does not hear it.
    pub fn finish(mut self) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(());
        }
    }
}

/// The jobs that an engine has not begun.
#[derive(Clone, Debug, Default)]
pub struct Queue(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    arrivals: Mutex<VecDeque<Arrival>>,
    arrived: Notify,
}

impl Queue {
    /// Ends when there is a job.
    pub async fn arrived(&self) {
        loop {
            let mut arrived = std::pin::pin!(self.0.arrived.notified());
            arrived.as_mut().enable();
            if !self.lock().is_empty() {
                return;
            }
            arrived.await;
        }
    }

    /// Takes up to `max` jobs, the oldest first.
    pub fn take(&self, max: usize) -> Vec<Arrival> {
        let mut arrivals = self.lock();
        let count = arrivals.len().min(max);
        arrivals.drain(..count).collect()
    }

    fn push(&self, arrival: Arrival) {
        self.lock().push_back(arrival);
        self.0.arrived.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arrival>> {
        self.0.arrivals.lock().expect("no panic while held")
    }
}

/// Accepts connections until the end of the world.
pub async fn accept(host: Host, queue: Queue) {
    let address = format!("{}:{ENGINE_PORT}", host.process.host());
    let mut listener = host.network.bind(&address).await.expect("the port is free");
    loop {
        // A connection that fails while it is accepted is its client's loss.
        if let Ok((stream, _)) = listener.accept().await {
            host.process.spawn(Box::pin(connection(stream, queue.clone())));
        }
    }
}

/// Carries one job. Ends without an answer when the client goes or the stream breaks.
async fn connection(mut stream: SimStream, queue: Queue) {
    let Ok(job) = wire::receive::<Job>(&mut stream).await else { return };
    let request = job.request;
    let (answer, answered) = oneshot::channel();
    let aborted = Arc::new(AtomicBool::new(false));
    queue.push(Arrival { job, answer: Some(answer), aborted: Arc::clone(&aborted) });
    tokio::select! {
        biased;
        answered = answered => {
            if answered.is_ok() {
                let _ = wire::send(&mut stream, &Answer { request }).await;
            }
        }
        // Nothing more is sent: whatever comes is the end.
        _ = stream.read_u8() => aborted.store(true, Ordering::Relaxed),
    }
}
