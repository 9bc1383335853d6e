//! Tensors in the memory of NVIDIA cards.
//!
//! | module | what it is |
//! |---|---|
//! | `driver` | the calls that are made, as a trait |
//! | `libcuda` | the driver's library, which makes them |

mod driver;
mod libcuda;

pub use self::{
    driver::{Context, CudaError, Driver, Event, Facts, Ordinal, Result, Stream},
    libcuda::Libcuda,
};
