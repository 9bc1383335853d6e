//! The data calls with Mooncake's own names, over memory that the caller answers for: what a program of the
//! C ABI or of the Python class asks. [`springtide::env::Store`] is the same for pool memory.

use std::sync::Arc;

use springtide::env::{Clock, ErrorCode};

use super::{
    Client,
    get::Get,
    put::{Put, PutCall},
};
use crate::{
    memory::{Buffer, CallerMemory},
    protocol::ReplicaConfig,
    transport::Transport,
};

/// An object's name and where its bytes come from or go to.
pub type Item = (String, Arc<dyn CallerMemory>);

impl<T: Transport, C: Clock> Client<T, C> {
    /// `put_from`. No bytes succeed and store nothing, whatever the key.
    ///
    /// # Errors
    /// The store's code.
    pub async fn put_from(&self, item: Item, config: &ReplicaConfig) -> Result<(), ErrorCode> {
        if self.is_closed() {
            return Err(ErrorCode::InvalidParams);
        }
        if Buffer::Caller(item.1.clone()).len() == 0 {
            return Ok(());
        }
        let ends = self.put_caller(PutCall::Single, vec![item], config).await;
        ends.into_iter().next().unwrap_or(Err(ErrorCode::Internal))
    }

    /// `batch_put_from`: one result each. Of equal keys the last one's bytes are stored.
    pub async fn batch_put_from(
        &self,
        items: Vec<Item>,
        config: &ReplicaConfig,
    ) -> Vec<Result<(), ErrorCode>> {
        self.put_caller(PutCall::Batch, items, config).await
    }

    /// `batch_put_from_multi_buffers`: one result each. Of equal keys the first one's bytes are stored.
    pub async fn batch_put_from_multi_buffers(
        &self,
        items: Vec<Item>,
        config: &ReplicaConfig,
    ) -> Vec<Result<(), ErrorCode>> {
        self.put_caller(PutCall::MultiBuffer, items, config).await
    }

    /// `get_into`: the object's length. Larger memory is fine.
    ///
    /// # Errors
    /// The store's code; [`ErrorCode::InvalidParams`] for memory that is too small.
    pub async fn get_into(&self, item: Item) -> Result<u64, ErrorCode> {
        let ends = self.batch_get_into(vec![item]).await;
        ends.into_iter().next().unwrap_or(Err(ErrorCode::Internal))
    }

    /// `batch_get_into`: the objects' lengths. Of equal keys only the last memory is filled.
    pub async fn batch_get_into(&self, items: Vec<Item>) -> Vec<Result<u64, ErrorCode>> {
        self.get_caller(items, false).await
    }

    /// `batch_get_into_multi_buffers`: the same, but memory that is too large fails with -800.
    pub async fn batch_get_into_multi_buffers(
        &self,
        items: Vec<Item>,
    ) -> Vec<Result<u64, ErrorCode>> {
        self.get_caller(items, true).await
    }

    async fn put_caller(
        &self,
        call: PutCall,
        items: Vec<Item>,
        config: &ReplicaConfig,
    ) -> Vec<Result<(), ErrorCode>> {
        let puts =
            items.into_iter().map(|(key, memory)| Put { key, buffer: Buffer::Caller(memory) });
        let ends = self.put_batch(call, puts.collect(), config).await;
        ends.into_iter().map(|end| end.result).collect()
    }

    async fn get_caller(
        &self,
        items: Vec<Item>,
        multi_buffer: bool,
    ) -> Vec<Result<u64, ErrorCode>> {
        let gets =
            items.into_iter().map(|(key, memory)| Get { key, buffer: Buffer::Caller(memory) });
        let ends = self.get_batch(gets.collect(), multi_buffer).await;
        ends.into_iter().map(|end| end.result).collect()
    }
}
