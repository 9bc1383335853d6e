//! The driver: turns what the machine of saves decides into store calls, and their ends into events.

use std::pin::pin;

use super::{Uploader, bounded};
use crate::{
    connector::{
        object,
        saves::{Action, PutEnd, UploadId},
    },
    env::{Clock, Env, Key, Outcome, PutItem, Store, StoreError, Time},
    pool::QuarantineCause,
    sync::Arc,
};

impl<E: Env> Uploader<E> {
    pub(super) async fn drive(self: Arc<Self>) {
        loop {
            let mut wake = pin!(self.wake.notified());
            wake.as_mut().enable();
            let now = self.env.clock().now();
            let (action, wakeup, stopped) = {
                let mut state = self.lock();
                (state.saves.next_action(now), state.saves.next_wakeup(), state.stopped)
            };
            match action {
                Some(Action::Release(upload, key)) => self.release(upload, key),
                Some(action) if !stopped => {
                    self.env.spawn(Box::pin(Arc::clone(&self).perform(action)));
                }
                _ if stopped => return,
                _ => {
                    // A deadline may have resolved tickets.
                    self.changed.notify_waiters();
                    tokio::select! {
                        biased;
                        () = wake => {}
                        () = self.env.clock().sleep_until(wakeup.unwrap_or(Time::NEVER)) => {}
                    }
                }
            }
        }
    }

    async fn perform(self: Arc<Self>, action: Action) {
        match action {
            Action::Check(batch) => {
                let (ids, keys) = batch.into_iter().unzip();
                let answers = self.exists(keys).await;
                let mut state = self.lock();
                for (id, answer) in zip_ids(ids, answers) {
                    state.saves.checked(id, answer.unwrap_or(Ok(false)));
                }
            }
            Action::Probe(batch) => {
                let (ids, keys) = batch.into_iter().unzip();
                let started = self.env.clock().now();
                let answers = self.exists(keys).await;
                let now = self.env.clock().now();
                let mut state = self.lock();
                for (id, answer) in zip_ids(ids, answers) {
                    state.times.probe.record(now - started);
                    state.saves.probed(id, answer.unwrap_or(Ok(false)), now);
                }
            }
            Action::Put(batch) => self.put(batch).await,
            Action::Release(upload, key) => self.release(upload, key),
        }
        self.notify();
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let limit = self.env.clock().now() + self.config.io_timeout;
        let answers = bounded(&self.env, limit, || self.env.store().exists(keys)).await;
        answers.unwrap_or_default()
    }

    async fn put(&self, batch: Vec<(UploadId, Key)>) {
        let mut ids = Vec::with_capacity(batch.len());
        let mut items = Vec::with_capacity(batch.len());
        let started = self.env.clock().now();
        {
            let mut state = self.lock();
            for (id, key) in batch {
                match state.leases.remove(&id) {
                    Some((lease, since)) => {
                        state.times.queue.record(started - since);
                        ids.push(id);
                        items.push(PutItem { key, source: lease.into_transfer() });
                    }
                    None => {
                        debug_assert!(false, "upload {id:?} of {key} has no memory");
                        state.saves.put_ended(id, PutEnd::Lost, self.env.clock().now());
                    }
                }
            }
        }
        let limit = started + self.config.io_timeout;
        let outcomes = bounded(&self.env, limit, || self.env.store().put(items)).await;
        let now = self.env.clock().now();
        let mut state = self.lock();
        for (id, outcome) in zip_ids(ids, outcomes.unwrap_or_default()) {
            state.times.put.record(now - started);
            let end = match outcome {
                None => PutEnd::Lost,
                Some(Outcome::Uncertain { buffer, error }) => {
                    buffer.quarantine(QuarantineCause::Uncertain);
                    PutEnd::Uncertain(error)
                }
                Some(Outcome::Ended { buffer, result }) => {
                    state.leases.insert(id, (buffer, now));
                    result.map_or_else(PutEnd::Failed, |()| PutEnd::Done)
                }
            };
            state.saves.put_ended(id, end, now);
        }
    }

    /// The upload is over. Whatever became of it, its bytes are the item's: keep them as a resident.
    fn release(&self, upload: UploadId, key: Key) {
        let now = self.env.clock().now();
        let mut state = self.lock();
        if let Some(begun) = state.begun.remove(&upload) {
            state.times.save.record(now - begun);
        }
        let Some((lease, _)) = state.leases.remove(&upload) else { return };
        let pin = lease.publish(object::key_tag(&key));
        if let Some(replaced) = state.residents.insert(key, pin.handle()) {
            // Stale means that it has gone already.
            let _ = self.memory.pool.discard(replaced);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// Pairs ids with answers; a store that answers less than it was asked leaves `None`.
fn zip_ids<T>(ids: Vec<UploadId>, answers: Vec<T>) -> impl Iterator<Item = (UploadId, Option<T>)> {
    let mut answers = answers.into_iter();
    ids.into_iter().map(move |id| (id, answers.next()))
}
