//! The deterministic simulator of springtide.
//!
//! It runs the production connector and pool against a fake Mooncake Store on simulated hosts, in virtual
//! time, with faults by plan, and judges every event.
//!
//! # Layout
//!
//! | module | what it is |
//! |---|---|
//! | [`plan`] | the unit of replay: configuration, traffic and faults as a file |
//! | [`seeds`], [`workload`] | what a plan is drawn from |
//! | [`event`], [`recorder`], [`trace`] | what happens, where it is reported, how it is hashed |
//! | [`oracle`] | what must never happen |
//! | [`reach`], [`stats`] | what a campaign has seen |
//! | [`world`] | hosts, clock, network, device and store under turmoil, and the injector of faults |

pub mod contents;
pub mod event;
pub mod oracle;
pub mod plan;
pub mod reach;
pub mod recorder;
pub mod seeds;
pub mod stats;
pub mod trace;
pub mod workload;
pub mod world;
