//! The safe handle against a library that ends the process wherever the real one does.
//!
//! Each misuse is shown twice: through the raw functions in a process of its own, which dies, and through
//! [`Client`], which gives an error.

#![expect(unsafe_code, reason = "loads a C library and lends it memory")]

mod common;

use std::{
    env, mem,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
    ptr::{self, NonNull},
    sync::Arc,
    thread,
    time::Duration,
};

use mooncake_sys::{
    Buffer, CallError, Client, Code, ConnectError, Item, Library, P2P_HANDSHAKE, Replication,
    Setup, SetupError, Store,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A loaded guard library; each test builds one of its own, and so has its own state.
struct Guard {
    library: Library,
    path: PathBuf,
}

impl Guard {
    fn build(directory: &str) -> Option<Self> {
        let path = common::build("guard.c", directory, "libguard.so", &[])?;
        Some(Self::open(&path))
    }

    fn open(path: &Path) -> Self {
        // SAFETY: built from guard.c, which has the ABI of store_c.h.
        let library = unsafe { Library::open(path) }.expect("guard.c exports every function");
        Self { library, path: path.to_owned() }
    }

    fn connect(&self) -> Client {
        Client::connect(&self.library, &setup()).expect("a good setup")
    }

    /// Calls a function of guard.c that takes a number and returns one.
    fn steer(&self, name: &str, argument: i32) -> i32 {
        // SAFETY: the same file; its functions take at most one int and return at most one, which the C
        // calling convention lets us declare wider. The handle is never closed.
        unsafe {
            let handle = libloading::Library::new(&self.path).expect("it is loaded already");
            let function: unsafe extern "C" fn(i32) -> i32 =
                *handle.get(name.as_bytes()).expect("guard.c exports it");
            mem::forget(handle);
            function(argument)
        }
    }
}

fn setup() -> Setup {
    Setup {
        local_hostname: "node:1".into(),
        metadata_server: P2P_HANDSHAKE.into(),
        metadata_plugins: false,
        master: "127.0.0.1:50051".into(),
        protocol: "tcp".into(),
        device: String::new(),
        segment_bytes: 0,
        local_buffer_bytes: 0,
    }
}

/// Memory that lives as long as the test program, so that any I/O may go on in it.
fn buffer(bytes: &[u8]) -> Buffer {
    let leaked = Box::leak(bytes.to_vec().into_boxed_slice());
    // SAFETY: leaked, and reached through the buffer only.
    unsafe { Buffer::new(NonNull::from(&mut leaked[0]), leaked.len()) }
}

fn content(buffer: Buffer) -> Vec<u8> {
    // SAFETY: the memory of `buffer` above, at a time when no call is running.
    unsafe { std::slice::from_raw_parts(buffer.address().as_ptr(), buffer.len()) }.to_vec()
}

fn code(number: i64) -> CallError {
    CallError::Code(Code::from_number(number).expect("below zero"))
}

#[test]
fn objects_are_put_read_and_removed() {
    let Some(guard) = Guard::build("objects") else { return };
    let client = guard.connect();
    let one = Replication::default();
    let items =
        [Item { key: "a", buffer: buffer(b"alpha") }, Item { key: "b", buffer: buffer(b"beta") }];
    assert_eq!(client.put(&items, &one), [Ok(()), Ok(())]);
    assert_eq!(client.exists(&["a", "x", "b"]), [Ok(true), Ok(false), Ok(true)]);
    let (a, b) = (buffer(&[0; 5]), buffer(&[0; 3]));
    let wanted = [("a", a), ("x", a), ("b", b)].map(|(key, buffer)| Item { key, buffer });
    assert_eq!(client.get(&wanted), [Ok(5), Err(code(-704)), Err(code(-600))]);
    assert_eq!(content(a), b"alpha");
    assert_eq!(client.size("b"), Ok(4));
    assert_eq!(client.remove("a", false), Ok(()));
    assert_eq!(client.remove("a", true), Err(code(-704)));
    assert_eq!(client.put_bytes("c", b"gamma", &one), Ok(()));
    assert_eq!(client.remove_matching("c", false), Ok(1));
    assert_eq!(client.remove_all(false), Ok(1));
    assert_eq!(client.hostname(), Ok("node:1".to_owned()));
    assert_eq!(client.is_healthy(), Ok(true));
    assert_eq!(client.register(a), Ok(()));
    assert_eq!(client.register(a), Err(code(-600)));
    assert_eq!(client.unregister(a), Ok(()));
}

#[test]
fn replication_reaches_the_library() {
    let Some(guard) = Guard::build("replication") else { return };
    let client = guard.connect();
    let three = Replication {
        replicas: 3.try_into().unwrap(),
        preferred_segments: vec![c"node:2".into()],
        ..Replication::default()
    };
    let items = [Item { key: "a", buffer: buffer(b"alpha") }];
    assert_eq!(client.put(&items, &three), [Ok(())]);
    assert_eq!(guard.steer("guard_last_replicas", 0), 3);
}

#[test]
fn a_key_with_nul_is_refused_and_the_rest_of_its_batch_goes_on() {
    let Some(guard) = Guard::build("nul") else { return };
    let client = guard.connect();
    let nul = CallError::Nul { at: 1 };
    let items = [("a", b"1"), ("a\0b", b"2"), ("c", b"3")]
        .map(|(key, bytes)| Item { key, buffer: buffer(bytes) });
    assert_eq!(client.put(&items, &Replication::default()), [Ok(()), Err(nul), Ok(())]);
    assert_eq!(client.exists(&["a", "a\0b", "c"]), [Ok(true), Err(nul), Ok(true)]);
    assert_eq!(client.get(&items[1..2]), [Err(nul)]);
    assert_eq!(client.size("a\0"), Err(nul));
    assert_eq!(client.remove("a\0", true), Err(nul));
    assert_eq!(client.size("a"), Ok(1), "the key before the NUL was not touched");
}

#[test]
fn a_batch_of_nothing_does_not_reach_the_library() {
    let Some(guard) = Guard::build("nothing") else { return };
    let client = guard.connect();
    assert_eq!(client.put(&[], &Replication::default()), []);
    assert_eq!(client.get(&[]), []);
    assert_eq!(client.exists(&[]), []);
}

#[test]
fn of_equal_keys_in_a_get_only_the_last_is_read() {
    let Some(guard) = Guard::build("equal_keys") else { return };
    let client = guard.connect();
    let item = |bytes| Item { key: "a", buffer: buffer(bytes) };
    assert_eq!(client.put(&[item(b"1")], &Replication::default()), [Ok(())]);
    let (first, last) = (item(b"-"), item(b"-"));
    assert_eq!(client.get(&[first, last]), [Err(code(-600)), Ok(1)]);
    assert_eq!((content(first.buffer), content(last.buffer)), (b"-".to_vec(), b"1".to_vec()));
}

#[test]
fn a_batch_that_fails_as_a_whole_fails_each_item() {
    let Some(guard) = Guard::build("broken") else { return };
    let client = guard.connect();
    let items = ["a", "broken"].map(|key| Item { key, buffer: buffer(b"1") });
    let lost = CallError::Code(Code::INTERNAL_ERROR);
    assert_eq!(client.put(&items, &Replication::default()), [Err(lost); 2]);
    assert_eq!(client.get(&items), [Err(lost); 2]);
}

#[test]
fn after_a_close_every_call_is_an_error() {
    let Some(guard) = Guard::build("after_close") else { return };
    let client = guard.connect();
    assert!(client.close().unwrap().wait(LONG));
    let items = [Item { key: "a", buffer: buffer(b"1") }];
    let one = Replication::default();
    assert_eq!(client.put(&items, &one), [Err(CallError::Closed)]);
    assert_eq!(client.get(&items), [Err(CallError::Closed)]);
    assert_eq!(client.exists(&["a"]), [Err(CallError::Closed)]);
    assert_eq!(client.size("a"), Err(CallError::Closed));
    assert_eq!(client.remove("a", true), Err(CallError::Closed));
    assert_eq!(client.remove_all(true), Err(CallError::Closed));
    assert_eq!(client.put_bytes("a", b"1", &one), Err(CallError::Closed));
    assert_eq!(client.register(items[0].buffer), Err(CallError::Closed));
    assert_eq!(client.unregister(items[0].buffer), Err(CallError::Closed));
    assert_eq!(client.hostname(), Err(CallError::Closed));
    assert_eq!(client.is_healthy(), Err(CallError::Closed));
    assert!(client.close().unwrap().wait(LONG), "a second close is the first one");
    drop(client);
    assert_eq!(guard.steer("guard_destroyed", 0), 1);
}

#[test]
fn a_close_waits_for_the_calls_that_run_and_refuses_new_ones_at_once() {
    let Some(guard) = Guard::build("running") else { return };
    let client = Arc::new(guard.connect());
    let running: Vec<_> = (0..4)
        .map(|n| {
            let (client, destination) = (Arc::clone(&client), buffer(b"-"));
            let call = move || {
                client.get(&[Item { key: &format!("hold-{n}"), buffer: destination }]).remove(0)
            };
            thread::Builder::new().spawn(call).unwrap()
        })
        .collect();
    guard.steer("guard_until_waiting", 4);
    let closing = client.close().unwrap();
    assert_eq!(client.size("a"), Err(CallError::Closed));
    assert!(!closing.wait(Duration::from_millis(50)), "destroyed under running calls");
    guard.steer("guard_release", 0);
    for call in running {
        assert_eq!(call.join().unwrap(), Err(code(-704)));
    }
    assert!(closing.wait(LONG));
}

#[test]
fn a_dropped_client_is_destroyed_without_making_anybody_wait() {
    let Some(guard) = Guard::build("dropped") else { return };
    let client = guard.connect();
    guard.steer("guard_hold_destroy", 0);
    drop(client);
    guard.steer("guard_until_waiting", 1);
    assert_eq!(guard.steer("guard_destroyed", 0), 0);
    guard.steer("guard_release", 0);
    guard.steer("guard_until_destroyed", 1);
}

#[test]
fn creation_and_destruction_have_threads_of_their_own() {
    let Some(guard) = Guard::build("threads") else { return };
    let before = blocked_signals();
    let client = guard.connect();
    assert!(client.close().unwrap().wait(LONG));
    assert_eq!(guard.steer("guard_roles_of_this_thread", 0), 0);
    assert_eq!(blocked_signals(), before, "creation blocks signals in its thread");
}

/// This thread's mask, as the kernel shows it.
fn blocked_signals() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    status.lines().find(|line| line.starts_with("SigBlk")).expect("it has a mask").to_owned()
}

