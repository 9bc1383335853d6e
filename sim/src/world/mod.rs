//! The simulated world.

pub mod clock;
pub mod desk;
pub mod device;
pub mod network;
pub mod process;
