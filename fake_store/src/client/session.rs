//! A put in its single steps (Mooncake's put sessions): to hold an object half written, and to see what
//! becomes of a writer that dies.

use springtide::env::{Clock, ErrorCode};

use super::{Client, batch};
use crate::{
    faults::Point,
    memory::Buffer,
    protocol::{Call, NewObject, Replica, ReplicaConfig, Reply},
    transport::{Job, Transport},
};

/// A put that has been started. Dropping it abandons the object half written, as a dead writer does.
#[derive(Debug)]
#[must_use = "dropping it abandons the object half written"]
pub struct PutSession<T, C> {
    client: Client<T, C>,
    key: String,
    replicas: Vec<Replica>,
}

impl<T: Transport, C: Clock> Client<T, C> {
    /// Starts a put of `bytes` bytes.
    ///
    /// # Errors
    /// The store's code; unlike in other puts [`ErrorCode::ObjectAlreadyExists`] is one.
    pub async fn start_put(
        &self,
        key: &str,
        bytes: u64,
        config: &ReplicaConfig,
    ) -> Result<PutSession<T, C>, ErrorCode> {
        let objects = vec![NewObject { key: key.to_owned(), bytes }];
        let call = Call::PutStart { objects, config: config.clone() };
        let mut started: Vec<_> = batch!(self.call(call).await, Reply::Started, 1);
        let replicas = started.pop().unwrap_or(Err(ErrorCode::Internal))?;
        Ok(PutSession { client: self.clone(), key: key.to_owned(), replicas })
    }
}

impl<T: Transport, C: Clock> PutSession<T, C> {
    /// Where the object will lie.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Writes a range of the object to every replica.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] for a range that leaves the object, [`ErrorCode::TransferFail`].
    pub async fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ErrorCode> {
        for (number, replica) in self.replicas.iter().enumerate() {
            let len = bytes.len() as u64;
            if offset.checked_add(len).is_none_or(|end| end > replica.bytes) {
                return Err(ErrorCode::InvalidParams);
            }
            let replica =
                Replica { offset: replica.offset + offset, bytes: len, ..replica.clone() };
            let buffer = Buffer::owned(bytes.to_vec());
            let (client, key) = (self.client.config().id, self.key.clone());
            let job = Job { client, key, number, replica, buffer };
            let running = self.client.submit(Point::Write, job);
            self.client.wait(running).await.result?;
        }
        Ok(())
    }

    /// Makes the object visible.
    ///
    /// # Errors
    /// The store's code.
    pub async fn end(&self) -> Result<(), ErrorCode> {
        self.finish(Call::PutEnd { keys: vec![self.key.clone()] }).await
    }

    /// Gives the object up.
    ///
    /// # Errors
    /// The store's code.
    pub async fn revoke(&self) -> Result<(), ErrorCode> {
        self.finish(Call::PutRevoke { keys: vec![self.key.clone()] }).await
    }

    async fn finish(&self, call: Call) -> Result<(), ErrorCode> {
        let mut done: Vec<_> = batch!(self.client.call(call).await, Reply::Done, 1);
        done.pop().unwrap_or(Err(ErrorCode::Internal))
    }
}
