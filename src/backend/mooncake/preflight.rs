//! What rdma needs of the machine, found out before Mooncake is called: it does not say what is missing.

use std::{fs, path::Path};

use rustix::{
    process::{Resource, getrlimit},
    thread::{CapabilitySet, capabilities},
};

use super::config::MooncakeError;

/// Where the kernel lists RDMA cards, those in software too.
pub(super) const RDMA_CARDS: &str = "/sys/class/infiniband";

/// Whether so many bytes may be pinned by this process.
pub(super) fn check_memlock(needed: u64) -> Result<(), MooncakeError> {
    memlock(needed, getrlimit(Resource::Memlock).current, may_pin_anything())
}

fn memlock(needed: u64, limit: Option<u64>, privileged: bool) -> Result<(), MooncakeError> {
    match limit {
        Some(limit) if limit < needed && !privileged => {
            Err(MooncakeError::Memlock { needed, limit })
        }
        _ => Ok(()),
    }
}

/// Whether the limit does not hold for this process.
fn may_pin_anything() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
}

/// Whether the machine has the cards of a list such as `mlx5_0,mlx5_1`, or any for an empty one.
pub(super) fn check_cards(devices: &str) -> Result<(), MooncakeError> {
    cards(devices, Path::new(RDMA_CARDS))
}

fn cards(devices: &str, directory: &Path) -> Result<(), MooncakeError> {
    let entries = fs::read_dir(directory).into_iter().flatten().map_while(Result::ok);
    let mut found: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    found.sort();
    let asked: Vec<&str> =
        devices.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let lacking = asked.iter().find(|name| !found.iter().any(|card| card == *name));
    match lacking {
        Some(name) => Err(MooncakeError::NoCard { device: (*name).to_owned(), found }),
        None if found.is_empty() => Err(MooncakeError::NoCard { device: String::new(), found }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_pinnable_memory_is_found_before_the_setup() {
        assert!(memlock(10, Some(10), false).is_ok());
        assert!(memlock(10, None, false).is_ok());
        assert!(memlock(10, Some(9), true).is_ok());
        insta::assert_snapshot!(
            memlock(1 << 30, Some(8 << 20), false).unwrap_err(),
            @"rdma pins 1073741824 bytes (segment, local buffer and pool), but RLIMIT_MEMLOCK allows 8388608: raise it (`ulimit -l unlimited`, LimitMEMLOCK=infinity, docker --ulimit memlock=-1) or grant CAP_IPC_LOCK"
        );
    }

    #[test]
    fn rdma_without_a_card_is_found_before_the_setup() {
        let machine = tempfile::tempdir().unwrap();
        let check = |devices: &str| cards(devices, machine.path());
        insta::assert_snapshot!(
            check("").unwrap_err(),
            @"protocol rdma needs an RDMA card, but /sys/class/infiniband has none: load the card's driver, pass its devices to the container, or set protocol to tcp"
        );
        for card in ["mlx5_0", "mlx5_1"] {
            fs::create_dir(machine.path().join(card)).unwrap();
        }
        for devices in ["", "mlx5_1", "mlx5_0,mlx5_1", "mlx5_0, mlx5_1,"] {
            check(devices).unwrap();
        }
        insta::assert_snapshot!(
            check("mlx5_0,mlx5_2").unwrap_err(),
            @"protocol rdma needs the RDMA card mlx5_2, but /sys/class/infiniband has only mlx5_0, mlx5_1: load the card's driver, pass its devices to the container, or set protocol to tcp"
        );
        let absent = machine.path().join("absent");
        assert!(matches!(cards("", &absent), Err(MooncakeError::NoCard { .. })));
    }
}
