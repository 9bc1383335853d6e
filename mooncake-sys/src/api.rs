//! The 19 functions of `store_c.h`, as one struct of function pointers.
//!
//! One table below gives name, parameters, result and rules of each function; the struct, the list of
//! symbols and the loader are made from it, so they can not disagree. The signatures are proven against
//! a C compiler in `tests/echo.rs`; the rules come from the header, its source and from experiments with
//! a library built from source.

use std::ffi::{c_char, c_int, c_void};

use crate::types::{ReplicateConfig, Store};

/// Makes [`Api`] from the table of functions: C name = `mooncake_store_` + field name.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {
        /// Every function of `store_c.h`, resolved.
        ///
        /// All calls are synchronous. Strings are NUL-terminated UTF-8 and not kept after the return.
        /// Results are 0 or positive, or one of Mooncake's negative error codes.
        ///
        /// # Safety of every call
        ///
        /// * `store` comes from [`create`](Self::create) and was not destroyed. A null handle is
        ///   answered with -1 (`destroy` ignores it); **a destroyed one crashes the process**, also when
        ///   `destroy` runs while another thread is inside a call.
        /// * Pointers are valid for what the parameter says, arrays for `count` entries. A null key,
        ///   pattern or array, and a null buffer with `size > 0`, are answered with -1 before anything
        ///   else happens; any other bad pointer is undefined behaviour.
        /// * One handle may be used by many threads, except for `setup`, `init_all` and `destroy`.
        /// * **A buffer may be touched after the call has returned -800** (`TRANSFER_FAIL`): after the
        ///   60 s transfer limit the peer goes on writing into, or reading from, it. Do not reuse or
        ///   free such memory before the handle is destroyed.
        #[derive(Clone, Copy, Debug)]
        pub struct Api {
            $(
                $(#[$doc])*
                pub $name: unsafe extern "C" fn($($parameter: $type),*) $(-> $result)?,
            )*
        }

        impl Api {
            /// The C names of all functions, in the order of the fields.
            pub const SYMBOLS: &'static [&'static str] =
                &[$(concat!("mooncake_store_", stringify!($name))),*];

            /// Looks every function up in `library`; otherwise tells all names that it lacks.
            ///
            /// # Safety
            ///
            /// The functions of these names in `library` have the signatures of `store_c.h`, and
            /// `library` stays mapped while the result is in use.
            pub(crate) unsafe fn resolve(
                library: &libloading::Library,
            ) -> Result<Self, Vec<&'static str>> {
                $(
                    let $name = {
                        type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
                        let name = concat!("mooncake_store_", stringify!($name));
                        // SAFETY: the caller vouches for the signature.
                        unsafe { symbol::<Function>(library, name) }
                    };
                )*
                if let ($(Some($name),)*) = ($($name,)*) {
                    return Ok(Self { $($name),* });
                }
                let found = [$($name.is_some()),*];
                let names = Self::SYMBOLS.iter().zip(found);
                Err(names.filter(|(_, found)| !found).map(|(name, _)| *name).collect())
            }
        }
    };
}

