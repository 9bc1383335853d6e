//! The world that the checkers of interleavings put the production code into.
//!
//! The code under test is the production crate, built over the checker's primitives (`models/sync`). This
//! crate gives it an environment whose tasks, time, store and device are the checker's too, so that loom or
//! shuttle chooses everything that is left to chance. The models themselves are in `tests/`.
//!
//! | module | what it is |
//! |---|---|
//! | `executor` | tasks on the checker's threads |
//! | `world` | the injected world: clock, store, device |
//! | `explore` | runs one model in loom and says what it took |
//! | `campaign` | the same in shuttle |

#![forbid(unsafe_code)]
#![cfg(all(springtide_model, any(feature = "loom", feature = "shuttle")))]

#[cfg(all(feature = "shuttle", not(feature = "loom")))]
pub mod campaign;
pub mod executor;
#[cfg(feature = "loom")]
pub mod explore;
pub mod world;
