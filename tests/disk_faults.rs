//! The disk store when the machine fails it: a full disk, one that turns read-only, writers that die.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use springtide::{
    backend::{DiskConfig, DiskStore},
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store},
    pool::{Contiguity, Pool, PoolConfig},
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A file system of its own, in memory, of a few MiB.
struct Disk {
    root: TempDir,
}

impl Disk {
    /// `None`, with the reason printed, where it may not be mounted.
    fn mount(bytes: u64) -> Option<Self> {
        let disk = Self { root: TempDir::new().unwrap() };
        let size = format!("size={bytes}");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(disk.root.path())
            .output();
        match output {
            Ok(output) if output.status.success() => Some(disk),
            Ok(output) => {
                let reason = String::from_utf8_lossy(&output.stderr);
                eprintln!("skipped: a tmpfs cannot be mounted here ({})", reason.trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: there is no `mount` here ({error})");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", &options]).arg(self.root.path()).status().unwrap();
        assert!(status.success(), "remount {options}");
    }

    fn store(&self) -> PathBuf {
        self.root.path().join("store")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a file may still be open. What is left if it fails is an empty directory in use.
        let _ = Command::new("umount").arg("--lazy").arg(self.root.path()).status();
    }
}

fn open(root: &Path) -> std::io::Result<DiskStore> {
    DiskStore::open(&DiskConfig { directory: root.into(), capacity_bytes: 1 << 40, threads: 2 })
}

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_bytes(16 * MIB)).unwrap()
}

