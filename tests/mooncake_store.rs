//! The back end over the C ABI, against the small C library that `mooncake-sys` tests with.
//!
//! The library ends the process wherever Mooncake's would, so every test here also shows that nothing of
//! the kind is reached.

use std::{
    env,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
};

use rustix::{
    process::{Resource, getrlimit, setrlimit},
    thread::{CapabilitySet, capabilities, set_capabilities},
};
use springtide::{
    backend::{MooncakeConfig, MooncakeError, MooncakeStore, Protocol},
    env::{ErrorCode, Fence, GetItem, Key, Outcome, PutItem, Store},
    pool::Contiguity,
    runtime::TokioClock,
};
use springtide_testing::objects::{LEN, ended, get, lease, pool, put};

/// The library, and the address of somebody who answers as a master would.
struct Installation {
    library: PathBuf,
    master: String,
}

impl Installation {
    /// `None`, with the reason printed, on a machine without a C compiler.
    fn new(name: &str) -> Option<Self> {
        let library = build("mooncake-sys/tests/guard.c", name)?;
        let master = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = master.local_addr().unwrap().to_string();
        // Hangs up on whoever calls, as a master does that is sent no request.
        thread::Builder::new().spawn(move || master.incoming().for_each(drop)).unwrap();
        Some(Self { library, master: address })
    }

    fn config(&self) -> MooncakeConfig {
        let library = Some(self.library.clone());
        MooncakeConfig { library, ..MooncakeConfig::new(&self.master, "node:1") }
    }

    async fn connect(&self) -> MooncakeStore {
        MooncakeStore::connect(&self.config(), 0, TokioClock::new()).await.unwrap()
    }
}

fn build(source: &str, name: &str) -> Option<PathBuf> {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let cc = Command::new("cc")
        .args(["-std=c11", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&library, &source])
        .output();
    match cc {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(library)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler (cc: {error})");
            None
        }
    }
}

#[tokio::test]
async fn objects_go_through_the_c_abi_byte_by_byte() {
    let Some(installation) = Installation::new("objects") else { return };
    let (store, pool) = (installation.connect().await, pool());
    assert_eq!(store.register(Arc::clone(pool.region())).await, Ok(()));
    assert_eq!(
        put(&store, vec![("a", lease(&pool, 1)), ("b", lease(&pool, 2))]).await,
        [Ok(()); 2]
    );
    let found = store.exists(["a", "x", "b"].map(Key::new).to_vec()).await;
    assert_eq!(found, [Ok(true), Ok(false), Ok(true)]);
    assert_eq!(store.size(Key::new("b")).await, Ok(LEN));
    let (buffer, result) = get(&store, "b", lease(&pool, 0)).await;
    assert_eq!(result, Ok(LEN));
    assert!(buffer.segments().flatten().eq([2; LEN as usize].iter()));
    assert_eq!(get(&store, "x", buffer).await.1, Err(ErrorCode::ObjectNotFound));
    assert_eq!(store.remove(Key::new("a"), false).await, Ok(()));
    let gone = store.remove(Key::new("a"), true).await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::ObjectNotFound);
    assert_eq!(store.hostname(), Ok("node:1".to_owned()));
    assert_eq!(store.is_healthy(), Ok(true));
    assert_eq!(store.unregister(Arc::clone(pool.region())).await, Ok(()));
    assert_eq!(store.close().await, Fence::Fenced);
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test]
async fn an_object_of_another_length_is_told_by_its_length_or_a_code() {
    let Some(installation) = Installation::new("lengths") else { return };
    let (store, pool) = (installation.connect().await, pool());
    assert_eq!(put(&store, vec![("a", lease(&pool, 1))]).await, [Ok(())]);
    let longer = pool.allocate(LEN + 1, Contiguity::Required).unwrap();
    assert_eq!(get(&store, "a", longer).await.1, Ok(LEN));
    let shorter = pool.allocate(LEN - 1, Contiguity::Required).unwrap();
    assert_eq!(get(&store, "a", shorter).await.1, Err(ErrorCode::InvalidParams));
}

#[tokio::test]
async fn a_batch_with_bad_items_is_answered_item_by_item() {
    let Some(installation) = Installation::new("bad_items") else { return };
    let (store, pool) = (installation.connect().await, pool());
    // 5 units are a block of 4 and one of 1.
    let scattered = || pool.allocate(5 * 576, Contiguity::Extents).unwrap();
    assert!(scattered().extents().len() > 1, "the case is a scattered object");
    let items = vec![
        ("a", lease(&pool, 1)),
        ("nul\0", lease(&pool, 2)),
        ("s", scattered()),
        ("b", lease(&pool, 3)),
    ];
    let refused = [Err(ErrorCode::InvalidKey), Err(ErrorCode::InvalidParams)];
    assert_eq!(put(&store, items).await, [Ok(()), refused[0], refused[1], Ok(())]);
    assert_eq!(store.limits().buffers_per_object, 1);
}

#[tokio::test]
async fn equal_keys_of_one_get_are_all_filled() {
    let Some(installation) = Installation::new("equal_keys") else { return };
    let (store, pool) = (installation.connect().await, pool());
    assert_eq!(put(&store, vec![("a", lease(&pool, 9))]).await, [Ok(())]);
    let dest = || GetItem { key: Key::new("a"), dest: lease(&pool, 0).into_transfer() };
    for (buffer, result) in ended(store.get(vec![dest(), dest(), dest()]).await) {
        assert_eq!(result, Ok(LEN));
        assert!(buffer.segments().flatten().eq([9; LEN as usize].iter()));
    }
}

