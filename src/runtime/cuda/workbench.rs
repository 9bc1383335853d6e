//! A device to try things on: memory of our own, and a kernel that is late. For `springtide hw`, which shows on a
//! card what tests show on a model.

#![expect(
    unsafe_code,
    reason = "allocates device memory and starts a kernel through the driver's C functions"
)]

use std::{ffi::c_void, fmt, io, ptr, sync::Arc, time::Duration};

use cudarc::driver::sys;

use super::{
    device::{CudaDevice, LOCK_BYTES},
    driver::{CudaError, Driver, Ordinal, Result, Stream},
    lane::{Lane, told},
    libcuda::{Libcuda, check},
    tensor::{CudaEvent, CudaTensor},
};
use crate::env::TensorSpec;

/// Spins for some nanoseconds of the card's own clock, then fills memory, a word each thread.
const LATE_FILL: &str = concat!(include_str!("late_fill.ptx"), "\0");
const THREADS: u32 = 256;

/// A device, with a stream that stands for an engine's.
pub struct Workbench {
    device: CudaDevice<Libcuda>,
    engine: Arc<EngineStream>,
    kernel: Kernel,
}

impl fmt::Debug for Workbench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workbench").field("ordinal", &self.ordinal()).finish()
    }
}

/// Why there is no workbench.
#[derive(Debug, thiserror::Error)]
pub enum WorkbenchError {
    /// The driver's.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The system refused a thread.
    #[error("a thread for CUDA's events: {0}")]
    Thread(#[from] io::Error),
}

impl Workbench {
    /// The workbench of a device.
    ///
    /// # Errors
    /// Without a driver or such a device, or when the driver refuses.
    pub fn open(ordinal: Ordinal) -> std::result::Result<Self, WorkbenchError> {
        let driver = Libcuda::load()?;
        let lane = Arc::new(Lane::open(driver, ordinal)?);
        let stream = driver.create_stream(lane.context)?;
        let engine = Arc::new(EngineStream { lane, stream });
        let kernel = Kernel::load(&engine)?;
        Ok(Self { device: CudaDevice::new(driver, LOCK_BYTES)?, engine, kernel })
    }

    /// The device as a connector has it; a new one each time, so that what it has locked goes with it.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn device(&self) -> std::result::Result<CudaDevice<Libcuda>, WorkbenchError> {
        Ok(CudaDevice::new(self.engine.lane.driver, LOCK_BYTES)?)
    }

    /// Its number.
    pub fn ordinal(&self) -> Ordinal {
        self.engine.lane.ordinal
    }

    /// The point behind everything that the engine's stream has so far.
    ///
    /// # Errors
    /// The driver's.
    pub fn mark(&self) -> Result<CudaEvent<Libcuda>> {
        self.device.mark(self.ordinal(), self.engine.stream)
    }

    /// A tensor with these bytes, put there through memory that is not locked.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If the bytes are not as many as `spec` says, or none.
    pub fn tensor(&self, spec: TensorSpec, bytes: &[u8]) -> Result<CudaTensor> {
        assert!(bytes.len() as u64 == spec.bytes() && !bytes.is_empty());
        let memory = Memory::allocate(&self.engine, bytes.len())?;
        let (ordinal, stream, address) = (self.ordinal(), self.engine.stream, memory.address);
        // SAFETY: the memory is kept, and is that long; it keeps the stream, which is of this device.
        let tensor = unsafe { CudaTensor::new(spec, address, ordinal, stream, memory) };
        self.write(&tensor, bytes)?;
        Ok(tensor)
    }

