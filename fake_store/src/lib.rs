//! A Mooncake Store that is a state machine.
//!
//! # Layout
//!
//! | module | what it is |
//! |---|---|
//! | [`master`] | the metadata server: pure, time in, replies out |
//! | [`protocol`] | what is asked of it, as data |

pub mod master;
mod millis;
pub mod protocol;
mod rng;

pub use rng::Rng;
