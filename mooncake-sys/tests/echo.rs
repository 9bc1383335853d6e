//! Every signature against a C compiler: Rust calls, C writes down what arrived.
//!
//! Each argument has a value of its own, wide enough to show a truncation, so an order, a width or a
//! result type that differs between `api.rs` and C changes the text that is compared.

#![expect(unsafe_code, reason = "calls a C library")]

mod common;

use std::{
    ffi::{CStr, c_char, c_void},
    mem,
    path::PathBuf,
    ptr,
};

use mooncake_sys::{Api, Library, ReplicateConfig, Store};

/// The handle that the echo library's `create` returns.
const STORE: usize = 0x12_3456_7890;
/// Addresses that are echoed and never followed.
const BUFFER: usize = 0xabc_def0_1000;
const OTHER_BUFFER: usize = 0xabc_def0_2000;
/// Larger than 32 bits.
const WIDE: usize = 5_000_000_000;

/// A loaded echo library; each test builds one of its own, and so has its own record.
struct Echo {
    api: Api,
    record: unsafe extern "C" fn() -> *const c_char,
}

impl Echo {
    fn build(directory: &str) -> Option<Self> {
        let path: PathBuf = common::build("echo.c", directory, "libecho.so", &[])?;
        // SAFETY: the library was just built from echo.c, which has the ABI of store_c.h.
        let library = unsafe { Library::open(&path) }.expect("echo.c exports every function");
        assert_eq!(library.path(), path);
        // SAFETY: the same file, whose initialisers do nothing; `echo_record` is declared as here. The
        // handle is never closed, so the copied pointer stays valid.
        let record = unsafe {
            let handle = libloading::Library::new(&path).expect("it is loaded already");
            let record = *handle.get(b"echo_record\0").expect("echo.c exports it");
            mem::forget(handle);
            record
        };
        Some(Self { api: *library.api(), record })
    }

    /// What C received in the last call.
    fn record(&self) -> String {
        // SAFETY: echo.c returns its static, NUL-terminated buffer.
        unsafe { CStr::from_ptr((self.record)()) }.to_str().expect("ASCII").to_owned()
    }
}

fn store() -> *mut Store {
    ptr::without_provenance_mut(STORE)
}

fn address(value: usize) -> *mut c_void {
    ptr::without_provenance_mut(value)
}

#[test]
fn lifecycle() {
    let Some(echo) = Echo::build("lifecycle") else { return };
    let api = echo.api;
    // SAFETY: echo.c follows strings only, and these end with a NUL.
    unsafe {
        assert_eq!((api.create)(), store());
        assert_eq!(echo.record(), "create");

        (api.destroy)(store());
        assert_eq!(echo.record(), "destroy 1234567890");

        let (host, metadata, protocol) = (c"me:1", c"P2PHANDSHAKE", c"rdma");
        let result = (api.setup)(
            store(),
            host.as_ptr(),
            metadata.as_ptr(),
            5_000_000_001,
            5_000_000_002,
            protocol.as_ptr(),
            c"mlx5_0".as_ptr(),
            c"master:50051".as_ptr(),
        );
        assert_eq!(result, -101);
        assert_eq!(
            echo.record(),
            "setup 1234567890 host=me:1 metadata=P2PHANDSHAKE segment=5000000001 local=5000000002 \
             protocol=rdma device=mlx5_0 master=master:50051"
        );

        let result = (api.init_all)(store(), c"tcp".as_ptr(), c"eth0".as_ptr(), 5_000_000_003);
        assert_eq!(result, -102);
        assert_eq!(
            echo.record(),
            "init_all 1234567890 protocol=tcp device=eth0 segment=5000000003"
        );

        assert_eq!((api.health_check)(store()), -103);
        assert_eq!(echo.record(), "health_check 1234567890");

        let mut name = [0_u8; 32];
        assert_eq!((api.get_hostname)(store(), name.as_mut_ptr().cast(), name.len()), -112);
        assert_eq!(echo.record(), "get_hostname 1234567890 length=32");
        assert_eq!(CStr::from_bytes_until_nul(&name), Ok(c"echo:12345"));
    }
}

