//! The calls that own no caller's memory: questions, removals, registration, and the copying path.

use std::sync::{Arc, atomic::Ordering};

use springtide::{
    env::{Clock, ErrorCode},
    pool::Region,
};

use super::{
    Client, batch,
    get::Get,
    put::{Put, PutCall},
};
use crate::{
    faults::{Occurrence, Point, When},
    memory::{Buffer, lock},
    protocol::{Call, ReplicaConfig, Reply},
    service::{Broken, pass},
    transport::Transport,
};

impl<T: Transport, C: Clock> Client<T, C> {
    /// `put`: copies the value into the staging buffer, then puts it.
    ///
    /// # Errors
    /// The store's code; [`ErrorCode::InvalidParams`] for no bytes, or more than the staging buffer holds.
    pub async fn put_bytes(
        &self,
        key: &str,
        value: Vec<u8>,
        config: &ReplicaConfig,
    ) -> Result<(), ErrorCode> {
        self.put_one(PutCall::Single, key, value, config).await
    }

    /// `put_parts`: the same for a value in several parts; no bytes at all succeed and store nothing.
    ///
    /// # Errors
    /// As [`Client::put_bytes`].
    pub async fn put_parts(
        &self,
        key: &str,
        parts: &[&[u8]],
        config: &ReplicaConfig,
    ) -> Result<(), ErrorCode> {
        let value = parts.concat();
        if value.is_empty() {
            return Ok(());
        }
        self.put_one(PutCall::Single, key, value, config).await
    }

    /// `upsert`: puts a value over whatever is there.
    ///
    /// # Errors
    /// As [`Client::put_bytes`]; after [`ErrorCode::NoAvailableHandle`] the old object is gone, too.
    pub async fn upsert(
        &self,
        key: &str,
        value: Vec<u8>,
        config: &ReplicaConfig,
    ) -> Result<(), ErrorCode> {
        self.put_one(PutCall::Upsert, key, value, config).await
    }

    /// `put_batch`: several values at once; one result each. A value that cannot be staged (no bytes, or more
    /// than there is room for) fails all of them before anything is put.
    pub async fn put_bytes_batch(
        &self,
        values: Vec<(String, Vec<u8>)>,
        config: &ReplicaConfig,
    ) -> Vec<Result<(), ErrorCode>> {
        let total: u64 = values.iter().map(|(_, value)| value.len() as u64).sum();
        let has_empty = values.iter().any(|(_, value)| value.is_empty());
        if total > self.0.config.local_buffer_bytes || has_empty {
            return vec![Err(ErrorCode::InvalidParams); values.len()];
        }
        let puts = values.into_iter().map(|(key, value)| Put { key, buffer: Buffer::owned(value) });
        let ends = self.put_batch(PutCall::MultiBuffer, puts.collect(), config).await;
        ends.into_iter().map(|end| end.result).collect()
    }

    /// `get`: fetches a value through the staging buffer.
    ///
    /// # Errors
    /// The store's code; [`ErrorCode::InvalidParams`] if the staging buffer is too small for it.
    pub async fn get_bytes(&self, key: &str) -> Result<Vec<u8>, ErrorCode> {
        let asked = self.now();
        let mut found = self.look_up(vec![key.to_owned()]).await;
        let readable = found.pop().unwrap_or(Err(ErrorCode::Internal))?;
        let bytes = readable.replicas.first().ok_or(ErrorCode::InvalidReplica)?.bytes;
        if bytes > self.0.config.local_buffer_bytes {
            return Err(ErrorCode::InvalidParams);
        }
        let buffer = Buffer::owned(vec![0; bytes as usize]);
        let get = Get { key: key.to_owned(), buffer: buffer.clone() };
        let ended = self.fetch(vec![get], vec![Ok(readable)], asked, false).await;
        let delivered = ended.first().map_or(Err(ErrorCode::Internal), |end| end.result)?;
        let mut value = buffer.into_bytes();
        value.truncate(delivered as usize);
        Ok(value)
    }

