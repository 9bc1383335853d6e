//! The deterministic simulator of springtide.
//!
//! It runs the production connector and pool against a fake Mooncake Store on simulated hosts, in virtual
//! time, with faults by plan, and judges every event.
//!
//! # Layout
//!
//! | module | what it is |
//! |---|---|
//! | [`plan`] | the unit of replay: configuration, traffic and faults as a file (a crate of its own) |
//! | [`seeds`], [`workload`], [`generate`](mod@generate) | how a seed draws a plan |
//! | [`scenario`] | plans written by hand, with what must come of them |
//! | [`world`] | hosts, clock, network, device and store, the engines that move them, and the injector of faults |
//! | [`hosts`] | what runs on the hosts: the store, engine models, the client |
//! | [`subjects`](mod@subjects) | the connector of an instance: springtide, or another design for comparison |
//! | [`event`], [`recorder`], [`trace`] | what happens, where it is reported, how it is hashed |
//! | [`oracle`] | what must never happen |
//! | [`timeline`] | what lasted how long, and the page that shows it |
//! | [`reach`], [`coverage`], [`stats`] | what a run has seen |
//! | [`explore`](mod@explore) | small worlds, every order of what can happen in them |
//! | [`compare`](mod@compare), [`engines`] | two subjects, and both engines, on the same plans |
//! | [`minimize`](mod@minimize) | from a failing plan to the smallest that still fails |
//! | [`campaign`](mod@campaign), [`report`], [`cli`], [`commands`] | many runs and how they are shown |

#![forbid(unsafe_code)]

pub mod campaign;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod contents;
pub mod coverage;
pub mod engines;
pub mod event;
pub mod explore;
pub mod generate;
pub mod hosts;
pub mod minimize;
pub mod oracle;
pub mod reach;
pub mod recorder;
pub mod report;
pub mod scenario;
pub mod seeds;
pub mod stats;
pub mod subjects;
pub mod timeline;
pub mod trace;
pub mod workload;
pub mod world;

pub use springtide_plan as plan;
