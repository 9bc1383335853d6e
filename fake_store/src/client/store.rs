//! [`springtide::env::Store`]: buffers come in as transfers and go out when no I/O can touch them.

use std::{
    future::{Future, pending},
    sync::{Arc, atomic::Ordering},
};

use springtide::{
    env::{
        Clock, ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store, StoreError, StoreLimits,
        Time,
    },
    pool::{QuarantineCause, Region, Transfer},
};
use tokio::sync::oneshot;

use super::{
    Client, Closing,
    get::Get,
    put::{Put, PutCall},
};
use crate::{
    memory::{Buffer, lock},
    service::pause,
    transport::Transport,
};

impl<T: Transport, C: Clock> Store for Client<T, C> {
    fn limits(&self) -> StoreLimits {
        self.0.config.limits()
    }

    async fn register(&self, region: Arc<Region>) -> Result<(), StoreError> {
        let started = self.now();
        self.register_region(&region).await.map_err(|code| self.error(code, started))
    }

    async fn unregister(&self, region: Arc<Region>) -> Result<(), StoreError> {
        let started = self.now();
        self.unregister_region(&region).await.map_err(|code| self.error(code, started))
    }

    fn put(&self, items: Vec<PutItem>) -> impl Future<Output = Vec<Outcome<()>>> + Send {
        let client = self.clone();
        self.run(async move { client.put_items(items).await })
    }

    fn get(&self, items: Vec<GetItem>) -> impl Future<Output = Vec<Outcome<u64>>> + Send {
        let client = self.clone();
        self.run(async move { client.get_items(items).await })
    }

    async fn exists(&self, keys: Vec<Key>) -> Vec<Result<bool, StoreError>> {
        let started = self.now();
        let keys = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let results = self.batch_is_exist(keys).await;
        results.into_iter().map(|r| r.map_err(|code| self.error(code, started))).collect()
    }

    async fn size(&self, key: Key) -> Result<u64, StoreError> {
        let started = self.now();
        self.get_size(key.as_str()).await.map_err(|code| self.error(code, started))
    }

    async fn remove(&self, key: Key, force: bool) -> Result<(), StoreError> {
        let started = self.now();
        let mut removed = self.batch_remove(vec![key.as_str().to_owned()], force).await;
        let result = removed.pop().unwrap_or(Err(ErrorCode::Internal));
        result.map_err(|code| self.error(code, started))
    }

    async fn close(&self) -> Fence {
        self.0.closed.store(true, Ordering::Release);
        pause(&self.0.clock, self.0.config.closing_time).await;
        match self.0.config.closing {
            Closing::Fences => {
                self.0.transfers.fence().await;
                lock(&self.0.registered).clear();
                Fence::Fenced
            }
            Closing::LeavesTransfers => Fence::Unknown,
            Closing::Hangs => pending().await,
        }
    }
}

impl<T: Transport, C: Clock> Client<T, C> {
    /// Runs an operation that owns buffers in a task of its own. A caller that drops the future stops
    /// nothing: the task gives the buffers up when their I/O has ended.
    fn run<R, O>(
        &self,
        operation: O,
    ) -> impl Future<Output = Vec<Outcome<R>>> + Send + use<R, O, T, C>
    where
        R: Send + 'static,
        O: Future<Output = Vec<Outcome<R>>> + Send + 'static,
    {
        let (sender, outcomes) = oneshot::channel();
        (self.0.spawner)(Box::pin(async move {
            if let Err(unheard) = sender.send(operation.await) {
                unheard.into_iter().for_each(give_up);
            }
        }));
        async move {
            match outcomes.await {
                Ok(outcomes) => outcomes,
                // The task went with its host, and so does whoever waits.
                Err(_) => pending().await,
            }
        }
    }

    async fn put_items(&self, items: Vec<PutItem>) -> Vec<Outcome<()>> {
        let started = self.now();
        let puts = items.iter().map(|item| Put {
            key: item.key.as_str().to_owned(),
            buffer: Buffer::of(&item.source),
        });
        let single = self.0.config.buffers_per_object == 1;
        let call = if single { PutCall::Batch } else { PutCall::MultiBuffer };
        let config = self.0.config.replica.clone();
        let ends = self.put_batch(call, puts.collect(), &config).await;
        let ended = items.into_iter().zip(ends);
        ended.map(|(item, end)| self.outcome(item.source, end.result, end.late, started)).collect()
    }

    async fn get_items(&self, items: Vec<GetItem>) -> Vec<Outcome<u64>> {
        let started = self.now();
        let gets = items
            .iter()
            .map(|item| Get { key: item.key.as_str().to_owned(), buffer: Buffer::of(&item.dest) });
        let multi_buffer = self.0.config.buffers_per_object > 1;
        let ends = self.get_batch(gets.collect(), multi_buffer).await;
        let ended = items.into_iter().zip(ends);
        ended.map(|(item, end)| self.outcome(item.dest, end.result, end.late, started)).collect()
    }

    /// Gives a buffer back, or says that it cannot be.
    ///
    /// What counts is what a caller of Mooncake could know: after the transfer limit every -800 is
    /// uncertain, also of an item whose own transfer ended earlier.
    fn outcome<R>(
        &self,
        buffer: Transfer,
        result: Result<R, ErrorCode>,
        late: bool,
        started: Time,
    ) -> Outcome<R> {
        match result.map_err(|code| self.error(code, started)) {
            Err(error) if late || error.may_be_in_flight() => Outcome::Uncertain { buffer, error },
            result => Outcome::Ended { buffer: buffer.finish(), result },
        }
    }
}

/// What a task does with the buffers of a caller that has gone.
fn give_up<R>(outcome: Outcome<R>) {
    match outcome {
        Outcome::Ended { buffer, .. } => drop(buffer),
        Outcome::Uncertain { buffer, .. } => buffer.quarantine(QuarantineCause::Uncertain),
    }
}
