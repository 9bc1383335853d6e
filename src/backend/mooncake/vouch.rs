//! What this back end vouches for to the C library: the memory that it lends, and the library itself.
//!
//! This is the only file of the back ends with unsafe code. Its argument is the ownership of
//! [`Store`](crate::env::Store): a buffer is a [`Transfer`] for as long as I/O may touch it, and a transfer
//! that is dropped is quarantined, not reused.

#![expect(unsafe_code, reason = "memory is lent to a C library that is loaded at run time")]

use std::{env, path::Path, ptr::NonNull};

use mooncake_sys::{Buffer, LIBRARY_VARIABLE, Library, LoadError};

use crate::pool::{Region, Transfer};

/// The memory of a transfer that lies in one piece. `None` if it is scattered.
pub(super) fn buffer(transfer: &Transfer) -> Option<Buffer> {
    let [extent] = transfer.extents() else { return None };
    let address = transfer.region().base().wrapping_add(usize::try_from(extent.offset).ok()?);
    let len = usize::try_from(extent.len).ok()?;
    // SAFETY: the pool allocated these bytes of the region's mapping, which lives as long as the transfer,
    // and lent them: nobody else writes to them, and no reference covers them. The transfer is held until
    // the call has returned; after the codes that leave its end open it is quarantined, until the client is
    // closed.
    Some(unsafe { Buffer::new(NonNull::new(address)?, len) })
}

/// All the memory of a region, to be registered.
pub(super) fn region(region: &Region) -> Option<Buffer> {
    let (address, len) = (NonNull::new(region.base())?, usize::try_from(region.len()).ok()?);
    // SAFETY: the mapping lives as long as the region, which the store's shell keeps until the registration
    // was taken back or the client is closed. A registration moves no bytes by itself.
    Some(unsafe { Buffer::new(address, len) })
}

/// The library at `path`, or the one that the environment or the loader finds.
pub(super) fn library(path: Option<&Path>) -> Result<Library, LoadError> {
    // SAFETY: whoever configures or installs the library vouches for it, as for every shared library; that
    // it has all functions is checked.
    unsafe {
        match path {
            Some(path) => Library::open(path),
            None if env::var_os(LIBRARY_VARIABLE).is_some_and(|name| !name.is_empty()) => {
                Library::from_env()
            }
            None => Library::load(),
        }
    }
}
