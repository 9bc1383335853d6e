//! The back end over the C ABI on the drop-in library: the store itself, not a stand-in for it.

use std::{env, path::PathBuf, sync::Arc};

use springtide::{
    backend::{MooncakeConfig, MooncakeStore},
    env::{ErrorCode, Fence, GetItem, Key, Store},
    pool::Contiguity,
    runtime::TokioClock,
};
use springtide_testing::objects::{LEN, ended, get, lease, pool, put};

fn library() -> PathBuf {
    let program = env::current_exe().expect("a running program has a path");
    program.parent().expect("it lies in a directory").join("libmooncake_store.so")
}

/// A store of its own for each number.
async fn connect(number: u16) -> MooncakeStore {
    let config = MooncakeConfig {
        library: Some(library()),
        segment_bytes: 16 << 20,
        // No server listens at the name of a master in this process.
        probe_timeout_ms: 0,
        ..MooncakeConfig::new(format!("inproc:{number}"), "127.0.0.1")
    };
    MooncakeStore::connect(&config, 0, TokioClock::new()).await.unwrap()
}

#[tokio::test]
async fn objects_go_through_byte_by_byte() {
    let (store, pool) = (connect(1).await, pool());
    assert_eq!(store.register(Arc::clone(pool.region())).await, Ok(()));
    let stored = put(&store, vec![("a", lease(&pool, 1)), ("b", lease(&pool, 2))]).await;
    assert_eq!(stored, [Ok(()); 2]);
    let found = store.exists(["a", "x", "b"].map(Key::new).to_vec()).await;
    assert_eq!(found, [Ok(true), Ok(false), Ok(true)]);
    assert_eq!(store.size(Key::new("b")).await, Ok(LEN));
    let (buffer, result) = get(&store, "b", lease(&pool, 0)).await;
    assert_eq!(result, Ok(LEN));
    assert!(buffer.segments().flatten().eq([2; LEN as usize].iter()));
    assert_eq!(get(&store, "x", buffer).await.1, Err(ErrorCode::ObjectNotFound));
    // The question for it took a lease.
    let leased = store.remove(Key::new("a"), false).await.unwrap_err();
    assert_eq!(leased.code, ErrorCode::ObjectHasLease);
    assert_eq!(store.remove(Key::new("a"), true).await, Ok(()));
    assert!(store.hostname().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(store.is_healthy(), Ok(true));
    assert_eq!(store.unregister(Arc::clone(pool.region())).await, Ok(()));
    assert_eq!(store.close().await, Fence::Fenced);
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test]
async fn lengths_and_equal_keys_are_answered_as_by_mooncake() {
    let (store, pool) = (connect(2).await, pool());
    assert_eq!(put(&store, vec![("a", lease(&pool, 9))]).await, [Ok(())]);
    let longer = pool.allocate(LEN + 1, Contiguity::Required).unwrap();
    assert_eq!(get(&store, "a", longer).await.1, Ok(LEN));
    let shorter = pool.allocate(LEN - 1, Contiguity::Required).unwrap();
    assert_eq!(get(&store, "a", shorter).await.1, Err(ErrorCode::InvalidParams));
    let dest = || GetItem { key: Key::new("a"), dest: lease(&pool, 0).into_transfer() };
    for (buffer, result) in ended(store.get(vec![dest(), dest(), dest()]).await) {
        assert_eq!(result, Ok(LEN));
        assert!(buffer.segments().flatten().eq([9; LEN as usize].iter()));
    }
    assert_eq!(store.close().await, Fence::Fenced);
}

#[tokio::test]
async fn clients_of_one_process_share_a_master_until_the_last_one_closes() {
    let (one, other, pool) = (connect(3).await, connect(3).await, pool());
    assert_eq!(put(&one, vec![("a", lease(&pool, 5))]).await, [Ok(())]);
    assert_eq!(get(&other, "a", lease(&pool, 0)).await.1, Ok(LEN));
    assert_eq!(one.close().await, Fence::Fenced);
    assert_eq!(other.close().await, Fence::Fenced);
    let again = connect(3).await;
    assert_eq!(again.exists(vec![Key::new("a")]).await, [Ok(false)]);
    assert_eq!(again.close().await, Fence::Fenced);
}
