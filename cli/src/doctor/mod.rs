//! What a machine has and lacks for an instance with given settings: one line for each part of it.
//!
//! The checks are functions from a [`Machine`] and the settings to [`Finding`]s. A machine is the files of its
//! kernel, under a root that tests replace, and what no file tells ([`Outside`]).
//!
//! | module | what it looks at |
//! |---|---|
//! | `gpu` | the driver, its devices, peer memory |
//! | `fabric` | RDMA cards, their links, and their distance from the GPUs |
//! | `memory` | pinning, hugepages, free memory, `/dev/shm` |
//! | `store` | Mooncake's library or wheel, the master, a directory |
//! | `clock` | what time is read from |
//! | `machine` | the files of the kernel, and what no file tells |
//! | `report` | the lines and the JSON |

mod clock;
mod fabric;
mod gpu;
mod machine;
mod memory;
mod report;
mod store;
#[cfg(test)]
mod tests;

use springtide::{
    backend::Protocol,
    config::{Settings, StoreSettings},
};

pub use self::{
    machine::{Cuda, Machine, Outside},
    report::{Finding, Level, Report},
};
use crate::args::RoleArg;

/// What an instance with these settings asks of the machine.
#[derive(Clone, Copy, Debug)]
struct Needs<'a> {
    settings: &'a Settings,
    role: RoleArg,
}

impl Needs<'_> {
    /// Whether items travel over RDMA.
    fn rdma(&self) -> bool {
        matches!(&self.settings.store, StoreSettings::Mooncake(store) if store.protocol == Protocol::Rdma)
    }

    /// The RDMA cards that the settings name; none for all.
    fn cards(&self) -> Vec<&str> {
        match &self.settings.store {
            StoreSettings::Mooncake(store) => {
                store.device.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
            }
            StoreSettings::Disk(_) => Vec::new(),
        }
    }

    /// Bytes that the store's client takes beside the pool.
    fn client_bytes(&self) -> u64 {
        match &self.settings.store {
            StoreSettings::Mooncake(store) => {
                store.segment_bytes.saturating_add(store.local_buffer_bytes)
            }
            StoreSettings::Disk(_) => 0,
        }
    }

    /// Bytes that one process holds, and may have to pin.
    fn bytes(&self) -> u64 {
        self.client_bytes().saturating_add(self.settings.pool_bytes)
    }

    /// Whether it has a pool for what it loads, in `/dev/shm`.
    fn loads(&self) -> bool {
        self.role != RoleArg::Producer || self.settings.encode_once
    }

    /// Bytes of memory altogether.
    fn total_bytes(&self) -> u64 {
        let pools = u64::from(self.loads()) + u64::from(self.role != RoleArg::Consumer);
        self.client_bytes().saturating_add(self.settings.pool_bytes.saturating_mul(pools))
    }
}

/// Whether there is an RDMA card with a link that is up.
pub(crate) fn has_card_with_link(machine: &Machine) -> bool {
    fabric::cards(machine).iter().any(fabric::Card::is_up)
}

/// Looks at everything.
pub fn examine(machine: &Machine, settings: &Settings, role: RoleArg) -> Report {
    let needs = Needs { settings, role };
    let cuda = machine.outside.cuda();
    let gpus = gpu::buses(machine, &cuda);
    let cards = fabric::cards(machine);
    let mut findings = vec![
        gpu::driver(machine, &cuda),
        memory::pinning(machine, &needs),
        memory::hugepages(machine),
        memory::free(machine, &needs),
        memory::shared(machine, &needs),
        fabric::links(machine, &needs, &cards),
        fabric::nodes(&needs, &gpus, &cards),
        gpu::peer_memory(machine, &gpus, &cards),
        store::client(machine, &needs),
        store::reached(machine, &needs),
        clock::source(machine),
    ];
    findings.extend(store::secret(&needs));
    Report { findings }
}
