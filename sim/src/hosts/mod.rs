//! The software of the simulated hosts.
//!
//! | module | host |
//! |---|---|
//! | [`store`] | `master`, `node0`…: the fake store's servers, and the clients of everybody else |
//! | [`encoder`] | `encoder0`…: an engine that saves |
//! | [`prefill`] | `prefill0`…: an engine that loads |
//! | [`client`], [`stranger`] | `client`: the traffic, and another user of the store |
//! | [`instance`], [`cache`], [`server`], [`wire`] | what engines are made of |

pub mod cache;
pub mod client;
pub mod encoder;
pub mod instance;
pub mod prefill;
pub mod server;
pub mod store;
pub mod stranger;
pub mod wire;
