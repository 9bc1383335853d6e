//! What a [`Client`] can be asked to do, with checked arguments and typed results.
//!
//! Each call enters the gate first, so the handle cannot be destroyed under it. A key with a NUL is refused
//! by itself; the other items of its batch go on. A call with no items does not reach the library.

use std::{
    collections::BTreeSet,
    ffi::{CString, c_char, c_int, c_void},
    ptr::NonNull,
};

use crate::{
    buffer::{Buffer, Item},
    client::{Call, Client},
    code::{CallError, Code, checked},
    replication::Replication,
};

/// Bytes that a host name can have; the library's own are `host:port`.
const HOSTNAME_BYTES: usize = 512;

impl Client {
    /// Stores objects, one result each, in order. **Success does not mean stored**: a put over a key that
    /// exists, or that somebody else is still writing, succeeds and writes nothing. Of equal keys in one
    /// call the last wins.
    pub fn put(&self, items: &[Item<'_>], replication: &Replication) -> Vec<Result<(), CallError>> {
        let results = self.batch(items, |call, batch| {
            let mut codes = vec![Code::INTERNAL_ERROR.number(); batch.len()];
            let result = replication.with(|config| {
                // SAFETY: the handle is live and set up (`call`), the arrays have `len` entries each and
                // outlive the call, the keys end with a NUL, and whoever made the buffers vouches for them.
                unsafe {
                    (call.api().batch_put_from)(
                        call.store(),
                        batch.keys.as_mut_ptr(),
                        batch.buffers.as_mut_ptr(),
                        batch.sizes.as_ptr(),
                        batch.len(),
                        config,
                        codes.as_mut_ptr(),
                    )
                }
            });
            answers(result, codes.into_iter().map(i64::from))
        });
        results.into_iter().map(|result| result.map(drop)).collect()
    }

    /// Fetches objects; each result is the object's length in bytes, at most its buffer's. Equal keys are
    /// refused with `INVALID_PARAMS`, all but the last: the library would report them read and fill none
    /// but the last one's buffer.
    pub fn get(&self, items: &[Item<'_>]) -> Vec<Result<u64, CallError>> {
        let mut later = BTreeSet::new();
        let mut last: Vec<bool> = items.iter().rev().map(|item| later.insert(item.key)).collect();
        last.reverse();
        let unique: Vec<Item<'_>> =
            items.iter().zip(&last).filter(|(_, last)| **last).map(|(item, _)| *item).collect();
        let mut results = self
            .batch(&unique, |call, batch| {
                let mut lengths = vec![i64::from(Code::INTERNAL_ERROR.number()); batch.len()];
                // SAFETY: as in `put`.
                let result = unsafe {
                    (call.api().batch_get_into)(
                        call.store(),
                        batch.keys.as_mut_ptr(),
                        batch.buffers.as_mut_ptr(),
                        batch.sizes.as_ptr(),
                        batch.len(),
                        lengths.as_mut_ptr(),
                    )
                };
                answers(result, lengths.into_iter())
            })
            .into_iter();
        let refused = Err(CallError::Code(Code::INVALID_PARAMS));
        last.into_iter()
            .map(|last| if last { results.next().unwrap_or(refused) } else { refused })
            .collect()
    }

    /// Whether each key is readable now. Takes a read lease on those that are.
    pub fn exists(&self, keys: &[&str]) -> Vec<Result<bool, CallError>> {
        // The buffers are not passed on: this call has none.
        let items: Vec<Item<'_>> = keys.iter().map(|key| Item { key, buffer: nothing() }).collect();
        let results = self.batch(&items, |call, batch| {
            let mut codes = vec![Code::INTERNAL_ERROR.number(); batch.len()];
            // SAFETY: as in `put`, without buffers.
            let result = unsafe {
                (call.api().batch_is_exist)(
                    call.store(),
                    batch.keys.as_mut_ptr(),
                    batch.len(),
                    codes.as_mut_ptr(),
                )
            };
            answers(result, codes.into_iter().map(i64::from))
        });
        results.into_iter().map(|result| result.map(|found| found > 0)).collect()
    }

    /// The length of an object in bytes. Takes a read lease.
    ///
    /// # Errors
    /// [`CallError`]; -704 for an absent object, -703 for one that is still being written.
    pub fn size(&self, key: &str) -> Result<u64, CallError> {
        let (call, key) = (self.call()?, CString::new(key)?);
        // SAFETY: the handle is live and set up, the key ends with a NUL.
        checked(unsafe { (call.api().get_size)(call.store(), key.as_ptr()) })
    }

    /// Stores a copy of `bytes`, through the staging area: they must fit there.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn put_bytes(
        &self,
        key: &str,
        bytes: &[u8],
        replication: &Replication,
    ) -> Result<(), CallError> {
        let (call, key) = (self.call()?, CString::new(key)?);
        let result = replication.with(|config| {
            let value = bytes.as_ptr().cast::<c_void>();
            // SAFETY: the handle is live and set up, the key ends with a NUL, and the library copies the
            // bytes before it returns: what goes on after that reads its own staging area.
            unsafe { (call.api().put)(call.store(), key.as_ptr(), value, bytes.len(), config) }
        });
        checked(result.into()).map(drop)
    }

    /// Removes an object; `force` ignores read leases.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn remove(&self, key: &str, force: bool) -> Result<(), CallError> {
        let (call, key) = (self.call()?, CString::new(key)?);
        // SAFETY: the handle is live and set up, the key ends with a NUL.
        let result = unsafe { (call.api().remove)(call.store(), key.as_ptr(), force.into()) };
        checked(result.into()).map(drop)
    }

