//! What tests of several crates share.
//!
//! | module | what it is | who uses it |
//! |---|---|---|
//! | [`corpus`] | failures of state machine tests, kept as files and run first | the tests of pool, master, saves and requests |
//! | [`pool`] | the pool against a shadow model, step by step | a property test, a fuzz target |
//! | [`cuda`] | a CUDA driver that models streams, events and late kernels | the tests of the CUDA device |
//! | [`objects`] | objects of one length through any store | the tests of back ends |

#[forbid(unsafe_code)]
pub mod corpus;
pub mod cuda;
#[forbid(unsafe_code)]
pub mod objects;
#[forbid(unsafe_code)]
pub mod pool;
