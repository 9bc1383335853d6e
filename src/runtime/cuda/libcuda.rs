//! The driver of a machine with an NVIDIA card: `libcuda.so.1`, looked for when the program runs.
//!
//! `cudarc` ends the program when it cannot find the library or a function of it. So nothing is called before
//! [`Libcuda::load`] has found the library, and only functions that each version since CUDA 11 has are called.

#![expect(unsafe_code, reason = "the driver is a C library; this file is where it is called")]

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

use cudarc::driver::sys::{self, CUresult};

use super::driver::{Context, CudaError, Driver, Event, Facts, Ordinal, Result, Stream};

/// Bytes of a name that the driver writes.
const NAME_BYTES: usize = 128;

/// The driver, found and initialised.
#[derive(Clone, Copy, Debug)]
pub struct Libcuda(());

impl Libcuda {
    /// Looks for the library and initialises it.
    ///
    /// # Errors
    /// [`CudaError::Absent`] where there is none; the driver's, for one without a usable card.
    pub fn load() -> Result<Self> {
        // SAFETY: this maps NVIDIA's library, whose initialisers are made to run in any process.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::Absent);
        }
        // SAFETY: the library is there; the call has no other condition.
        check("cuInit", unsafe { sys::cuInit(0) })?;
        Ok(Self(()))
    }

    /// The newest CUDA that the driver can do, as major and minor.
    ///
    /// # Errors
    /// The driver's.
    pub fn version(&self) -> Result<(i32, i32)> {
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// The devices that this process may use.
    ///
    /// # Errors
    /// The driver's.
    pub fn devices(&self) -> Result<Vec<Facts>> {
        let mut count = 0;
        // SAFETY: the pointer is to a live integer.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        (0..count).map(|ordinal| self.facts(Ordinal(ordinal))).collect()
    }

    fn facts(&self, ordinal: Ordinal) -> Result<Facts> {
        let device = self.device(ordinal)?;
        let mut bytes = 0;
        // SAFETY: the pointer is to a live integer.
        check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, device) })?;
        let name = text("cuDeviceGetName", |to, len| {
            // SAFETY: `text` passes a buffer of `len` bytes.
            unsafe { sys::cuDeviceGetName(to, len, device) }
        })?;
        let pci = text("cuDeviceGetPCIBusId", |to, len| {
            // SAFETY: as above.
            unsafe { sys::cuDeviceGetPCIBusId(to, len, device) }
        })?;
        Ok(Facts { ordinal, name, bytes: bytes as u64, pci: pci.to_lowercase() })
    }

    pub(super) fn device(&self, ordinal: Ordinal) -> Result<sys::CUdevice> {
        let mut device = 0;
        // SAFETY: the pointer is to a live integer.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal.0) })?;
        Ok(device)
    }

    /// Makes calls in a context, and leaves the thread's own current one as it was.
    pub(super) fn within<T>(
        &self,
        context: Context,
        calls: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let context = context.0 as sys::CUcontext;
        // SAFETY: a context that the driver gave, as every other handle in this file.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(context) })?;
        let result = calls();
        let mut popped = ptr::null_mut();
        // SAFETY: the pointer is to a live handle, and the context was pushed above.
        check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&mut popped) })?;
        result
    }
}

