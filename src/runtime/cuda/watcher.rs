//! The thread that asks whether copies are done, so that no other has to.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
    thread,
    time::Duration,
};

use super::{
    driver::{CudaError, Driver},
    lane::Mark,
};

/// Between two rounds of asking. A copy of a MiB takes twice as long.
const PAUSE: Duration = Duration::from_micros(20);

/// What is to be done at the end of a copy: it owns all that the copy uses. The error is that of the work before
/// the event: nobody knows then how far it came.
type AtEnd = Box<dyn FnOnce(Result<(), CudaError>) + Send>;

/// A copy under way.
pub(super) struct Watched<D: Driver> {
    done: Mark<D>,
    at_end: AtEnd,
}

impl<D: Driver> Watched<D> {
    pub(super) fn new(
        done: Mark<D>,
        at_end: impl FnOnce(Result<(), CudaError>) + Send + 'static,
    ) -> Self {
        Self { done, at_end: Box::new(at_end) }
    }
}

/// Starts the thread. It ends when the sender has gone and every copy is done. There are never more copies than
/// leases and views, which the pool bounds.
pub(super) fn start<D: Driver>() -> io::Result<Sender<Watched<D>>> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("springtide-cuda".into());
    thread.spawn(move || watch(&receiver))?;
    Ok(sender)
}

fn watch<D: Driver>(receiver: &Receiver<Watched<D>>) {
    let mut copies: Vec<Watched<D>> = Vec::new();
    let mut open = true;
    while open || !copies.is_empty() {
        if copies.is_empty() {
            match receiver.recv() {
                Ok(copy) => copies.push(copy),
                Err(_) => open = false,
            }
        }
        loop {
            match receiver.try_recv() {
                Ok(copy) => copies.push(copy),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    open = false;
                    break;
                }
            }
        }
        copies = ask(copies);
        if !copies.is_empty() {
            thread::park_timeout(PAUSE);
        }
    }
}

/// Ends those that are done; the others.
fn ask<D: Driver>(copies: Vec<Watched<D>>) -> Vec<Watched<D>> {
    let mut running = Vec::with_capacity(copies.len());
    for copy in copies {
        match copy.done.has_come() {
            Ok(false) => running.push(copy),
            Ok(true) => (copy.at_end)(Ok(())),
            Err(error) => (copy.at_end)(Err(error)),
        }
    }
    running
}
