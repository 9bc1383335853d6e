//! Implementations of [`Store`](crate::env::Store) for production.
//!
//! | type | keeps objects in | shared by |
//! |---|---|---|
//! | [`MooncakeStore`] | Mooncake Store, through its C ABI | everybody with the same master |
//! | [`DiskStore`] | a directory | the instances that mount it |
//! | [`Link`] | a store that may be down | – |
//! | [`BlockingStore`] | whatever its [`Blocking`] calls reach | – |

mod batches;
mod blocking;
mod disk;
mod disk_files;
mod link;
mod link_state;
mod mooncake;
mod probe;
mod threads;

pub use self::{
    blocking::{Blocking, BlockingConfig, BlockingStore},
    disk::{DiskConfig, DiskStore},
    link::{Link, LinkConfig},
    link_state::{LinkCounters, LinkState},
    mooncake::{
        MOONCAKE_FRAGMENTS_MAX, MooncakeCalls, MooncakeConfig, MooncakeError, MooncakeStore,
        Protocol, mooncake_library,
    },
    probe::probe_server,
};