    /// Removes every object whose key contains a match of an ECMAScript pattern; their number.
    ///
    /// # Errors
    /// [`CallError`]; -600 for a pattern that cannot be parsed.
    pub fn remove_matching(&self, pattern: &str, force: bool) -> Result<u64, CallError> {
        let (call, pattern) = (self.call()?, CString::new(pattern)?);
        // SAFETY: the handle is live and set up, the pattern ends with a NUL.
        checked(unsafe {
            (call.api().remove_by_regex)(call.store(), pattern.as_ptr(), force.into())
        })
    }

    /// Removes every object; their number.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn remove_all(&self, force: bool) -> Result<u64, CallError> {
        let call = self.call()?;
        // SAFETY: the handle is live and set up.
        checked(unsafe { (call.api().remove_all)(call.store(), force.into()) })
    }

    /// Makes memory known to the transport; RDMA moves data only in such memory.
    ///
    /// # Errors
    /// [`CallError`]; -600 if a part of it is registered already.
    pub fn register(&self, buffer: Buffer) -> Result<(), CallError> {
        let call = self.call()?;
        // SAFETY: the handle is live and set up; whoever made the buffer vouches for it.
        let result =
            unsafe { (call.api().register_buffer)(call.store(), buffer.pointer(), buffer.len()) };
        checked(result.into()).map(drop)
    }

    /// Undoes [`Client::register`] with the very same buffer.
    ///
    /// # Errors
    /// [`CallError`]; the memory must stay mapped then.
    pub fn unregister(&self, buffer: Buffer) -> Result<(), CallError> {
        let call = self.call()?;
        // SAFETY: the handle is live and set up; the address is not followed.
        let result = unsafe { (call.api().unregister_buffer)(call.store(), buffer.pointer()) };
        checked(result.into()).map(drop)
    }

    /// Whether the last ping reached the master. Never blocks. A client without a segment never pings:
    /// it is always healthy.
    ///
    /// # Errors
    /// [`CallError::Closed`].
    pub fn is_healthy(&self) -> Result<bool, CallError> {
        let call = self.call()?;
        // SAFETY: the handle is live and set up.
        Ok(unsafe { (call.api().health_check)(call.store()) } == 0)
    }

    /// This client's `host:port`, which names its segment.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn hostname(&self) -> Result<String, CallError> {
        let call = self.call()?;
        let mut name = vec![0_u8; HOSTNAME_BYTES];
        let (start, len) = (name.as_mut_ptr().cast::<c_char>(), name.len());
        // SAFETY: the handle is live and set up, and `name` has `len` bytes to write to.
        let result = unsafe { (call.api().get_hostname)(call.store(), start, len) };
        checked(result.into())?;
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(len));
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    // -- inside ----------------------------------------------------------------------------------------

    /// Makes one call with the items whose keys can be passed on, if there are any, and gives every item
    /// its result.
    fn batch(
        &self,
        items: &[Item<'_>],
        call: impl FnOnce(&Call<'_>, &mut Batch) -> Vec<Result<u64, CallError>>,
    ) -> Vec<Result<u64, CallError>> {
        let inside = match self.call() {
            Ok(inside) => inside,
            Err(closed) => return vec![Err(closed); items.len()],
        };
        let keys: Vec<_> = items.iter().map(|item| CString::new(item.key)).collect();
        let good =
            keys.iter().zip(items).filter_map(|(key, item)| Some((key.as_ref().ok()?, item)));
        let mut batch = Batch::default();
        for (key, item) in good {
            batch.keys.push(key.as_ptr());
            batch.buffers.push(item.buffer.pointer());
            batch.sizes.push(item.buffer.len());
        }
        // The library need not be asked about nothing.
        let results = if batch.len() == 0 { Vec::new() } else { call(&inside, &mut batch) };
        let mut results = results.into_iter();
        let lost = Err(CallError::Code(Code::INTERNAL_ERROR));
        let result = |key: Result<CString, _>| match key {
            Ok(_) => results.next().unwrap_or(lost),
            Err(nul) => Err(CallError::from(nul)),
        };
        keys.into_iter().map(result).collect()
    }
}

/// The arrays of a batch call, of equal length. The keys point into strings that outlive it.
#[derive(Default)]
struct Batch {
    keys: Vec<*const c_char>,
    buffers: Vec<*mut c_void>,
    sizes: Vec<usize>,
}

impl Batch {
    fn len(&self) -> usize {
        self.keys.len()
    }
}

/// The answers of a batch call: the items' own, or the call's for all of them.
fn answers(result: c_int, items: impl Iterator<Item = i64>) -> Vec<Result<u64, CallError>> {
    items.map(|item| checked(result.into()).and_then(|_| checked(item))).collect()
}

/// A buffer for calls that have none.
fn nothing() -> Buffer {
    // SAFETY: no bytes, so there is nothing to vouch for.
    unsafe { Buffer::new(NonNull::dangling(), 0) }
}
