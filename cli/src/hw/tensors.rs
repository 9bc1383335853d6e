//! Tensors in one kind of memory: what a check needs beside the connector.

use std::sync::Arc;

use springtide::{
    env::{Device, TensorSpec},
    pool::Region,
    runtime::{
        HostDevice, HostEvent, HostTensor,
        cuda::{CudaDevice, CudaEvent, CudaTensor, Libcuda, Workbench},
    },
};

use crate::failure::Failure;

/// A kind of memory.
pub(super) trait Tensors: Sync {
    type Device: Device;

    /// A device, which holds what is locked for it while it lives.
    fn device(&self) -> Result<Self::Device, Failure>;

    /// A tensor with these bytes.
    fn tensor(
        &self,
        spec: TensorSpec,
        bytes: &[u8],
    ) -> Result<<Self::Device as Device>::Tensor, Failure>;

    /// What a tensor holds.
    fn read(&self, tensor: &<Self::Device as Device>::Tensor) -> Result<Vec<u8>, Failure>;

    /// The point behind all that an engine has started so far.
    fn event(&self) -> Result<<Self::Device as Device>::Event, Failure>;

    /// Makes a pool's memory ready for copies.
    fn lock(&self, device: &Self::Device, region: &Arc<Region>) -> Result<(), Failure>;
}

/// This host's.
pub(super) struct Host;

impl Tensors for Host {
    type Device = HostDevice;

    fn device(&self) -> Result<HostDevice, Failure> {
        Ok(HostDevice)
    }

    fn tensor(&self, spec: TensorSpec, bytes: &[u8]) -> Result<HostTensor, Failure> {
        HostTensor::new(spec, bytes.to_vec()).map_err(Failure::failed)
    }

    fn read(&self, tensor: &HostTensor) -> Result<Vec<u8>, Failure> {
        Ok(tensor.to_vec())
    }

    fn event(&self) -> Result<HostEvent, Failure> {
        Ok(HostEvent::ready())
    }

    fn lock(&self, _device: &HostDevice, _region: &Arc<Region>) -> Result<(), Failure> {
        Ok(())
    }
}

/// A GPU's.
pub(super) struct Card(pub(super) Workbench);

impl Tensors for Card {
    type Device = CudaDevice<Libcuda>;

    fn device(&self) -> Result<CudaDevice<Libcuda>, Failure> {
        self.0.device().map_err(Failure::failed)
    }

    fn tensor(&self, spec: TensorSpec, bytes: &[u8]) -> Result<CudaTensor, Failure> {
        self.0.tensor(spec, bytes).map_err(Failure::failed)
    }

    fn read(&self, tensor: &CudaTensor) -> Result<Vec<u8>, Failure> {
        self.0.read(tensor).map_err(Failure::failed)
    }

    fn event(&self) -> Result<CudaEvent<Libcuda>, Failure> {
        self.0.mark().map_err(Failure::failed)
    }

    fn lock(&self, device: &CudaDevice<Libcuda>, region: &Arc<Region>) -> Result<(), Failure> {
        device.lock(self.0.ordinal(), region).map_err(Failure::failed)
    }
}