#[test]
fn single_objects() {
    let Some(echo) = Echo::build("single_objects") else { return };
    let api = echo.api;
    let segments = [c"node-a".as_ptr(), c"node-b".as_ptr()];
    let config = ReplicateConfig {
        replica_num: WIDE,
        with_soft_pin: 7,
        with_hard_pin: 8,
        preferred_segments: segments.as_ptr(),
        preferred_segments_count: segments.len(),
    };
    let key = c"st1/ab/cd".as_ptr();
    // SAFETY: echo.c follows strings and the configuration only, and these outlive the calls.
    unsafe {
        assert_eq!((api.put)(store(), key, address(BUFFER), WIDE, &config), -104);
        assert_eq!(
            echo.record(),
            "put 1234567890 key=st1/ab/cd value=abcdef01000 size=5000000000 \
             config={5000000000 soft=7 hard=8 node-a node-b}"
        );

        let default = ReplicateConfig::default();
        assert_eq!((api.put_from)(store(), key, address(BUFFER), WIDE, &default), -105);
        assert_eq!(
            echo.record(),
            "put_from 1234567890 key=st1/ab/cd buffer=abcdef01000 size=5000000000 \
             config={1 soft=0 hard=0}"
        );

        assert_eq!((api.get_into)(store(), key, address(BUFFER), WIDE), -5_000_000_107);
        assert_eq!(
            echo.record(),
            "get_into 1234567890 key=st1/ab/cd buffer=abcdef01000 size=5000000000"
        );

        assert_eq!((api.is_exist)(store(), key), -109);
        assert_eq!(echo.record(), "is_exist 1234567890 key=st1/ab/cd");

        assert_eq!((api.get_size)(store(), key), 5_000_000_111);
        assert_eq!(echo.record(), "get_size 1234567890 key=st1/ab/cd");

        assert_eq!((api.remove)(store(), key, 9), -113);
        assert_eq!(echo.record(), "remove 1234567890 key=st1/ab/cd force=9");

        assert_eq!((api.remove_by_regex)(store(), c"^st1/".as_ptr(), 10), 5_000_000_114);
        assert_eq!(echo.record(), "remove_by_regex 1234567890 pattern=^st1/ force=10");

        assert_eq!((api.remove_all)(store(), 11), 5_000_000_115);
        assert_eq!(echo.record(), "remove_all 1234567890 force=11");
    }
}

#[test]
fn batches() {
    let Some(echo) = Echo::build("batches") else { return };
    let api = echo.api;
    let mut keys = [c"one".as_ptr(), c"two".as_ptr()];
    let mut buffers = [address(BUFFER), address(OTHER_BUFFER)];
    let sizes = [WIDE, WIDE + 1];
    let (keys, buffers) = (keys.as_mut_ptr(), buffers.as_mut_ptr());
    let items = "[one abcdef01000 5000000000] [two abcdef02000 5000000001]";
    // SAFETY: echo.c follows the arrays for two entries each and the keys, and all outlive the calls.
    unsafe {
        let mut codes = [0; 2];
        let (sizes, null) = (sizes.as_ptr(), ptr::null());
        let result =
            (api.batch_put_from)(store(), keys, buffers, sizes, 2, null, codes.as_mut_ptr());
        assert_eq!((result, codes), (-106, [-200, -201]));
        assert_eq!(echo.record(), format!("batch_put_from 1234567890 count=2 {items} config=null"));

        let mut lengths = [0; 2];
        let result = (api.batch_get_into)(store(), keys, buffers, sizes, 2, lengths.as_mut_ptr());
        assert_eq!((result, lengths), (-108, [6_000_000_000, 6_000_000_001]));
        assert_eq!(echo.record(), format!("batch_get_into 1234567890 count=2 {items}"));

        assert_eq!((api.batch_is_exist)(store(), keys, 2, codes.as_mut_ptr()), -110);
        assert_eq!(codes, [-300, -301]);
        assert_eq!(echo.record(), "batch_is_exist 1234567890 count=2 [one] [two]");
    }
}

#[test]
fn registration() {
    let Some(echo) = Echo::build("registration") else { return };
    // SAFETY: echo.c does not follow the address.
    unsafe {
        assert_eq!((echo.api.register_buffer)(store(), address(BUFFER), WIDE), -116);
        assert_eq!(echo.record(), "register_buffer 1234567890 buffer=abcdef01000 size=5000000000");

        assert_eq!((echo.api.unregister_buffer)(store(), address(BUFFER)), -117);
        assert_eq!(echo.record(), "unregister_buffer 1234567890 buffer=abcdef01000");
    }
}
