//! A Mooncake Store that is a state machine.

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
    rng::Rng,
};