impl Driver for Libcuda {
    fn retain(&self, ordinal: Ordinal) -> Result<Context> {
        let device = self.device(ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
        check("cuDevicePrimaryCtxRetain", result).map(|()| Context(context as u64))
    }

    fn release(&self, ordinal: Ordinal) -> Result<()> {
        let device = self.device(ordinal)?;
        // SAFETY: releases what `retain` has taken.
        check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) })
    }

    fn create_stream(&self, context: Context) -> Result<Stream> {
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        self.within(context, || {
            let mut stream = ptr::null_mut();
            // SAFETY: the pointer is to a live handle.
            check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
            Ok(Stream(stream as u64))
        })
    }

    fn destroy_stream(&self, context: Context, stream: Stream) -> Result<()> {
        let stream = stream.0 as sys::CUstream;
        self.within(context, || {
            // SAFETY: a stream that `create_stream` gave.
            check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream) })
        })
    }

    fn create_event(&self, context: Context) -> Result<Event> {
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        self.within(context, || {
            let mut event = ptr::null_mut();
            // SAFETY: the pointer is to a live handle.
            check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
            Ok(Event(event as u64))
        })
    }

    fn destroy_event(&self, context: Context, event: Event) -> Result<()> {
        let event = event.0 as sys::CUevent;
        // SAFETY: an event that `create_event` gave.
        self.within(context, || check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event) }))
    }

    fn record(&self, context: Context, event: Event, stream: Stream) -> Result<()> {
        let (event, stream) = (event.0 as sys::CUevent, stream.0 as sys::CUstream);
        self.within(context, || {
            // SAFETY: handles of this context: ours, or those that whoever made the tensor vouched for.
            check("cuEventRecord", unsafe { sys::cuEventRecord(event, stream) })
        })
    }

    fn wait(&self, context: Context, stream: Stream, event: Event) -> Result<()> {
        let (event, stream) = (event.0 as sys::CUevent, stream.0 as sys::CUstream);
        self.within(context, || {
            // SAFETY: as in `record`; the event may be of another context.
            check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, event, 0) })
        })
    }

    fn query(&self, context: Context, event: Event) -> Result<bool> {
        let event = event.0 as sys::CUevent;
        // SAFETY: an event that `create_event` gave.
        self.within(context, || match unsafe { sys::cuEventQuery(event) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        })
    }

    unsafe fn copy_out(
        &self,
        context: Context,
        stream: Stream,
        from: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<()> {
        let (to, stream) = (to.cast::<c_void>(), stream.0 as sys::CUstream);
        self.within(context, || {
            // SAFETY: the caller vouches for both ranges.
            let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, len, stream) };
            check("cuMemcpyDtoHAsync", result)
        })
    }

    unsafe fn copy_in(
        &self,
        context: Context,
        stream: Stream,
        from: *const u8,
        to: u64,
        len: usize,
    ) -> Result<()> {
        let (from, stream) = (from.cast::<c_void>(), stream.0 as sys::CUstream);
        self.within(context, || {
            // SAFETY: the caller vouches for both ranges.
            let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, len, stream) };
            check("cuMemcpyHtoDAsync", result)
        })
    }

    unsafe fn lock_pages(&self, context: Context, base: *mut u8, len: usize) -> Result<()> {
        let base = base.cast::<c_void>();
        self.within(context, || {
            // SAFETY: the caller vouches for the range.
            let result =
                unsafe { sys::cuMemHostRegister_v2(base, len, sys::CU_MEMHOSTREGISTER_PORTABLE) };
            check("cuMemHostRegister", result)
        })
    }

    unsafe fn unlock_pages(&self, context: Context, base: *mut u8) -> Result<()> {
        let base = base.cast::<c_void>();
        self.within(context, || {
            // SAFETY: the caller vouches for it.
            check("cuMemHostUnregister", unsafe { sys::cuMemHostUnregister(base) })
        })
    }
}

pub(super) fn check(call: &'static str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = ptr::null();
    // SAFETY: the pointer is to a live pointer.
    let named = unsafe { sys::cuGetErrorName(result, &mut name) };
    let name = if named == CUresult::CUDA_SUCCESS && !name.is_null() {
        // SAFETY: the driver gives a constant text that ends with a zero.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into()
    } else {
        "an error without a name".into()
    };
    Err(CudaError::Call { call, code: result as i32, name })
}

/// A text that the driver writes.
fn text(call: &'static str, write: impl FnOnce(*mut c_char, i32) -> CUresult) -> Result<String> {
    let mut bytes = [0u8; NAME_BYTES];
    check(call, write(bytes.as_mut_ptr().cast(), NAME_BYTES as i32))?;
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}