#[tokio::test]
async fn a_call_that_fails_as_a_whole_leaves_every_end_unknown() {
    let Some(installation) = Installation::new("broken") else { return };
    let (store, pool) = (installation.connect().await, pool());
    let source = lease(&pool, 1).into_transfer();
    let outcomes = store.put(vec![PutItem { key: Key::new("broken"), source }]).await;
    let [Outcome::Uncertain { error, .. }] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(error.code, ErrorCode::Internal);
    drop(outcomes);
    assert!(pool.usage().quarantined > 0);
    // The destroyed client is what releases it.
    assert_eq!(store.close().await, Fence::Fenced);
    assert!(pool.release_quarantine() > 0);
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

#[tokio::test]
async fn after_the_close_everything_is_refused_and_given_back() {
    let Some(installation) = Installation::new("closed") else { return };
    let (store, pool) = (installation.connect().await, pool());
    assert_eq!(store.close().await, Fence::Fenced);
    assert_eq!(store.close().await, Fence::Fenced);
    let refused = ErrorCode::UnavailableInCurrentStatus;
    assert_eq!(put(&store, vec![("a", lease(&pool, 1))]).await, [Err(refused)]);
    assert_eq!(store.size(Key::new("a")).await.unwrap_err().code, refused);
    assert_eq!(store.hostname(), Err(refused));
    assert_eq!(store.is_healthy(), Err(refused));
    let usage = pool.usage();
    assert_eq!(usage.free, usage.total);
}

async fn refusal(config: &MooncakeConfig) -> MooncakeError {
    match MooncakeStore::connect(config, 0, TokioClock::new()).await {
        Err(error) => error,
        Ok(_) => panic!("connected with {config:?}"),
    }
}

#[tokio::test]
async fn each_reason_for_no_client_says_what_was_tried_and_what_to_do() {
    let Some(installation) = Installation::new("reasons") else { return };
    let good = installation.config();

    let nowhere = Some("/nowhere/libmooncake_store.so".into());
    let error = refusal(&MooncakeConfig { library: nowhere, ..good.clone() }).await.to_string();
    assert!(error.starts_with("cannot load /nowhere/libmooncake_store.so: "), "{error}");
    assert!(error.contains("`library` or MOONCAKE_STORE_LIBRARY must name"), "{error}");

    let other = build("mooncake-sys/tests/other.c", "other");
    let error = refusal(&MooncakeConfig { library: other, ..good.clone() }).await.to_string();
    assert!(error.contains("lacks 19 of the 19 functions of store_c.h"), "{error}");

    let aborts = MooncakeConfig { metadata_server: "etcd://h:2379".into(), ..good.clone() };
    assert!(matches!(refusal(&aborts).await, MooncakeError::Setup(_)));

    let refused = MooncakeConfig { segment_bytes: 1 << 50, ..good.clone() };
    let error = refusal(&refused).await.to_string();
    assert!(error.starts_with("setup failed with Mooncake's code -600 (tried "), "{error}");

    // Free a moment ago, so nobody answers there.
    let master = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = refusal(&MooncakeConfig { master: master.clone(), ..good }).await.to_string();
    let expected = format!("no mooncake_master answers at {master} (");
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.ends_with("is it running, and is this its rpc_port?"), "{error}");
}

/// Set for the process that has less memory to pin.
const LOWERED: &str = "SPRINGTIDE_TEST_MEMLOCK_LOWERED";

#[tokio::test]
async fn a_process_that_may_pin_too_little_is_told_before_the_setup() {
    if env::var_os(LOWERED).is_none() {
        // The limit is one of the whole process: in a process of its own.
        let test = "a_process_that_may_pin_too_little_is_told_before_the_setup";
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test])
            .env(LOWERED, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let limits = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, rustix::process::Rlimit { current: Some(64 << 10), ..limits })
        .unwrap();
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    let config = MooncakeConfig {
        protocol: Protocol::Rdma,
        segment_bytes: 1 << 20,
        ..MooncakeConfig::new("127.0.0.1:1", "node:1")
    };
    let refused = MooncakeStore::connect(&config, 3 << 20, TokioClock::new()).await;
    let Err(error) = refused else { panic!("4 MiB are more than 64 KiB") };
    let error = error.to_string();
    assert!(
        error.starts_with("rdma pins 4194304 bytes (segment, local buffer and pool), "),
        "{error}"
    );
    assert!(
        error.contains("RLIMIT_MEMLOCK allows 65536: raise it (`ulimit -l unlimited`"),
        "{error}"
    );
}

#[tokio::test]
async fn rdma_without_its_card_is_told_before_the_setup() {
    let config = MooncakeConfig {
        protocol: Protocol::Rdma,
        device: "no_such_card".into(),
        ..MooncakeConfig::new("127.0.0.1:1", "node:1")
    };
    let error = refusal(&config).await.to_string();
    let expected = "protocol rdma needs the RDMA card no_such_card, but /sys/class/infiniband has ";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.ends_with("or set protocol to tcp"), "{error}");
}