#[test]
fn what_would_end_the_process_is_refused_before_the_library_sees_it() {
    let Some(guard) = Guard::build("refused") else { return };
    for metadata in ["", "127.0.0.1:2379", "etcd://127.0.0.1:2379", "redis://127.0.0.1:6379"] {
        let setup = Setup { metadata_server: metadata.into(), ..setup() };
        let refused = Client::connect(&guard.library, &setup).expect_err("it would abort");
        let named = refused.to_string();
        assert!(named.starts_with(&format!("metadata_server is {metadata:?}, ")), "{named}");
    }
    let refused = Client::connect(&guard.library, &Setup { master: String::new(), ..setup() });
    let expected = SetupError::Master { got: String::new() };
    assert!(matches!(refused, Err(ConnectError::Setup(got)) if got == expected));
}

#[test]
fn a_failed_setup_says_what_was_tried_and_leaves_no_handle() {
    let Some(guard) = Guard::build("failed_setup") else { return };
    let attempts = [
        Setup { protocol: "carrier-pigeon".into(), ..setup() },
        Setup { master: "127.0.0.1:1".into(), ..setup() },
        // The library is half set up after this one.
        Setup { segment_bytes: 1 << 50, ..setup() },
    ];
    for (done, setup) in attempts.iter().enumerate() {
        let refused = Client::connect(&guard.library, setup).expect_err("it cannot work");
        let ConnectError::Refused { code, .. } = &refused else { panic!("{refused}") };
        assert_eq!(code.number(), -600);
        let text = refused.to_string();
        assert!(text.contains(&format!("protocol {:?}", setup.protocol)), "{text}");
        assert!(text.contains(&format!("master {:?}", setup.master)), "{text}");
        assert!(text.contains(&format!("a segment of {} ", setup.segment_bytes)), "{text}");
        guard.steer("guard_until_destroyed", done as i32 + 1);
    }
    let refused =
        Client::connect(&guard.library, &Setup { local_buffer_bytes: 1 << 40, ..setup() });
    assert!(matches!(refused, Err(ConnectError::Refused { code: Code::INTERNAL_ERROR, .. })));
}

