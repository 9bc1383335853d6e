//! Made-up machines, and what is said of them.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use springtide::{
    backend::{DiskConfig, MooncakeConfig, Protocol},
    config::{Settings, StoreSettings},
    runtime::cuda::{CudaError, Facts, Ordinal},
};
use tempfile::TempDir;

use super::*;

/// What no file of a made-up machine tells.
#[derive(Clone)]
struct MadeUp {
    cuda: Result<Cuda, CudaError>,
    shm: u64,
    wheels: Vec<String>,
    master: Result<(), String>,
    wall: i64,
}

impl Default for MadeUp {
    fn default() -> Self {
        Self {
            cuda: Err(CudaError::Absent),
            shm: 32 << 30,
            wheels: vec!["mooncake-transfer-engine 0.3.13".into()],
            master: Ok(()),
            wall: 1_780_000_000,
        }
    }
}

impl Outside for MadeUp {
    fn cuda(&self) -> Result<Cuda, CudaError> {
        self.cuda.clone()
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, String> {
        if path.ends_with("dev/shm") { Ok(self.shm) } else { Ok(1 << 40) }
    }

    fn library(&self, named: Option<&Path>) -> Result<String, String> {
        match named {
            Some(path) if path.ends_with("libmooncake_store.so") => Ok(path.display().to_string()),
            other => Err(format!("cannot load {other:?}")),
        }
    }

    fn wheels(&self) -> Result<Vec<String>, String> {
        Ok(self.wheels.clone())
    }

    fn answers(&self, _address: &str, limit: Duration) -> Result<(), String> {
        assert!(limit > Duration::ZERO, "a probe without a deadline");
        self.master.clone()
    }

    fn wall_seconds(&self) -> i64 {
        self.wall
    }
}

/// Files of a made-up kernel.
struct Tree(TempDir);

impl Tree {
    /// A host with 64 GiB, of which 48 are free, that may pin 8 MiB.
    fn host() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.put(
            "proc/meminfo",
            "MemTotal: 67108864 kB\nMemAvailable: 50331648 kB\nHugePages_Total: 0\n",
        )
        .put("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n")
        .pins("8388608")
        .put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        .put("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [never]\n")
        .put("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        tree
    }

