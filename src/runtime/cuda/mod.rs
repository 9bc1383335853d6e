//! Tensors in the memory of NVIDIA cards.
//!
//! Copies run on streams of their own, never on the default stream, and are ordered by events alone:
//!
//! ```text
//! engine's stream   kernel ── event ┐                     ┌ reads
//! our stream        ────────────────┴ copy ── event ──────┘
//! watcher's thread                        └ asks: has it come?
//! ```
//!
//! The thread that starts a copy makes a few calls that add work to streams and goes on. A thread of the device
//! asks the events; it owns what is copied until they have come, so that a caller who stops waiting frees
//! nothing. Memory that was not locked with [`CudaDevice::lock`] is copied right, but slower, and by the thread
//! that starts it.
//!
//! | module | what it is |
//! |---|---|
//! | `driver` | the calls that are made, as a trait |
//! | `libcuda` | the driver's library, which makes them |
//! | `lane` | a device's context and our streams in it |
//! | `tensor` | tensors and points in streams, from outside |
//! | `locked` | a region whose pages are locked |
//! | `copies` | the calls of one copy, in their order |
//! | `watcher` | the thread that asks events |
//! | `device` | [`Device`](crate::env::Device) from all of these |
//! | `workbench` | memory and a late kernel, to try a card |
//!
//! No card was there when this was written: the order of calls is checked against a model of streams and events
//! (`tests/cuda_device.rs`), the calls themselves by `springtide hw` where there is a card.

mod copies;
mod device;
mod driver;
mod lane;
mod libcuda;
mod locked;
mod tensor;
mod watcher;
mod workbench;

pub use self::{
    device::{CudaDevice, LOCK_BYTES},
    driver::{Context, CudaError, Driver, Event, Facts, Ordinal, Result, Stream},
    libcuda::Libcuda,
    tensor::{CudaEvent, CudaTensor},
    workbench::{Workbench, WorkbenchError},
};