    /// Replaces a tensor's bytes, and waits until that is done.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If the bytes are not as many as the tensor's.
    pub fn write(&self, tensor: &CudaTensor, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len() as u64, tensor.spec.bytes());
        let (driver, context) = (self.engine.lane.driver, self.engine.lane.context);
        let (from, to) = (bytes.as_ptr(), tensor.address);
        // SAFETY: both ranges are that long, and stay until the stream has been waited for.
        unsafe { driver.copy_in(context, self.engine.stream, from, to, bytes.len()) }?;
        self.engine.finish()
    }

    /// A tensor's bytes, once everything on the engine's stream is done.
    ///
    /// # Errors
    /// The driver's.
    pub fn read(&self, tensor: &CudaTensor) -> Result<Vec<u8>> {
        let mut bytes = vec![0; tensor.spec.bytes() as usize];
        self.read_into(tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// The same into memory that is there already.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If there is not as much memory as the tensor has bytes.
    pub fn read_into(&self, tensor: &CudaTensor, bytes: &mut [u8]) -> Result<()> {
        assert_eq!(bytes.len() as u64, tensor.spec.bytes());
        let (driver, context) = (self.engine.lane.driver, self.engine.lane.context);
        let (from, to) = (tensor.address, bytes.as_mut_ptr());
        // SAFETY: as in `write`; nobody else uses `bytes`.
        unsafe { driver.copy_out(context, self.engine.stream, from, to, bytes.len()) }?;
        self.engine.finish()
    }

    /// Starts a kernel on the engine's stream that goes on for `late`, then fills the tensor with `byte`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If the tensor is not whole words of 4 bytes.
    pub fn late_fill(&self, tensor: &CudaTensor, byte: u8, late: Duration) -> Result<()> {
        assert!(tensor.spec.bytes().is_multiple_of(4));
        let (mut out, mut words) = (tensor.address, (tensor.spec.bytes() / 4) as u32);
        let (mut value, mut nanos) = (u32::from_ne_bytes([byte; 4]), late.as_nanos() as u64);
        let mut parameters: [*mut c_void; 4] = [
            ptr::from_mut(&mut out).cast(),
            ptr::from_mut(&mut words).cast(),
            ptr::from_mut(&mut value).cast(),
            ptr::from_mut(&mut nanos).cast(),
        ];
        let (blocks, stream) = (words.div_ceil(THREADS), self.engine.stream.0 as sys::CUstream);
        let lane = &self.engine.lane;
        lane.driver.within(lane.context, || {
            // SAFETY: the parameters are those of the kernel, in its order; the tensor is that long, and copies
            // into it are ordered by events. The driver has read them when this returns.
            let result = unsafe {
                sys::cuLaunchKernel(
                    self.kernel.function,
                    blocks,
                    1,
                    1,
                    THREADS,
                    1,
                    1,
                    0,
                    stream,
                    parameters.as_mut_ptr(),
                    ptr::null_mut(),
                )
            };
            check("cuLaunchKernel", result)
        })
    }
}

struct EngineStream {
    lane: Arc<Lane<Libcuda>>,
    stream: Stream,
}

impl EngineStream {
    /// Waits for everything that it has.
    fn finish(&self) -> Result<()> {
        let stream = self.stream.0 as sys::CUstream;
        self.lane.driver.within(self.lane.context, || {
            // SAFETY: a stream of this context.
            check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })
        })
    }
}

impl Drop for EngineStream {
    fn drop(&mut self) {
        told("cuStreamSynchronize", self.finish());
        told("cuStreamDestroy", self.lane.driver.destroy_stream(self.lane.context, self.stream));
    }
}

/// Device memory of our own.
struct Memory {
    engine: Arc<EngineStream>,
    address: u64,
}

impl Memory {
    fn allocate(engine: &Arc<EngineStream>, bytes: usize) -> Result<Self> {
        let (mut address, lane) = (0, &engine.lane);
        lane.driver.within(lane.context, || {
            // SAFETY: the pointer is to a live integer.
            check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })
        })?;
        Ok(Self { engine: engine.clone(), address })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let lane = &self.engine.lane;
        let freed = lane.driver.within(lane.context, || {
            // SAFETY: allocated above; the driver waits for work that uses it.
            check("cuMemFree", unsafe { sys::cuMemFree_v2(self.address) })
        });
        told("cuMemFree", freed);
    }
}

struct Kernel {
    engine: Arc<EngineStream>,
    module: sys::CUmodule,
    function: sys::CUfunction,
}

// SAFETY: handles that any thread may use in their context, which each call names.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    fn load(engine: &Arc<EngineStream>) -> Result<Self> {
        let lane = &engine.lane;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        lane.driver.within(lane.context, || {
            // SAFETY: the text ends with a zero.
            let loaded = unsafe { sys::cuModuleLoadData(&mut module, LATE_FILL.as_ptr().cast()) };
            check("cuModuleLoadData", loaded)?;
            // SAFETY: the module was loaded above, the name ends with a zero.
            let found =
                unsafe { sys::cuModuleGetFunction(&mut function, module, c"late_fill".as_ptr()) };
            check("cuModuleGetFunction", found)
        })?;
        Ok(Self { engine: engine.clone(), module, function })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        told("cuStreamSynchronize", self.engine.finish());
        let lane = &self.engine.lane;
        let unloaded = lane.driver.within(lane.context, || {
            // SAFETY: no kernel of it runs: the stream that they run on was waited for.
            check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.module) })
        });
        told("cuModuleUnload", unloaded);
    }
}