    /// `batch_is_exist`: whether each key is readable; takes leases.
    pub async fn batch_is_exist(&self, keys: Vec<String>) -> Vec<Result<bool, ErrorCode>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let n = keys.len();
        batch!(self.call(Call::Exist { keys }).await, Reply::Exists, n)
    }

    /// `is_exist`: whether a key is readable; takes a lease.
    ///
    /// # Errors
    /// The store's code.
    pub async fn is_exist(&self, key: &str) -> Result<bool, ErrorCode> {
        let mut results = self.batch_is_exist(vec![key.to_owned()]).await;
        results.pop().unwrap_or(Err(ErrorCode::Internal))
    }

    /// `get_size`: an object's length; takes a lease.
    ///
    /// # Errors
    /// The store's code.
    pub async fn get_size(&self, key: &str) -> Result<u64, ErrorCode> {
        let call = Call::Size { keys: vec![key.to_owned()] };
        let mut results: Vec<_> = batch!(self.call(call).await, Reply::Found, 1);
        let readable = results.pop().unwrap_or(Err(ErrorCode::Internal))?;
        readable.replicas.first().map(|r| r.bytes).ok_or(ErrorCode::InvalidReplica)
    }

    /// `batch_remove`: one result each.
    pub async fn batch_remove(&self, keys: Vec<String>, force: bool) -> Vec<Result<(), ErrorCode>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let n = keys.len();
        batch!(self.call(Call::Remove { keys, force }).await, Reply::Done, n)
    }

    /// `remove_by_regex`: how many objects went whose key contains a match.
    ///
    /// # Errors
    /// The store's code; [`ErrorCode::InvalidParams`] for a bad pattern.
    pub async fn remove_by_regex(&self, pattern: &str, force: bool) -> Result<u64, ErrorCode> {
        let pattern = pattern.to_owned();
        self.removed(Call::RemoveByRegex { pattern, force }).await
    }

    /// `remove_all`: how many objects went.
    ///
    /// # Errors
    /// The store's code.
    pub async fn remove_all(&self, force: bool) -> Result<u64, ErrorCode> {
        self.removed(Call::RemoveAll { force }).await
    }

    /// `health_check`: 0 healthy, 1 closed, 2 the last ping of an own segment failed. A client without
    /// segments pings nobody and stays healthy.
    pub fn health_check(&self) -> i32 {
        if self.is_closed() {
            1
        } else if self.0.transport.pings_ok() {
            0
        } else {
            2
        }
    }

    /// `get_hostname`.
    pub fn hostname(&self) -> &str {
        &self.0.config.hostname
    }

    /// Transfers under way, those included whose callers were told that they failed.
    pub fn active_transfers(&self) -> usize {
        self.0.transfers.active()
    }

    /// Waits until no transfer is under way.
    pub async fn settle(&self) {
        self.0.transfers.settle().await;
    }

    /// Bytes of registered memory.
    pub fn registered_bytes(&self) -> u64 {
        lock(&self.0.registered).values().map(|bytes| *bytes as u64).sum()
    }

    /// `register_buffer`: memory that transfers may touch.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] for no bytes or an overlap with what is registered.
    pub async fn register_buffer(&self, start: usize, bytes: usize) -> Result<(), ErrorCode> {
        self.pass_local(Point::Register, When::Before).await?;
        let end = start.checked_add(bytes).ok_or(ErrorCode::InvalidParams)?;
        {
            let mut registered = lock(&self.0.registered);
            let before = registered.range(..end).next_back();
            let overlaps = before.is_some_and(|(other, len)| other + len > start);
            if self.0.closed.load(Ordering::Acquire) || bytes == 0 || overlaps {
                return Err(ErrorCode::InvalidParams);
            }
            registered.insert(start, bytes);
        }
        self.pass_local(Point::Register, When::After).await
    }

    /// `unregister_buffer`: takes the registration that begins at `start` back.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] if none does.
    pub async fn unregister_buffer(&self, start: usize) -> Result<(), ErrorCode> {
        self.pass_local(Point::Unregister, When::Before).await?;
        let removed = lock(&self.0.registered).remove(&start);
        // Closing ended every registration: there is nothing left to undo.
        if removed.is_none() && !self.is_closed() {
            return Err(ErrorCode::InvalidParams);
        }
        self.pass_local(Point::Unregister, When::After).await
    }

    pub(super) async fn register_region(&self, region: &Arc<Region>) -> Result<(), ErrorCode> {
        self.register_buffer(region.base() as usize, region.len() as usize).await
    }

    pub(super) async fn unregister_region(&self, region: &Arc<Region>) -> Result<(), ErrorCode> {
        self.unregister_buffer(region.base() as usize).await
    }

    async fn pass_local(&self, point: Point, when: When) -> Result<(), ErrorCode> {
        let client = self.0.config.id;
        let occurrence = Occurrence { point, when, key: "", client, replica: 0 };
        match pass(&self.0.clock, &self.0.faults, occurrence).await {
            Ok(()) => Ok(()),
            Err(Broken::Code(code)) => Err(code),
            // Plans that would be silent here are refused.
            Err(_) => Err(ErrorCode::Internal),
        }
    }

    async fn put_one(
        &self,
        call: PutCall,
        key: &str,
        value: Vec<u8>,
        config: &ReplicaConfig,
    ) -> Result<(), ErrorCode> {
        // No bytes cannot be staged either.
        if value.is_empty() || value.len() as u64 > self.0.config.local_buffer_bytes {
            return Err(ErrorCode::InvalidParams);
        }
        let put = Put { key: key.to_owned(), buffer: Buffer::owned(value) };
        let ends = self.put_batch(call, vec![put], config).await;
        ends.first().map_or(Err(ErrorCode::Internal), |end| end.result)
    }

    async fn removed(&self, call: Call) -> Result<u64, ErrorCode> {
        match self.call(call).await? {
            Reply::Removed(result) => result.map_err(|code| code.0),
            _ => Err(ErrorCode::RpcFail),
        }
    }
}