/// The other half: the same misuses by hand end the process, so the errors above stand for something.
#[test]
fn the_same_misuses_of_the_raw_functions_end_the_process() {
    let Some(guard) = Guard::build("misuse") else { return };
    for (misuse, words) in [
        ("batch before setup", "used before its setup"),
        ("call after destroy", "size after its destruction"),
        ("destroy twice", "destroyed twice"),
        ("destroy under a call", "destroyed under a running call"),
        ("no metadata", "no metadata server"),
        ("no scheme", "a metadata server without a scheme"),
        ("etcd", "a metadata plug-in that is not compiled in"),
        ("no master", "no master"),
    ] {
        let output = Command::new(env::current_exe().expect("a test knows its program"))
            .args(["--exact", "misuse_in_this_process", "--ignored", "--nocapture"])
            .env("MISUSE", misuse)
            .env("GUARD", &guard.path)
            .output()
            .expect("a test can run its program");
        let errors = String::from_utf8_lossy(&output.stderr);
        // SIGABRT
        assert_eq!(output.status.signal(), Some(6), "{misuse}: {errors}");
        assert!(errors.contains(words), "{misuse}: {errors}");
    }
}

#[test]
#[ignore = "run by the test above in a process of its own, which it ends"]
fn misuse_in_this_process() {
    let (Some(misuse), Some(path)) = (env::var_os("MISUSE"), env::var_os("GUARD")) else { return };
    let guard = Guard::open(Path::new(&path));
    let api = *guard.library.api();
    let set_up = |store: *mut Store, metadata: &std::ffi::CStr, master: &std::ffi::CStr| {
        let (host, tcp, none) = (c"node:1".as_ptr(), c"tcp".as_ptr(), c"".as_ptr());
        let (metadata, master) = (metadata.as_ptr(), master.as_ptr());
        // SAFETY: guard.c follows strings only, and ends the process on a misuse.
        unsafe { (api.setup)(store, host, metadata, 0, 0, tcp, none, master) }
    };
    let good = |store| set_up(store, c"P2PHANDSHAKE", c"m:1");
    // SAFETY: guard.c ends the process on a misuse before anything undefined happens.
    unsafe {
        let store = (api.create)();
        match misuse.to_str().expect("ASCII") {
            "batch before setup" => {
                let (keys, buffers, mut codes) = ([ptr::null()], [ptr::null_mut()], [0]);
                let (mut keys, mut buffers) = (keys, buffers);
                let (keys, buffers) = (keys.as_mut_ptr(), buffers.as_mut_ptr());
                let (sizes, codes) = ([0].as_ptr(), codes.as_mut_ptr());
                (api.batch_put_from)(store, keys, buffers, sizes, 0, ptr::null(), codes);
            }
            "call after destroy" => {
                good(store);
                (api.destroy)(store);
                (api.get_size)(store, c"a".as_ptr());
            }
            "destroy twice" => {
                (api.destroy)(store);
                (api.destroy)(store);
            }
            "destroy under a call" => {
                good(store);
                let address = store.expose_provenance();
                let call = move || {
                    let store = ptr::with_exposed_provenance_mut(address);
                    let mut byte = 0_u8;
                    (api.get_into)(store, c"hold".as_ptr(), (&raw mut byte).cast(), 1)
                };
                let running = thread::Builder::new().spawn(call).unwrap();
                guard.steer("guard_until_waiting", 1);
                (api.destroy)(store);
                running.join().unwrap();
            }
            "no metadata" => _ = set_up(store, c"", c"m:1"),
            "no scheme" => _ = set_up(store, c"127.0.0.1:2379", c"m:1"),
            "etcd" => _ = set_up(store, c"etcd://127.0.0.1:2379", c"m:1"),
            "no master" => _ = set_up(store, c"P2PHANDSHAKE", c""),
            other => panic!("no such misuse: {other}"),
        }
    }
    panic!("still alive after {misuse:?}");
}
