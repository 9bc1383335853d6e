//! The put protocol: start, transfer every replica, end or revoke.

use std::collections::BTreeMap;

use springtide::env::{Clock, ErrorCode};

use super::{Client, batch, transfers::Ended};
use crate::{
    faults::Point,
    memory::Buffer,
    protocol::{Call, NewObject, Replica, ReplicaConfig, Reply},
    transport::{Job, Transport},
};

/// An object to be put.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub(super) key: String,
    pub(super) buffer: Buffer,
}

/// Which of Mooncake's put calls it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutCall {
    /// `batch_put_from`, one buffer each: of equal keys the last one's bytes are stored.
    Batch,
    /// `batch_put_from_multi_buffers` and `put_batch`: of equal keys the first one's bytes are stored.
    MultiBuffer,
    /// `upsert` and its batch form.
    Upsert,
    /// A single put: a failed revoke hides the failed transfer.
    Single,
}

/// How a put ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PutEnd {
    pub(super) result: Result<(), ErrorCode>,
    /// A transfer of it goes on.
    pub(super) late: bool,
}

impl<T: Transport, C: Clock> Client<T, C> {
    /// Puts a batch; one end an item, in order.
    pub(super) async fn put_batch(
        &self,
        call: PutCall,
        puts: Vec<Put>,
        config: &ReplicaConfig,
    ) -> Vec<PutEnd> {
        let sources = sources(call, &puts);
        let mut ends: Vec<Option<PutEnd>> =
            sources.iter().map(|source| self.refuse(&puts[*source].buffer)).collect();
        let valid: Vec<usize> = (0..puts.len()).filter(|i| ends[*i].is_none()).collect();

        let started = self.start(call, &puts, &sources, &valid, config).await;
        let transferred = self.transfer(&puts, &sources, &valid, started, &mut ends).await;

        let good: Vec<usize> = keep(&transferred, |ended| ended.result.is_ok());
        let bad: Vec<usize> = keep(&transferred, |ended| ended.result.is_err());
        let finished = self.finish(&puts, &good, |keys| Call::PutEnd { keys }).await;
        for (i, result) in good.into_iter().zip(finished) {
            // Nothing is revoked if the end fails: the object stays as it is until it is discarded.
            ends[i] = Some(PutEnd { result, late: false });
        }
        let revoked = self.finish(&puts, &bad, |keys| Call::PutRevoke { keys }).await;
        for (i, revoke) in bad.into_iter().zip(revoked) {
            let Ended { result, late } = transferred[&i];
            let result = match revoke {
                Err(code) if call == PutCall::Single => Err(code),
                _ => result.map(|_| ()),
            };
            ends[i] = Some(PutEnd { result, late });
        }
        let unresolved = PutEnd { result: Err(ErrorCode::Internal), late: false };
        ends.into_iter().map(|end| end.unwrap_or(unresolved)).collect()
    }

    /// What the client refuses without asking the master. Keys and lengths are the master's matter.
    fn refuse(&self, source: &Buffer) -> Option<PutEnd> {
        let refused = self.is_closed() || self.is_too_scattered(source);
        refused.then_some(PutEnd { result: Err(ErrorCode::InvalidParams), late: false })
    }

    async fn start(
        &self,
        call: PutCall,
        puts: &[Put],
        sources: &[usize],
        valid: &[usize],
        config: &ReplicaConfig,
    ) -> Vec<Result<Vec<Replica>, ErrorCode>> {
        if valid.is_empty() {
            return Vec::new();
        }
        let objects = valid.iter().map(|i| NewObject {
            key: puts[*i].key.clone(),
            bytes: puts[sources[*i]].buffer.len(),
        });
        let (objects, config) = (objects.collect(), config.clone());
        let request = match call {
            PutCall::Upsert => Call::UpsertStart { objects, config },
            _ => Call::PutStart { objects, config },
        };
        batch!(self.call(request).await, Reply::Started, valid.len())
    }

    /// Submits all transfers, then waits for them in the order of the keys. Items that were not started get
    /// their end; those that were are returned with how their transfers ended.
    async fn transfer(
        &self,
        puts: &[Put],
        sources: &[usize],
        valid: &[usize],
        started: Vec<Result<Vec<Replica>, ErrorCode>>,
        ends: &mut [Option<PutEnd>],
    ) -> BTreeMap<usize, Ended> {
        let mut to_peer: BTreeMap<String, usize> = BTreeMap::new();
        let mut running = Vec::new();
        for (i, started) in valid.iter().zip(started) {
            let replicas = match started {
                Ok(replicas) => replicas,
                Err(code) => {
                    let exists = code == ErrorCode::ObjectAlreadyExists;
                    let result = if exists { Ok(()) } else { Err(code) };
                    ends[*i] = Some(PutEnd { result, late: false });
                    continue;
                }
            };
            let buffer = &puts[sources[*i]].buffer;
            let mut jobs = Vec::new();
            for (number, replica) in replicas.into_iter().enumerate() {
                let admitted =
                    self.may_transfer(buffer) && self.admit(&mut to_peer, &replica, buffer);
                let (client, key) = (self.0.config.id, puts[*i].key.clone());
                let job = Job { client, key, number, replica, buffer: buffer.clone() };
                jobs.push(admitted.then(|| self.submit(Point::Write, job)));
            }
            running.push((*i, jobs));
        }
        let mut ended = BTreeMap::new();
        for (i, jobs) in running {
            let mut all = Ended::with(Ok(0));
            for job in jobs {
                let one = match job {
                    Some(running) => self.wait(running).await,
                    None => Ended::with(Err(ErrorCode::TransferFail)),
                };
                all = Ended { result: all.result.and(one.result), late: all.late || one.late };
            }
            ended.insert(i, all);
        }
        ended
    }

    /// Whether a peer's queue takes the fragments of one more transfer.
    pub(super) fn admit(
        &self,
        to_peer: &mut BTreeMap<String, usize>,
        replica: &Replica,
        buffer: &Buffer,
    ) -> bool {
        if self.0.transport.owns(replica.segment) {
            return true;
        }
        let queued = to_peer.entry(replica.endpoint.clone()).or_default();
        *queued += self.fragments(buffer);
        *queued <= self.0.config.fragments_per_peer_max
    }

    async fn finish(
        &self,
        puts: &[Put],
        items: &[usize],
        call: impl FnOnce(Vec<String>) -> Call,
    ) -> Vec<Result<(), ErrorCode>> {
        if items.is_empty() {
            return Vec::new();
        }
        let keys = items.iter().map(|i| puts[*i].key.clone()).collect();
        batch!(self.call(call(keys)).await, Reply::Done, items.len())
    }
}

fn keep(ended: &BTreeMap<usize, Ended>, keep: impl Fn(&Ended) -> bool) -> Vec<usize> {
    ended.iter().filter(|(_, ended)| keep(ended)).map(|(i, _)| *i).collect()
}

/// For each item the one whose bytes are stored under its key.
fn sources(call: PutCall, puts: &[Put]) -> Vec<usize> {
    if call != PutCall::Batch {
        return (0..puts.len()).collect();
    }
    let last: BTreeMap<&str, usize> =
        puts.iter().enumerate().map(|(i, put)| (put.key.as_str(), i)).collect();
    puts.iter().map(|put| last[put.key.as_str()]).collect()
}
