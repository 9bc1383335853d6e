//! `libmooncake_store.so` that is the fake store: any program of Mooncake Store's C ABI runs against it.
//!
//! Each handle is a client of the fake store over TCP, with a segment of its own if it lends memory. Its master
//! is a `fake-mooncake serve` at the given address, which several processes share, or `inproc:N` (N from 1 to
//! 65535): a master inside of this process, which lives as long as a handle is set up with it.
//!
//! | variable | what it is |
//! |---|---|
//! | `FAKE_MOONCAKE_FAULT_PLAN` | a JSON file with a fault plan ([`fake_store::FaultPlan`]) for the servers in this process: segments, registration and masters of the form `inproc:N`. A `fake-mooncake serve` has its own |
//! | `FAKE_MOONCAKE_KNOBS` | a JSON file with [`fake_store::Knobs`] for masters of the form `inproc:N` |
//!
//! What is wrong with either file is said on stderr, and every `setup` is then answered with -600.
//!
//! | module | what it is |
//! |---|---|
//! | `abi` | the 19 functions: arguments checked as Mooncake checks them, no panic let out |
//! | `memory` | a caller's memory, by address |
//! | `handle` | handles, and what they are set up with |
//! | `world` | what a process shares: runtime, faults, masters |

#![expect(unsafe_code, reason = "the functions take pointers from C")]

mod abi;
mod handle;
mod memory;
mod world;

pub use self::abi::API;
