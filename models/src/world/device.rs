//! A device whose copies are over when they begin.

use std::future::Future;

use springtide::{
    env::{DType, Device, DeviceError, Outcome, Shape, TensorSpec},
    pool::{Transfer, View},
};
use springtide_model_sync::{Arc, PoisonError};

use super::PAYLOAD;

/// A tensor in host memory. Its bytes are one thread's at a time by the connector's own order, which is not
/// what is modelled, so the checker does not look at them.
#[derive(Clone)]
pub struct ModelTensor {
    spec: TensorSpec,
    bytes: Arc<std::sync::Mutex<Vec<u8>>>,
}

/// A tensor of one row that is all `fill`.
pub fn tensor(fill: u8) -> ModelTensor {
    let shape = Shape::rows(1, PAYLOAD / 2).expect("a row has a shape");
    let spec = TensorSpec::new(DType::Bf16, shape).expect("a row has a length");
    ModelTensor { spec, bytes: Arc::new(std::sync::Mutex::new(vec![fill; PAYLOAD as usize])) }
}

impl ModelTensor {
    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A device whose copies are over when they begin.
#[derive(Clone, Copy, Debug)]
pub struct ModelDevice;

impl Device for ModelDevice {
    type Tensor = ModelTensor;
    type Event = ();

    fn spec(&self, tensor: &ModelTensor) -> TensorSpec {
        tensor.spec
    }

    fn copy_out(
        &self,
        tensor: ModelTensor,
        (): (),
        mut dest: Transfer,
        offset: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static {
        dest.write_at(offset, &tensor.to_vec());
        std::future::ready(Outcome::Ended { buffer: dest.finish(), result: Ok(()) })
    }

    fn copy_in(
        &self,
        source: View,
        offset: u64,
        tensor: ModelTensor,
        (): (),
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static {
        let mut bytes = tensor.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        source.read_at(offset, &mut bytes);
        std::future::ready(Ok(()))
    }
}
