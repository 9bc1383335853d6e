//! The rungs that need no hardware, over a store in a directory, and what they say when bytes are wrong.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use clap::Parser;
use springtide::{
    backend::{DiskConfig, DiskStore},
    env::TensorSpec,
    pool::Region,
    runtime::{HostDevice, HostEvent, HostTensor, TokioClock},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Handle};

use super::{
    pair::{Pairs, content},
    report::Outcome,
    tensors::{Host, Tensors},
};
use crate::{
    args::{Cli, Command, HwArgs},
    failure::Failure,
    stores::{Joining, Target},
};

struct Directory(TempDir);

impl Target for Directory {
    type Store = DiskStore;

    fn name(&self) -> String {
        "a directory".into()
    }

    async fn join(&self, _: Joining, _: TokioClock) -> Result<DiskStore, Failure> {
        let directory = self.0.path().to_owned();
        let config = DiskConfig { directory, capacity_bytes: 1 << 30, threads: 2 };
        DiskStore::open(&config).map_err(Failure::failed)
    }

    fn no_room(&self) -> String {
        "is the disk full?".into()
    }
}

/// Memory from which the second tensor is read with a wrong byte.
#[derive(Default)]
struct Wrong(AtomicU32);

impl Tensors for Wrong {
    type Device = HostDevice;

    fn device(&self) -> Result<HostDevice, Failure> {
        Host.device()
    }

    fn tensor(&self, spec: TensorSpec, bytes: &[u8]) -> Result<HostTensor, Failure> {
        Host.tensor(spec, bytes)
    }

    fn read(&self, tensor: &HostTensor) -> Result<Vec<u8>, Failure> {
        let mut bytes = Host.read(tensor)?;
        if self.0.fetch_add(1, Ordering::Relaxed) == 1 {
            bytes[5] ^= 1;
        }
        Ok(bytes)
    }

    fn event(&self) -> Result<HostEvent, Failure> {
        Host.event()
    }

    fn lock(&self, device: &HostDevice, region: &Arc<Region>) -> Result<(), Failure> {
        Host.lock(device, region)
    }
}

fn arguments(bytes: &str) -> HwArgs {
    let line = ["springtide", "hw", "--rounds", "2", "--bytes", bytes];
    match Cli::try_parse_from(line).unwrap().command {
        Command::Hw(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

fn run<M: Tensors>(tensors: &M, traffic: bool) -> Outcome {
    let arguments = arguments("24MiB");
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let handle: &Handle = runtime.handle();
    let pairs = Pairs { arguments: &arguments, handle, clock: TokioClock::new() };
    let directory = Directory(tempfile::tempdir().unwrap());
    runtime.block_on(async {
        match traffic {
            true => pairs.traffic(Ok((&directory, tensors))).await,
            false => pairs.items(Ok((&directory, tensors))).await,
        }
    })
}

#[test]
fn items_are_moved_and_measured() {
    let Outcome::Passed { figures } = run(&Host, false) else { panic!("it passes") };
    let rows: Vec<(u64, usize)> = figures.iter().map(|row| (row.bytes >> 20, row.count)).collect();
    assert_eq!(rows, [(1, 2), (1, 2), (8, 2), (8, 2), (32, 2), (32, 2)]);
    assert!(figures.iter().all(|row| row.bytes_per_sec > 0.0 && row.p50_us <= row.p99_us));
    // 24 MiB are three items.
    let Outcome::Passed { figures } = run(&Host, true) else { panic!("it passes") };
    assert_eq!(figures.iter().map(|row| row.count).collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn a_wrong_byte_is_found() {
    let Outcome::Failed { why } = run(&Wrong::default(), true) else { panic!("it fails") };
    let expected = content(1, 8)[5];
    assert_eq!(why, format!("item 1: byte 5 was loaded as {}, expected {expected}", expected ^ 1));
}

#[test]
fn without_a_store_nothing_is_run() {
    let arguments = arguments("1MiB");
    let runtime = Builder::new_current_thread().build().unwrap();
    let pairs = Pairs { arguments: &arguments, handle: runtime.handle(), clock: TokioClock::new() };
    let on: Result<(&Directory, &Host), String> = Err("no master was named".into());
    let outcome = runtime.block_on(pairs.items(on));
    assert_eq!(outcome, Outcome::NotRun { reason: "no master was named".into() });
}