    fn put(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn pins(&self, limit: &str) -> &Self {
        let text = format!(
            "Limit   Soft Limit  Hard Limit  Units\nMax locked memory  {limit}  {limit}  bytes\n"
        );
        self.put("proc/self/limits", &text)
    }

    fn card(&self, name: &str, state: &str, node: &str) -> &Self {
        let at = format!("sys/class/infiniband/{name}");
        self.put(&format!("{at}/ports/1/state"), state)
            .put(&format!("{at}/ports/1/rate"), "200 Gb/sec (4X HDR)\n")
            .put(&format!("{at}/device/numa_node"), node)
            .put("dev/infiniband/uverbs0", "")
    }

    fn gpu(&self, node: &str) -> &Self {
        let at = format!("sys/bus/pci/devices/{PCI}");
        self.put(&format!("{at}/class"), "0x030200\n")
            .put(&format!("{at}/vendor"), "0x10de\n")
            .put(&format!("{at}/numa_node"), node)
    }

    fn examine(&self, outside: MadeUp, settings: &Settings) -> Report {
        let machine = Machine { root: self.0.path().into(), outside: Box::new(outside) };
        examine(&machine, settings, RoleArg::Both)
    }
}

const PCI: &str = "0000:3b:00.0";

fn a100() -> MadeUp {
    let device = Facts {
        ordinal: Ordinal(0),
        name: "NVIDIA A100-SXM4-80GB".into(),
        bytes: 80 << 30,
        pci: PCI.into(),
    };
    MadeUp { cuda: Ok(Cuda { version: (12, 4), devices: vec![device] }), ..MadeUp::default() }
}

fn settings(protocol: Protocol) -> Settings {
    let store = MooncakeConfig {
        protocol,
        segment_bytes: 4 << 30,
        ..MooncakeConfig::new("10.0.0.1:50051", "10.0.0.2")
    };
    Settings { store: StoreSettings::Mooncake(store), pool_bytes: 8 << 30, ..Settings::default() }
}

fn level(report: &Report, check: &str) -> Level {
    report.findings.iter().find(|finding| finding.check == check).expect("the check ran").level
}

#[test]
fn a_host_without_any_card() {
    let report = Tree::host().examine(MadeUp::default(), &settings(Protocol::Tcp));
    assert_eq!(report.problems(), 0);
    insta::assert_snapshot!("none", report.lines());
    insta::assert_snapshot!("none_json", report.to_json());
}

#[test]
fn rdma_without_a_card_and_too_little_to_pin() {
    let report = Tree::host().examine(MadeUp::default(), &settings(Protocol::Rdma));
    assert_eq!(report.problems(), 2);
    insta::assert_snapshot!("no_rdma", report.lines());
    insta::assert_snapshot!("no_rdma_json", report.to_json());
}

#[test]
fn a_link_that_is_down() {
    let tree = Tree::host();
    tree.pins("unlimited").gpu("0\n").card("mlx5_0", "1: DOWN\n", "0\n");
    let report = tree.examine(a100(), &settings(Protocol::Rdma));
    insta::assert_snapshot!("link_down", report.lines());
    // With tcp nobody needs it.
    assert_eq!(tree.examine(a100(), &settings(Protocol::Tcp)).problems(), 0);
    // With another card up it is one that must not be used.
    tree.card("mlx5_1", "4: ACTIVE\n", "0\n");
    assert_eq!(level(&tree.examine(a100(), &settings(Protocol::Rdma)), "rdma"), Level::Warning);
}

#[test]
fn a_card_on_another_node_than_the_gpu() {
    let tree = Tree::host();
    tree.pins("unlimited").gpu("0\n").card("mlx5_0", "4: ACTIVE\n", "1\n");
    let report = tree.examine(a100(), &settings(Protocol::Rdma));
    assert_eq!((report.problems(), report.count(Level::Warning)), (0, 1));
    insta::assert_snapshot!("other_node", report.lines());
    insta::assert_snapshot!("other_node_json", report.to_json());
    // A card of its own node is enough, and none of an unknown one is complained about.
    tree.card("mlx5_1", "4: ACTIVE\n", "0\n");
    assert_eq!(level(&tree.examine(a100(), &settings(Protocol::Rdma)), "numa"), Level::Ok);
    let tree = Tree::host();
    tree.pins("unlimited").gpu("-1\n").card("mlx5_0", "4: ACTIVE\n", "1\n");
    assert_eq!(level(&tree.examine(a100(), &settings(Protocol::Rdma)), "numa"), Level::Ok);
}

#[test]
fn what_may_be_pinned() {
    let tree = Tree::host();
    tree.card("mlx5_0", "4: ACTIVE\n", "0\n");
    let memlock =
        |tree: &Tree| level(&tree.examine(MadeUp::default(), &settings(Protocol::Rdma)), "memlock");
    assert_eq!(memlock(&tree), Level::Problem);
    // Pool and segment, to the byte.
    assert_eq!(memlock(tree.pins(&(12u64 << 30).to_string())), Level::Ok);
    assert_eq!(memlock(tree.pins(&((12u64 << 30) - 1).to_string())), Level::Problem);
    tree.put("proc/self/status", "CapEff:\t0000000000004000\n");
    assert_eq!(memlock(tree.pins("1")), Level::Ok);
}

#[test]
fn a_container_that_was_not_given_what_the_host_has() {
    let tree = Tree::host();
    tree.gpu("0\n")
        .pins("unlimited")
        .card("mlx5_0", "4: ACTIVE\n", "0\n")
        .put("sys/fs/cgroup/memory.max", "4294967296\n")
        .put("sys/fs/cgroup/memory.current", "1073741824\n")
        .put("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    fs::remove_dir_all(tree.0.path().join("dev")).unwrap();
    let outside = MadeUp {
        shm: 64 << 20,
        wheels: Vec::new(),
        master: Err("Connection refused (os error 111)".into()),
        ..MadeUp::default()
    };
    insta::assert_snapshot!("container", tree.examine(outside, &settings(Protocol::Rdma)).lines());
}

#[test]
fn a_producer_needs_no_shared_memory() {
    let tree = Tree::host();
    let machine = Machine {
        root: tree.0.path().into(),
        outside: Box::new(MadeUp { shm: 0, ..MadeUp::default() }),
    };
    let of = |role| level(&examine(&machine, &settings(Protocol::Tcp), role), "/dev/shm");
    assert_eq!(of(RoleArg::Producer), Level::Ok);
    assert_eq!(of(RoleArg::Consumer), Level::Problem);
    // One that encodes once loads too.
    let once = Settings { encode_once: true, ..settings(Protocol::Tcp) };
    assert_eq!(level(&examine(&machine, &once, RoleArg::Producer), "/dev/shm"), Level::Problem);
}

#[test]
fn a_producer_that_encodes_once_has_two_pools() {
    let (tree, settings) = (Tree::host(), settings(Protocol::Tcp));
    // 48 GiB are free, 4 are the segment.
    let large = Settings { pool_bytes: 30 << 30, ..settings };
    let once = Settings { encode_once: true, ..large.clone() };
    let machine =
        Machine { root: tree.0.path().into(), outside: Box::new(MadeUp { ..MadeUp::default() }) };
    let of = |settings, role| level(&examine(&machine, settings, role), "memory");
    assert_eq!(of(&large, RoleArg::Producer), Level::Ok);
    assert_eq!(of(&once, RoleArg::Producer), Level::Problem);
    assert_eq!(of(&once, RoleArg::Consumer), Level::Ok);
    assert_eq!(of(&large, RoleArg::Both), Level::Problem);
}

#[test]
fn a_directory_and_a_secret_that_cannot_be_used() {
    let tree = Tree::host();
    let at = |path: &Path| {
        let disk = DiskConfig { directory: path.into(), capacity_bytes: 1, threads: 1 };
        Settings { store: StoreSettings::Disk(disk), ..Settings::default() }
    };
    let there = tree.0.path();
    let of = |settings: &Settings, check| level(&tree.examine(MadeUp::default(), settings), check);
    assert_eq!(of(&at(&there.join("made/later")), "store"), Level::Ok);
    assert_eq!(of(&at(&there.join("proc/meminfo/x")), "store"), Level::Problem);
    let secret = there.join("secret");
    let sealed = Settings { secret_file: Some(secret.clone()), ..at(there) };
    assert_eq!(of(&sealed, "secret_file"), Level::Problem);
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(of(&sealed, "secret_file"), Level::Ok);
}

#[test]
fn drivers_that_do_not_work() {
    let tree = Tree::host();
    let driver = |cuda| {
        let report = tree.examine(MadeUp { cuda, ..MadeUp::default() }, &settings(Protocol::Tcp));
        report.lines().lines().next().expect("a line").to_owned()
    };
    let none = Ok(Cuda { version: (12, 4), devices: Vec::new() });
    let name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH".to_owned();
    let mismatch = Err(CudaError::Call { call: "cuInit", code: 803, name });
    insta::assert_snapshot!([driver(none), driver(mismatch)].join("\n"));
}

#[test]
fn a_clock_that_was_never_set() {
    let outside = MadeUp { wall: 0, ..MadeUp::default() };
    let report = Tree::host().examine(outside, &settings(Protocol::Tcp));
    assert_eq!(level(&report, "clock"), Level::Warning);
}

#[test]
fn a_library_that_cannot_be_loaded() {
    let mut settings = settings(Protocol::Tcp);
    let StoreSettings::Mooncake(store) = &mut settings.store else { unreachable!() };
    store.library = Some("/opt/libmooncake_store.so".into());
    let tree = Tree::host();
    assert_eq!(level(&tree.examine(MadeUp::default(), &settings), "mooncake"), Level::Ok);
    let StoreSettings::Mooncake(store) = &mut settings.store else { unreachable!() };
    store.library = Some("/opt/other.so".into());
    assert_eq!(level(&tree.examine(MadeUp::default(), &settings), "mooncake"), Level::Problem);
}
