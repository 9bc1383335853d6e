//! The disk store: whole objects or none, whatever happens to its writers.

use std::{fs, path::Path};

use springtide::{
    backend::{DiskConfig, DiskStore},
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store},
    pool::{Contiguity, Pool, PoolConfig},
};
use tempfile::TempDir;

const LEN: u64 = 3000;

fn open(root: &Path, capacity_bytes: u64) -> DiskStore {
    DiskStore::open(&DiskConfig { directory: root.into(), capacity_bytes, threads: 2 }).unwrap()
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) }).unwrap()
}

async fn put(store: &DiskStore, pool: &Pool, key: &str, fill: u8) -> Result<(), ErrorCode> {
    let mut lease = pool.allocate(LEN, Contiguity::Extents).unwrap();
    lease.write_at(0, &[fill; LEN as usize]);
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

async fn exists(store: &DiskStore, key: &str) -> bool {
    store.exists(vec![Key::new(key)]).await.remove(0).unwrap()
}

fn files(root: &Path, folder: &str) -> usize {
    let count = |path: &Path| fs::read_dir(path).unwrap().count();
    let root = root.join(folder);
    if folder == "partial" {
        return count(&root);
    }
    fs::read_dir(&root).unwrap().map(|shelf| count(&shelf.unwrap().path())).sum()
}

#[tokio::test]
async fn objects_are_put_found_read_and_removed() {
    let (root, pool) = (TempDir::new().unwrap(), pool());
    let store = open(root.path(), 1 << 20);
    assert!(!exists(&store, "a").await);
    assert_eq!(get(&store, &pool, "a", LEN).await, Err(ErrorCode::ObjectNotFound));
    assert_eq!(put(&store, &pool, "a", 1).await, Ok(()));
    assert!(exists(&store, "a").await);
    assert_eq!(store.size(Key::new("a")).await, Ok(LEN));
    assert_eq!(get(&store, &pool, "a", LEN).await, Ok(vec![1; LEN as usize]));
    assert_eq!(get(&store, &pool, "a", LEN - 1).await, Err(ErrorCode::InvalidParams));
    // A put over an existing key succeeds and writes nothing.
    assert_eq!(put(&store, &pool, "a", 2).await, Ok(()));
    assert_eq!(get(&store, &pool, "a", LEN).await, Ok(vec![1; LEN as usize]));
    assert_eq!(store.remove(Key::new("a"), false).await, Ok(()));
    let again = store.remove(Key::new("a"), true).await;
    assert_eq!(again.unwrap_err().code, ErrorCode::ObjectNotFound);
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
    assert_eq!(files(root.path(), "partial"), 0);
}

#[tokio::test]
async fn hostile_keys_stay_inside_the_directory() {
    let (root, pool) = (TempDir::new().unwrap(), pool());
    let store = open(&root.path().join("store"), 1 << 20);
    let long = "x".repeat(1 << 20);
    let keys = ["../../escape", "/etc/escape", "a\0b", "", ".", "..", "a/b", &long];
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(put(&store, &pool, key, n as u8).await, Ok(()));
    }
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(get(&store, &pool, key, LEN).await, Ok(vec![n as u8; LEN as usize]));
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    assert_eq!(files(&root.path().join("store"), "objects"), keys.len());
}

#[tokio::test]
async fn two_writers_of_one_key_leave_one_whole_object() {
    let (root, pool) = (TempDir::new().unwrap(), pool());
    let (one, two) = (open(root.path(), 1 << 20), open(root.path(), 1 << 20));
    for round in 0..50 {
        let key = format!("k{round}");
        let (a, b) = tokio::join!(put(&one, &pool, &key, 1), put(&two, &pool, &key, 2));
        assert_eq!((a, b), (Ok(()), Ok(())));
        let bytes = get(&one, &pool, &key, LEN).await.unwrap();
        assert!(bytes == vec![1; LEN as usize] || bytes == vec![2; LEN as usize]);
    }
    assert_eq!(files(root.path(), "objects"), 50);
    assert_eq!(files(root.path(), "partial"), 0);
}

#[tokio::test]
async fn the_least_recently_used_goes_when_the_capacity_is_reached() {
    let (root, pool) = (TempDir::new().unwrap(), pool());
    let store = open(root.path(), 3 * LEN);
    for (n, key) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(put(&store, &pool, key, n as u8).await, Ok(()));
    }
    assert!(exists(&store, "a").await);
    assert_eq!(put(&store, &pool, "d", 3).await, Ok(()));
    assert!(exists(&store, "a").await && exists(&store, "d").await);
    assert!(!exists(&store, "b").await);
    assert_eq!(files(root.path(), "objects"), 3);
}

#[tokio::test]
async fn an_object_above_the_capacity_is_refused_and_evicts_nothing() {
    let (root, pool) = (TempDir::new().unwrap(), pool());
    let store = open(root.path(), LEN - 1);
    assert_eq!(put(&store, &pool, "a", 1).await, Err(ErrorCode::NoAvailableHandle));
    assert_eq!(store.limits().object_bytes_max, Some(LEN - 1));
}

#[tokio::test]
async fn what_a_dead_writer_left_is_no_object() {
    let (root, pool) = (TempDir::new().unwrap(), pool());
    let store = open(root.path(), 1 << 20);
    // A writer that died in the middle leaves only this.
    fs::write(root.path().join("partial/1-0x0-0"), [1; 10]).unwrap();
    assert!(!exists(&store, "a").await);
    assert_eq!(put(&store, &pool, "a", 1).await, Ok(()));
    assert_eq!(get(&store, &pool, "a", LEN).await, Ok(vec![1; LEN as usize]));
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_fails_the_start() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("file");
    fs::write(&file, []).unwrap();
    let config = DiskConfig { directory: file, capacity_bytes: 1, threads: 1 };
    assert!(DiskStore::open(&config).is_err());
}

#[tokio::test]
async fn a_closed_store_refuses_and_gives_buffers_back() {
    let (root, pool) = (TempDir::new().unwrap(), pool());
    let store = open(root.path(), 1 << 20);
    assert_eq!(store.close().await, Fence::Fenced);
    assert_eq!(put(&store, &pool, "a", 1).await, Err(ErrorCode::UnavailableInCurrentStatus));
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}
