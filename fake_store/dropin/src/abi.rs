//! The 19 functions of `store_c.h`.
//!
//! Arguments are checked as Mooncake checks them: null gives -1 before anything else. Where Mooncake would
//! crash (a batch before the setup, any call after the end) the answer is -600. A panic is -1.
//!
//! Safety, for all of them: texts end with a NUL, arrays hold `count` entries, buffers hold the bytes that are
//! named, until the call returns, and after it if it said -800 at the transfer limit.

use std::{
    ffi::{c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use mooncake_sys::{Api, ReplicateConfig, Store};
use springtide::env::ErrorCode;

use crate::{
    handle::{self, Arguments, FakeClient, Ready},
    memory::{Piece, array, config, text},
    world::world,
};

/// Every function; that this compiles proves that their types are those which `mooncake-sys` calls.
pub const API: Api = Api {
    create: mooncake_store_create,
    destroy: mooncake_store_destroy,
    setup: mooncake_store_setup,
    init_all: mooncake_store_init_all,
    health_check: mooncake_store_health_check,
    put: mooncake_store_put,
    put_from: mooncake_store_put_from,
    batch_put_from: mooncake_store_batch_put_from,
    get_into: mooncake_store_get_into,
    batch_get_into: mooncake_store_batch_get_into,
    is_exist: mooncake_store_is_exist,
    batch_is_exist: mooncake_store_batch_is_exist,
    get_size: mooncake_store_get_size,
    get_hostname: mooncake_store_get_hostname,
    remove: mooncake_store_remove,
    remove_by_regex: mooncake_store_remove_by_regex,
    remove_all: mooncake_store_remove_all,
    register_buffer: mooncake_store_register_buffer,
    unregister_buffer: mooncake_store_unregister_buffer,
};

/// A null argument, or a panic.
const INTERNAL: i64 = -1;
const INVALID: i64 = -600;

/// Runs a function's body; a panic ends here.
fn guard(body: impl FnOnce() -> Option<i64>) -> i64 {
    catch_unwind(AssertUnwindSafe(body)).ok().flatten().unwrap_or(INTERNAL)
}

/// Asks a handle's client. `None` for a null handle.
fn ask(store: *mut Store, call: impl AsyncFnOnce(&FakeClient) -> i64) -> Option<i64> {
    let Some(ready) = ready(store)? else { return Some(INVALID) };
    let world = world().ok()?;
    Some(world.run(call(&ready.client)))
}

/// What a handle is set up with, if it is. `None` for a null handle.
fn ready(store: *mut Store) -> Option<Option<Arc<Ready>>> {
    (!store.is_null()).then(|| handle::find(store as usize))
}

fn number(result: Result<u64, ErrorCode>) -> i64 {
    result
        .map_or_else(|code| code.number().into(), |value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn code(result: Result<(), ErrorCode>) -> i64 {
    number(result.map(|()| 0))
}

/// Writes one result an item.
///
/// # Safety
/// The array holds as many.
unsafe fn fill<T: TryFrom<i64>>(to: *mut T, results: impl IntoIterator<Item = i64>) {
    for (i, result) in results.into_iter().enumerate() {
        if let Ok(result) = T::try_from(result) {
            // SAFETY: the caller vouches for it.
            unsafe { to.add(i).write(result) };
        }
    }
}

/// The items of a batch; `None` if an array, a key, or a buffer with bytes is null.
///
/// # Safety
/// The arrays hold `count` entries.
unsafe fn items(
    keys: *mut *const c_char,
    buffers: *mut *mut c_void,
    sizes: *const usize,
    count: usize,
) -> Option<Vec<(String, Piece)>> {
    // SAFETY: the caller vouches for them.
    let (keys, buffers, sizes) =
        unsafe { (array(keys, count)?, array(buffers, count)?, array(sizes, count)?) };
    let items = keys.iter().zip(buffers).zip(sizes);
    // SAFETY: likewise for the texts.
    items
        .map(|((key, buffer), size)| Some((unsafe { text(*key) }?, Piece::new(*buffer, *size)?)))
        .collect()
}

#[unsafe(no_mangle)]
extern "C" fn mooncake_store_create() -> *mut Store {
    handle::create() as *mut Store
}

#[unsafe(no_mangle)]
extern "C" fn mooncake_store_destroy(store: *mut Store) {
    guard(|| {
        handle::destroy(store as usize);
        None
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_setup(
    store: *mut Store,
    local_hostname: *const c_char,
    metadata_server: *const c_char,
    global_segment_size: u64,
    local_buffer_size: u64,
    protocol: *const c_char,
    _device_name: *const c_char,
    master_server_addr: *const c_char,
) -> c_int {
    guard(|| {
        if store.is_null() {
            return None;
        }
        // SAFETY: see the module.
        let (hostname, metadata, protocol, master) = unsafe {
            (text(local_hostname), text(metadata_server), text(protocol), text(master_server_addr))
        };
        let arguments = Arguments {
            hostname: hostname.unwrap_or_default(),
            metadata_server: metadata.unwrap_or_default(),
            segment_bytes: global_segment_size,
            local_buffer_bytes: local_buffer_size,
            protocol: protocol.unwrap_or_else(|| "tcp".into()),
            master: master.unwrap_or_else(|| "127.0.0.1:50051".into()),
        };
        Some(match handle::set_up(store as usize, &arguments) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("libmooncake_store (fake): setup: {error}");
                INVALID
            }
        })
    }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn mooncake_store_init_all(
    store: *mut Store,
    _protocol: *const c_char,
    _device_name: *const c_char,
    _mount_segment_size: u64,
) -> c_int {
    // It needs etcd at a fixed address.
    guard(|| (!store.is_null()).then_some(INVALID)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn mooncake_store_health_check(store: *mut Store) -> c_int {
    guard(|| Some(ready(store)?.map_or(1, |ready| ready.client.health_check().into()))) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_put(
    store: *mut Store,
    key: *const c_char,
    value: *const c_void,
    size: usize,
    replicate: *const ReplicateConfig,
) -> c_int {
    guard(|| {
        // SAFETY: see the module.
        let (key, value) = unsafe { (text(key)?, Piece::new(value, size)?.copy()) };
        // SAFETY: see the module.
        let config = unsafe { config(replicate) };
        ask(store, async |client| code(client.put_bytes(&key, value, &config).await))
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_put_from(
    store: *mut Store,
    key: *const c_char,
    buffer: *mut c_void,
    size: usize,
    replicate: *const ReplicateConfig,
) -> c_int {
    guard(|| {
        // SAFETY: see the module.
        let (key, config) = unsafe { (text(key)?, config(replicate)) };
        let piece = Piece::new(buffer, size)?;
        ask(store, async |client| code(client.put_from((key, piece.shared()), &config).await))
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_batch_put_from(
    store: *mut Store,
    keys: *mut *const c_char,
    buffers: *mut *mut c_void,
    sizes: *const usize,
    count: usize,
    replicate: *const ReplicateConfig,
    results_out: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: see the module.
        let (items, config) = unsafe { (items(keys, buffers, sizes, count)?, config(replicate)) };
        if store.is_null() || results_out.is_null() {
            return None;
        }
        let items = items.into_iter().map(|(key, piece)| (key, piece.shared())).collect();
        let results = match ready(store)? {
            Some(ready) => world().ok()?.run(ready.client.batch_put_from(items, &config)),
            None => vec![Err(ErrorCode::InvalidParams); count],
        };
        // SAFETY: see the module.
        unsafe { fill(results_out, results.into_iter().map(code)) };
        Some(0)
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_get_into(
    store: *mut Store,
    key: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    guard(|| {
        // SAFETY: see the module.
        let key = unsafe { text(key)? };
        let piece = Piece::new(buffer, size)?;
        ask(store, async |client| number(client.get_into((key, piece.shared())).await))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_batch_get_into(
    store: *mut Store,
    keys: *mut *const c_char,
    buffers: *mut *mut c_void,
    sizes: *const usize,
    count: usize,
    results_out: *mut i64,
) -> c_int {
    guard(|| {
        // SAFETY: see the module.
        let items = unsafe { items(keys, buffers, sizes, count)? };
        if store.is_null() || results_out.is_null() {
            return None;
        }
        let items = items.into_iter().map(|(key, piece)| (key, piece.shared())).collect();
        let results = match ready(store)? {
            Some(ready) => world().ok()?.run(ready.client.batch_get_into(items)),
            None => vec![Err(ErrorCode::InvalidParams); count],
        };
        // SAFETY: see the module.
        unsafe { fill(results_out, results.into_iter().map(number)) };
        Some(0)
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_is_exist(store: *mut Store, key: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: see the module.
        let key = unsafe { text(key)? };
        ask(store, async |client| number(client.is_exist(&key).await.map(u64::from)))
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_batch_is_exist(
    store: *mut Store,
    keys: *mut *const c_char,
    count: usize,
    results_out: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: see the module.
        let keys = unsafe { array(keys, count)? };
        // SAFETY: see the module.
        let keys = keys.iter().map(|key| unsafe { text(*key) }).collect::<Option<Vec<String>>>()?;
        if store.is_null() || results_out.is_null() {
            return None;
        }
        let results = match ready(store)? {
            Some(ready) => world().ok()?.run(ready.client.batch_is_exist(keys)),
            None => vec![Err(ErrorCode::InvalidParams); count],
        };
        // SAFETY: see the module.
        unsafe { fill(results_out, results.into_iter().map(|found| number(found.map(u64::from)))) };
        Some(0)
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_get_size(store: *mut Store, key: *const c_char) -> i64 {
    guard(|| {
        // SAFETY: see the module.
        let key = unsafe { text(key)? };
        ask(store, async |client| number(client.get_size(&key).await))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_get_hostname(
    store: *mut Store,
    buf_out: *mut c_char,
    buf_len: usize,
) -> c_int {
    guard(|| {
        let ready = ready(store)?;
        let name = ready.map_or_else(String::new, |ready| ready.client.hostname().to_owned());
        if buf_out.is_null() || buf_len <= name.len() {
            return None;
        }
        // SAFETY: the buffer holds `buf_len` bytes, which are more than the name has.
        unsafe {
            buf_out.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len());
            buf_out.add(name.len()).write(0);
        }
        Some(0)
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_remove(
    store: *mut Store,
    key: *const c_char,
    force: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: see the module.
        let key = unsafe { text(key)? };
        ask(store, async |client| {
            let mut removed = client.batch_remove(vec![key], force != 0).await;
            code(removed.pop().unwrap_or(Err(ErrorCode::Internal)))
        })
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mooncake_store_remove_by_regex(
    store: *mut Store,
    pattern: *const c_char,
    force: c_int,
) -> i64 {
    guard(|| {
        // SAFETY: see the module.
        let pattern = unsafe { text(pattern)? };
        ask(store, async |client| number(client.remove_by_regex(&pattern, force != 0).await))
    })
}

#[unsafe(no_mangle)]
extern "C" fn mooncake_store_remove_all(store: *mut Store, force: c_int) -> i64 {
    guard(|| ask(store, async |client| number(client.remove_all(force != 0).await)))
}

#[unsafe(no_mangle)]
extern "C" fn mooncake_store_register_buffer(
    store: *mut Store,
    buffer: *mut c_void,
    size: usize,
) -> c_int {
    guard(|| {
        let piece =
            Piece::new(buffer, size).filter(|piece| !buffer.is_null() && piece.len() > 0)?;
        ask(store, async |client| code(client.register_buffer(buffer as usize, piece.len()).await))
    }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn mooncake_store_unregister_buffer(store: *mut Store, buffer: *mut c_void) -> c_int {
    guard(|| ask(store, async |client| code(client.unregister_buffer(buffer as usize).await)))
        as c_int
}