functions! {
    /// Makes a store that is not set up. Starts nothing but the signal thread described in the
    /// [crate's notes](crate#what-a-host-process-must-know).
    fn create() -> *mut Store;

    /// Closes and frees `store`; null is ignored. 0.9-2.5 s with a live master, 11-19.5 s with a dead
    /// one if the store lends a segment. There is no separate close.
    fn destroy(store: *mut Store);

    /// Connects `store` to a master and lends `global_segment_size` bytes to the shared pool (0: none).
    /// 0, or -600 for any failure: a dead master (after 4-6 s), an unknown protocol, an absurd size.
    ///
    /// `local_buffer_size` is the staging area of [`put`](Self::put) only. Null `protocol` is `tcp`, null
    /// `device_name` is empty. A `local_hostname` without a port picks one in 12300-14300.
    ///
    /// **Checked by nobody:** a `metadata_server` that is null, empty, without a scheme, or of a scheme
    /// that is not compiled in aborts the process; an empty `master_server_addr` crashes it. A segment
    /// of a bad size answers -600 and leaves the store half set up. A second call replaces the client:
    /// its segment with all objects and every registration are gone.
    fn setup(
        store: *mut Store,
        local_hostname: *const c_char,
        metadata_server: *const c_char,
        global_segment_size: u64,
        local_buffer_size: u64,
        protocol: *const c_char,
        device_name: *const c_char,
        master_server_addr: *const c_char,
    ) -> c_int;

    /// [`setup`](Self::setup) with fixed addresses (`localhost:12345`, etcd on 127.0.0.1:2379) and a
    /// 1 GiB staging area. -600 without etcd or when already set up; aborts the process if a master
    /// listens on port 50051 and etcd is not compiled in.
    fn init_all(
        store: *mut Store,
        protocol: *const c_char,
        device_name: *const c_char,
        mount_segment_size: u64,
    ) -> c_int;

    /// 0 healthy, 1 not set up, 2 the last ping failed. Never blocks. Without a segment there are no
    /// pings: 0 even when the master is dead.
    fn health_check(store: *mut Store) -> c_int;

    /// Stores a copy of `size` bytes at `value`, through the staging area (-600 if they do not fit).
    /// 0 also when the key exists: nothing is written then. Null `config`: one replica, no pins.
    fn put(
        store: *mut Store,
        key: *const c_char,
        value: *const c_void,
        size: usize,
        config: *const ReplicateConfig,
    ) -> c_int;

    /// Stores `size` bytes straight from `buffer`, which RDMA wants registered. 0 also when the key
    /// exists or is being written by somebody else (nothing is written then), and when `size` is 0
    /// (nothing is stored). -200: no space now, at once; the caller retries.
    fn put_from(
        store: *mut Store,
        key: *const c_char,
        buffer: *mut c_void,
        size: usize,
        config: *const ReplicateConfig,
    ) -> c_int;

    /// [`put_from`](Self::put_from) for `count` items, one code each in `results_out`. Returns 0 if it
    /// ran, -1 if an argument or an item is null: then nothing is stored and `results_out` is untouched.
    /// An item of size 0 is -600. Of equal keys the last item wins, and all report 0.
    ///
    /// **Crashes before [`setup`](Self::setup)**, also with `count` 0.
    fn batch_put_from(
        store: *mut Store,
        keys: *mut *const c_char,
        buffers: *mut *mut c_void,
        sizes: *const usize,
        count: usize,
        config: *const ReplicateConfig,
        results_out: *mut c_int,
    ) -> c_int;

    /// Reads the object into `buffer`; its size, or a code. -600 if `size` is too small. -704 absent,
    /// -703 still being written, **-707 lease expired: after the bytes were written** to `buffer`.
    fn get_into(store: *mut Store, key: *const c_char, buffer: *mut c_void, size: usize) -> i64;

    /// [`get_into`](Self::get_into) for `count` items, one result each in `results_out`. Returns 0 or
    /// -1 as [`batch_put_from`](Self::batch_put_from). Of equal keys only the last buffer is filled.
    ///
    /// **Crashes before [`setup`](Self::setup)**, also with `count` 0.
    fn batch_get_into(
        store: *mut Store,
        keys: *mut *const c_char,
        buffers: *mut *mut c_void,
        sizes: *const usize,
        count: usize,
        results_out: *mut i64,
    ) -> c_int;

    /// 1 readable, 0 absent or still being written, or a code. Grants a read lease.
    fn is_exist(store: *mut Store, key: *const c_char) -> c_int;

    /// [`is_exist`](Self::is_exist) for `count` keys. Returns 0 or -1 as
    /// [`batch_put_from`](Self::batch_put_from).
    fn batch_is_exist(
        store: *mut Store,
        keys: *mut *const c_char,
        count: usize,
        results_out: *mut c_int,
    ) -> c_int;

    /// Size of the object in bytes, or a code. Grants a read lease.
    fn get_size(store: *mut Store, key: *const c_char) -> i64;

    /// Writes `host:port` of this store with its NUL to `buf_out`; the empty string before
    /// [`setup`](Self::setup). -1, and `buf_out` untouched, if `buf_len` bytes can not hold it.
    fn get_hostname(store: *mut Store, buf_out: *mut c_char, buf_len: usize) -> c_int;

    /// Removes the object. -706 under a read lease unless `force` is non-zero; -703 while it is being
    /// written, even then.
    fn remove(store: *mut Store, key: *const c_char, force: c_int) -> c_int;

    /// Removes every object whose key contains a match of the ECMAScript `pattern`; their number, or a
    /// code (-600 for a bad pattern).
    fn remove_by_regex(store: *mut Store, pattern: *const c_char, force: c_int) -> i64;

    /// Removes every object; their number, or a code.
    fn remove_all(store: *mut Store, force: c_int) -> i64;

    /// Registers `size` bytes at `buffer` for transfers. -600 if they overlap a registered range, -1 if
    /// null or empty.
    fn register_buffer(store: *mut Store, buffer: *mut c_void, size: usize) -> c_int;

    /// Takes a registration back. `buffer` is the address that was registered; anything else, null too,
    /// is -600.
    fn unregister_buffer(store: *mut Store, buffer: *mut c_void) -> c_int;
}

/// The function called `name`, if the library has one. A symbol at address 0 counts as absent.
///
/// # Safety
///
/// `F` is the type of a function pointer that fits the symbol.
unsafe fn symbol<F: Copy>(library: &libloading::Library, name: &str) -> Option<F> {
    // SAFETY: `Option<F>` has the size of a pointer, with `None` for null; the caller vouches for `F`.
    unsafe { library.get::<Option<F>>(name) }.ok().and_then(|found| *found)
}
