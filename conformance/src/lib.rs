//! The fake store against the real Mooncake Store, operation by operation.
//!
//! One body, two arms: random sequences and written ones run step by step on both, and everything that a
//! caller can see must be equal, but for the typed divergences of [`compare`].
//!
//! | module | what it is |
//! |---|---|
//! | [`step`] | what is done: calls, events, waits, as data |
//! | [`arm`] | what both arms can do, and what is seen of it |
//! | [`fake`], [`real`] | the two arms |
//! | [`run`] | both arms through one sequence, away from the edges of leases |
//! | [`compare`] | equality, and the divergences |
//! | [`generate`], [`random`], [`scenarios`] | random sequences, and those for states that chance does not reach |
//! | [`coverage`] | the table of states and operations |
//! | [`campaign`], [`report`] | a whole comparison, and what is said of it |
//! | [`shrink`], [`saved`] | shortening what differs, and keeping it |
//! | [`timeline`] | real time and its stand-in |

#![forbid(unsafe_code)]

pub mod arm;
pub mod campaign;
pub mod compare;
pub mod coverage;
pub mod fake;
pub mod generate;
pub mod random;
pub mod real;
pub mod report;
pub mod run;
pub mod saved;
pub mod scenarios;
pub mod shrink;
pub mod step;
pub mod timeline;
