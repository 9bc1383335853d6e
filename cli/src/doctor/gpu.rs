//! GPUs: the driver's library, its devices, and whether cards may read their memory.

use springtide::runtime::cuda::{CudaError, Facts};

use super::{
    fabric::Card,
    machine::{Cuda, Machine},
    report::Finding,
};

const CHECK: &str = "cuda";
const NVIDIA: &str = "0x10de";

/// PCI classes of displays and of accelerators without one, as sysfs begins them.
const GPU_CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// A GPU on the PCI bus, and its NUMA node where the kernel knows one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bus {
    pub(super) pci: String,
    pub(super) node: Option<i64>,
}

/// The GPUs that an instance could use: the driver's, or those on the bus where there is no driver.
pub(super) fn buses(machine: &Machine, cuda: &Result<Cuda, CudaError>) -> Vec<Bus> {
    let pci = match cuda {
        Ok(cuda) => cuda.devices.iter().map(|device| device.pci.clone()).collect(),
        Err(_) => on_the_bus(machine),
    };
    let node = |pci: &String| {
        machine.number(format!("sys/bus/pci/devices/{pci}/numa_node")).filter(|node| *node >= 0)
    };
    pci.into_iter().map(|pci| Bus { node: node(&pci), pci }).collect()
}

fn on_the_bus(machine: &Machine) -> Vec<String> {
    let devices = "sys/bus/pci/devices";
    let text = |pci: &str, file: &str| machine.text(format!("{devices}/{pci}/{file}"));
    let mut found = machine.names(devices);
    found.retain(|pci| {
        let class = text(pci, "class").unwrap_or_default();
        text(pci, "vendor").as_deref() == Some(NVIDIA)
            && GPU_CLASSES.iter().any(|gpu| class.starts_with(gpu))
    });
    found
}

/// The driver and its devices.
pub(super) fn driver(machine: &Machine, cuda: &Result<Cuda, CudaError>) -> Finding {
    let on_bus = on_the_bus(machine).len();
    match cuda {
        Ok(Cuda { version: (major, minor), devices }) if !devices.is_empty() => {
            let names: Vec<String> = devices.iter().map(shown).collect();
            Finding::ok(CHECK, format!("CUDA {major}.{minor}, {}", names.join(", ")))
        }
        Ok(_) => Finding::warning(
            CHECK,
            "a driver without a device that this process may use",
            "pass the GPUs to the container (`--gpus all`), and look at CUDA_VISIBLE_DEVICES",
        ),
        Err(CudaError::Absent) if on_bus == 0 => {
            Finding::ok(CHECK, "not here: no libcuda.so.1; tensors lie in host memory")
        }
        Err(CudaError::Absent) => Finding::warning(
            CHECK,
            format!("{on_bus} NVIDIA on the PCI bus, but no libcuda.so.1"),
            "install NVIDIA's driver, or pass it to the container (`--gpus all`)",
        ),
        Err(error) => Finding::warning(
            CHECK,
            format!("the driver does not start: {error}"),
            "does `nvidia-smi` work here? The library and the kernel's module must be of one version",
        ),
    }
}

fn shown(device: &Facts) -> String {
    let gib = device.bytes >> 30;
    format!("{} {} ({gib} GiB, {})", device.ordinal.0, device.name, device.pci)
}

/// Whether the kernel lets RDMA cards read GPU memory.
pub(super) fn peer_memory(machine: &Machine, gpus: &[Bus], cards: &[Card]) -> Finding {
    const CHECK: &str = "peer memory";
    if gpus.is_empty() || cards.is_empty() {
        return Finding::ok(CHECK, "not here: it takes a GPU and an RDMA card");
    }
    let modules = ["nvidia_peermem", "nv_peer_mem"];
    match modules.iter().find(|module| machine.exists(format!("sys/module/{module}"))) {
        Some(module) => {
            Finding::ok(CHECK, format!("{module}; not used: items go through the pinned pool"))
        }
        None => Finding::ok(
            CHECK,
            "nvidia_peermem is not loaded; not needed: items go through the pinned pool",
        ),
    }
}
