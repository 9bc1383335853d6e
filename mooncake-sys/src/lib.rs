//! The C ABI of Mooncake Store (`store_c.h`, state of August 2026), loaded at run time.
//!
//! This is the raw layer: types as C sees them, the 19 functions as pointers, and the loader that
//! fills them in. Nothing here checks an argument; a wrong call crashes the process exactly as it
//! would from C. A safe handle is built on top of it.
//!
//! Linking at run time instead of build time lets one binary serve machines with and without
//! Mooncake: a library that is absent or too old is an error to report, not a process that does not
//! start.
//!
//! # Layout
//!
//! | module | what it is |
//! |---|---|
//! | `api` | [`Api`]: every function of the header, with its rules |
//! | `library` | [`Library`]: finds and maps the shared library, [`LoadError`] names what is missing |
//! | `types` | [`Store`] (the opaque handle's target) and [`ReplicateConfig`] |
//!
//! # Example
//!
//! ```no_run
//! use mooncake_sys::Library;
//!
//! // SAFETY: the operator vouches that the variable names a real Mooncake Store library.
//! let library = unsafe { Library::from_env()? };
//! let api = library.api();
//! // SAFETY: `create` takes nothing, `destroy` gets a live handle exactly once.
//! unsafe {
//!     let store = (api.create)();
//!     assert_eq!((api.health_check)(store), 1, "not set up yet");
//!     (api.destroy)(store);
//! }
//! # Ok::<(), mooncake_sys::LoadError>(())
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
//!   application's handler, `SIGUSR1` is swallowed. Create the store on a thread made for it, and
//!   restore the signal masks elsewhere.
//! * About 28 threads run after [`setup`](Api::setup); 6-7 threads and 11 descriptors stay after
//!   [`destroy`](Api::destroy), without growth over further cycles.
//! * After `fork()` the child's first call hangs.
//! * The library needs glog, gflags, jsoncpp, yaml-cpp, curl, ibverbs, numa, uring, zstd and xxhash at
//!   load time; the loader's message in [`LoadError::Library`] names one that is missing.

#![expect(unsafe_code, reason = "calls into a C library that is loaded at run time")]

mod api;
mod library;
mod types;

pub use self::{
    api::Api,
    library::{DEFAULT_LIBRARY, LIBRARY_VARIABLE, Library, LoadError},
    types::{ReplicateConfig, Store},
};
