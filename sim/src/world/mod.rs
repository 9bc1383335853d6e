//! The simulated world: the injected parts of [`springtide::env`], the hosts that hold them, and what acts on
//! them from outside.
//!
//! | module | what it is |
//! |---|---|
//! | [`clock`], [`network`], [`device`], [`store`], [`way`], [`transport`] | the injected world of a simulated process |
//! | [`process`], [`host`] | one life of a host's software, and what it has at hand |
//! | [`engine`] | what moves a world, and the seam between whoever steps it and the two that do |
//! | [`ticking`] | the engine on turmoil: the one place that makes a turmoil simulation |
//! | [`fast`], [`memory`] | the engine on one runtime, and its network |
//! | [`injector`], [`desk`] | faults by plan |
//! | [`observer`] | the store's history, pools and counters, looked at between two steps |
//! | [`run`](mod@run), [`panics`] | from a plan to its outcome |
//! | [`watchdog`] | a run in which time does not pass |

pub mod clock;
pub mod desk;
pub mod device;
pub mod engine;
pub mod fast;
pub mod host;
pub mod injector;
pub mod memory;
pub mod network;
pub mod observer;
pub mod panics;
pub mod process;
pub mod run;
pub mod store;
pub mod ticking;
pub mod transport;
pub mod watchdog;
pub mod way;
