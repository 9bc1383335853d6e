//! The C ABI of Mooncake Store (`store_c.h`, state of August 2026), loaded at run time.
//!
//! Two layers. The raw one has the types as C sees them, the 19 functions as pointers, and the loader that
//! fills them in; it checks nothing, and a wrong call crashes the process exactly as it would from C. On
//! top of it, [`Client`] is a handle that cannot be misused: it exists only set up, is destroyed only when
//! no call is inside, and looks at every argument first.
//!
//! Linking at run time instead of build time lets one binary serve machines with and without
//! Mooncake: a library that is absent or too old is an error to report, not a process that does not
//! start.
//!
//! # Layout
//!
//! | module | what it is |
//! |---|---|
//! | `client` | [`Client`]: connects, closes; the crash cases as errors |
//! | `calls` | what a client can be asked to do |
//! | `setup` | [`Setup`]: what a client is set up with, checked for what would end the process |
//! | `buffer`, `replication` | [`Buffer`], [`Item`], [`Replication`]: what calls take |
//! | `code` | [`Code`], [`CallError`]: what calls fail with |
//! | `gate` | counts running calls, refuses new ones once a close has begun |
//! | `api` | [`Api`]: every function of the header, with its rules |
//! | `library` | [`Library`]: finds and maps the shared library, [`LoadError`] names what is missing |
//! | `types` | [`Store`] (the opaque handle's target) and [`ReplicateConfig`] |
//!
//! # Example
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use mooncake_sys::{Client, Library, P2P_HANDSHAKE, Replication, Setup};
//!
//! // SAFETY: the operator vouches that the variable names a real Mooncake Store library.
//! let library = unsafe { Library::from_env()? };
//! let client = Client::connect(&library, &Setup {
//!     local_hostname: "127.0.0.1".into(),
//!     metadata_server: P2P_HANDSHAKE.into(),
//!     metadata_plugins: false,
//!     master: "127.0.0.1:50051".into(),
//!     protocol: "tcp".into(),
//!     device: String::new(),
//!     segment_bytes: 64 << 20,
//!     local_buffer_bytes: 16 << 20,
//! })?;
//! client.put_bytes("greeting", b"hello", &Replication::default())?;
//! assert_eq!(client.size("greeting"), Ok(5));
//! assert!(client.close()?.wait(Duration::from_secs(30)));
//! assert!(client.size("greeting").is_err(), "closed: an error, not a crash");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a host process must know
//!
//! Seen on a library built from source; none of it can be undone from outside.
//!
//! * Loading sets `SIGPIPE` to ignored, and the library stays mapped for good: [`Library`] never
//!   unloads it.
//! * Outside Python, the first [`create`](Api::create) starts a signal thread and **blocks `SIGINT`,
//!   `SIGTERM`, `SIGHUP` and `SIGUSR1` in the calling thread for good**; threads started from it
//!   inherit the mask. `SIGTERM` and `SIGINT` then end the process after 1-2 s without running the
//!   application's handler, `SIGUSR1` is swallowed. [`Client::connect`] therefore creates it on a thread
//!   made for it.
//! * About 28 threads run after [`setup`](Api::setup); 6-7 threads and 11 descriptors stay after
//!   [`destroy`](Api::destroy), without growth over further cycles.
//! * After `fork()` the child's first call hangs.
//! * The library needs glog, gflags, jsoncpp, yaml-cpp, curl, ibverbs, numa, uring, zstd and xxhash at
//!   load time; the loader's message in [`LoadError::Library`] names one that is missing.

#![expect(unsafe_code, reason = "calls into a C library that is loaded at run time")]

mod api;
mod buffer;
mod calls;
mod client;
mod code;
mod gate;
mod library;
mod replication;
mod setup;
mod types;

pub use self::{
    api::Api,
    buffer::{Buffer, Item},
    client::{Client, Closing, ConnectError},
    code::{CallError, Code},
    library::{DEFAULT_LIBRARY, LIBRARY_VARIABLE, Library, LoadError},
    replication::Replication,
    setup::{P2P_HANDSHAKE, Setup, SetupError},
    types::{ReplicateConfig, Store},
};
