//! A Mooncake Store that is a state machine: in process, over a network, with faults on demand.
//!
//! It answers as the real store does, its failure modes included: behaviour and figures are those measured
//! on Mooncake of August 2026, and `DIVERGENCES.md` lists what differs. Nothing in it reads a clock, a
//! socket or a source of randomness of its own, so one seed is one run.
//!
//! # Layout
//!
//! | module | what it is | relies on |
//! |---|---|---|
//! | [`master`] | the metadata server as a pure state machine: time in, replies and a history out | [`protocol`] |
//! | [`protocol`] | what is asked of it and what it answers, as data | nothing |
//! | [`faults`] | fault plans in JSON, and holding and releasing operations | [`protocol`] |
//! | [`service`] | master and node behind their fault points, without sockets | [`master`], [`faults`] |
//! | [`client`] | a store handle: [`springtide::env::Store`], and what else Mooncake has | [`transport`] |
//! | [`transport`] | how a client reaches the services: in process, or over a network | [`service`] |
//! | [`server`] | the services behind sockets | [`service`] |
//! | [`FakeCluster`] | all of it in one process, for tests | everything |
//!
//! ```text
//!            in process                                over env::Network
//!  Client ── LocalTransport ─┬─▶ MasterService   Client ── NetTransport ══▶ MasterServer ─▶ MasterService
//!                            └─▶ NodeService ×N                         ══▶ NodeServer ─▶ NodeService  (×N)
//! ```
//!
//! Which form to take: a unit test takes a [`FakeCluster`]; a simulation starts a [`server::MasterServer`]
//! and [`server::NodeServer`]s on its hosts and gives each client a [`transport::NetTransport`]; a test that
//! only asks what the master does calls [`Master`] with times of its own; everything else runs the binary
//! `fake-mooncake`.
//!
//! # Example
//!
//! A put whose reply is lost: the caller is told a timeout, and the object is there.
//!
//! ```
//! use std::sync::Arc;
//!
//! use fake_store::{
//!     Action, ClientConfig, ClusterConfig, FakeCluster, Point, Rule, protocol::ReplicaConfig,
//! };
//! use springtide::{env::ErrorCode, runtime::TokioClock};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread();
//! # let runtime = { runtime }.enable_time().start_paused(true).build()?;
//! # runtime.block_on(async {
//! let spawner = Arc::new(|task| drop(tokio::runtime::Handle::current().spawn(task)));
//! let cluster = FakeCluster::new(TokioClock::new(), spawner, ClusterConfig::default())?;
//! cluster.add_node("node", 64 << 20);
//! let client = cluster.client(ClientConfig::default());
//!
//! let lost = Rule::new(Point::PutEnd, Action::DropReply).after().for_key("image-7");
//! let rule = cluster.faults().add(lost)?;
//! let put = client.put_bytes("image-7", b"bytes".to_vec(), &ReplicaConfig::default()).await;
//! assert_eq!(put, Err(ErrorCode::RpcTimeout));
//! assert_eq!(cluster.faults().fired_by(rule), 1);
//!
//! assert_eq!(client.is_exist("image-7").await, Ok(true));
//! assert_eq!(client.get_bytes("image-7").await, Ok(b"bytes".to_vec()));
//! for event in cluster.master().with(|master| master.drain_history()) {
//!     println!("{} {} {:?}", event.at, event.key, event.kind);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod client;
mod cluster;
pub mod faults;
pub mod master;
mod memory;
mod millis;
pub mod protocol;
mod rng;
pub mod server;
pub mod service;
pub mod transport;

pub use self::{
    client::{Client, ClientConfig, Spawner},
    cluster::{ClusterConfig, FakeCluster},
    faults::{Action, FaultPlan, Faults, Point, Rule},
    master::{Knobs, Master},
    memory::CallerMemory,
    rng::Rng,
};