/// The bytes of an object: they follow from its key.
fn bytes(key: &str, len: u64) -> Vec<u8> {
    let seed = key.bytes().fold(1_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    (0..len).map(|at| seed.wrapping_add((at / 97) as u8)).collect()
}

async fn put(store: &DiskStore, pool: &Pool, key: &str, len: u64) -> Result<(), ErrorCode> {
    let mut lease = pool.allocate(len, Contiguity::Extents).unwrap();
    lease.write_at(0, &bytes(key, len));
    let item = PutItem { key: Key::new(key), source: lease.into_transfer() };
    match store.put(vec![item]).await.remove(0) {
        Outcome::Ended { result, .. } => result.map_err(|error| error.code),
        Outcome::Uncertain { .. } => panic!("a disk knows how its calls end"),
    }
}

async fn get(store: &DiskStore, pool: &Pool, key: &str, len: u64) -> Result<Vec<u8>, ErrorCode> {
    let dest = pool.allocate(len, Contiguity::Extents).unwrap().into_transfer();
    match store.get(vec![GetItem { key: Key::new(key), dest }]).await.remove(0) {
        Outcome::Ended { buffer, result } => {
            let mut bytes = vec![0; len as usize];
            buffer.read_at(0, &mut bytes);
            result.map(|_| bytes).map_err(|error| error.code)
        }
        Outcome::Uncertain { .. } => panic!("a disk knows how its calls end"),
    }
}

fn partial(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("partial")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn objects(root: &Path) -> Vec<PathBuf> {
    let shelves = fs::read_dir(root.join("objects")).unwrap();
    let shelves = shelves.map(|shelf| fs::read_dir(shelf.unwrap().path()).unwrap());
    shelves.flatten().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn a_full_disk_refuses_what_does_not_fit_and_keeps_the_rest() {
    const LEN: u64 = MIB + MIB / 4;
    let Some(disk) = Disk::mount(8 * MIB) else { return };
    let (root, pool) = (disk.store(), pool());
    let store = open(&root).unwrap();
    let keys: Vec<String> = (0..10).map(|n| format!("object-{n}")).collect();
    let mut results = Vec::new();
    for key in &keys {
        results.push(put(&store, &pool, key, LEN).await);
    }
    let stored = results.iter().take_while(|result| result.is_ok()).count();
    assert_eq!(stored, 6, "the seventh runs out of space in its middle: {results:?}");
    assert!(results[stored..].iter().all(|result| *result == Err(ErrorCode::NoAvailableHandle)));
    assert_eq!(partial(&root), [""; 0].map(PathBuf::from), "half a file takes space for nothing");
    for key in &keys[..stored] {
        assert_eq!(get(&store, &pool, key, LEN).await, Ok(bytes(key, LEN)));
    }
    for key in &keys[stored..] {
        assert_eq!(store.exists(vec![Key::new(key.as_str())]).await, [Ok(false)]);
    }
    // Room again: the store needs no restart.
    assert_eq!(store.remove(Key::new(keys[0].as_str()), false).await, Ok(()));
    assert_eq!(put(&store, &pool, &keys[9], LEN).await, Ok(()));
    assert_eq!(store.close().await, Fence::Fenced);
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test]
async fn a_disk_that_turns_read_only_still_serves_what_it_has() {
    let Some(disk) = Disk::mount(8 * MIB) else { return };
    let (root, pool) = (disk.store(), pool());
    let store = open(&root).unwrap();
    assert_eq!(put(&store, &pool, "before", MIB).await, Ok(()));
    disk.remount("ro");
    assert_eq!(put(&store, &pool, "after", MIB).await, Err(ErrorCode::FileOpenFail));
    assert_eq!(put(&store, &pool, "before", MIB).await, Ok(()), "there already");
    assert_eq!(get(&store, &pool, "before", MIB).await, Ok(bytes("before", MIB)));
    let found = store.exists(["before", "after"].map(Key::new).to_vec()).await;
    assert_eq!(found, [Ok(true), Ok(false)]);
    let kept = store.remove(Key::new("before"), true).await.unwrap_err();
    assert_eq!(kept.code, ErrorCode::FileOpenFail);
    // A start on it fails then, with the system's words, instead of every save later.
    let error = open(&root).err().expect("nothing can be written");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{error}");
    disk.remount("rw");
    assert_eq!(put(&store, &pool, "after", MIB).await, Ok(()));
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

/// Writers are killed at different moments: as they begin a file, in the middle of it, as they finish it.
#[tokio::test]
async fn a_writer_killed_at_any_point_leaves_no_torn_object() {
    const ROUNDS: usize = 24;
    let (directory, pool) = (TempDir::new().unwrap(), pool());
    let root = directory.path().join("store");
    let store = open(&root).unwrap();
    let (mut whole, mut torn_files) = (0, 0);
    for round in 0..ROUNDS {
        let mut writer = Writer::start(&root, round);
        // The more bytes of the file in progress are asked for, the later in it the writer dies; in every
        // fourth round it dies right after an object became visible.
        let enough = (round % 4) as u64 * MIB;
        let before = objects(&root).len();
        writer.until(|| match round % 4 {
            3 => objects(&root).len() > before + round % 3,
            _ => partial(&root)
                .iter()
                .any(|file| fs::metadata(file).is_ok_and(|metadata| metadata.len() >= enough)),
        });
        writer.kill();
        torn_files += partial(&root).len();
        for n in 0..Writer::OBJECTS {
            let key = Writer::key(round, n);
            match get(&store, &pool, &key, Writer::LEN).await {
                Ok(found) => {
                    assert!(found == bytes(&key, Writer::LEN), "{key} is torn");
                    whole += 1;
                }
                Err(error) => assert_eq!(error, ErrorCode::ObjectNotFound, "{key}"),
            }
        }
        for file in partial(&root) {
            fs::remove_file(file).unwrap();
        }
    }
    for file in objects(&root) {
        assert_eq!(fs::metadata(&file).unwrap().len(), Writer::LEN, "{}", file.display());
    }
    // The case was reached: some died in the middle of a file, some after whole ones.
    assert!(torn_files > 0 && whole > 0, "{torn_files} torn files, {whole} whole objects");
    // A key whose writer died can be written by the next.
    let key = Writer::key(0, Writer::OBJECTS - 1);
    assert_eq!(put(&store, &pool, &key, Writer::LEN).await, Ok(()));
    assert_eq!(get(&store, &pool, &key, Writer::LEN).await, Ok(bytes(&key, Writer::LEN)));
}

/// A process that puts one object after the other.
struct Writer {
    child: Child,
}

impl Writer {
    const LEN: u64 = 3 * MIB + 1;
    const OBJECTS: usize = 64;

    fn key(round: usize, n: usize) -> String {
        format!("round-{round}-object-{n}")
    }

    fn start(root: &Path, round: usize) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "writer_in_this_process", "--ignored"])
            .env("DISK_ROOT", root)
            .env("DISK_ROUND", round.to_string())
            .stdout(Stdio::null())
            .stderr(File::create(root.join("writer.log")).unwrap())
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Waits until something is so, or the writer has ended: then it came too late, which is a moment too.
    fn until(&mut self, is_so: impl Fn() -> bool) {
        while !is_so() && self.child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "run by the test above in a process of its own, which it kills"]
async fn writer_in_this_process() {
    let (Some(root), Ok(round)) = (env::var_os("DISK_ROOT"), env::var("DISK_ROUND")) else {
        return;
    };
    let (store, pool) = (open(Path::new(&root)).unwrap(), pool());
    for n in 0..Writer::OBJECTS {
        let key = Writer::key(round.parse().unwrap(), n);
        assert_eq!(put(&store, &pool, &key, Writer::LEN).await, Ok(()));
    }
}
