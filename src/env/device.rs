//! Tensors, and the device that holds them.

use std::{fmt, future::Future};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::store::Outcome;
use crate::pool::{Transfer, View};

/// The largest rank of a tensor that an object can carry.
pub const MAX_RANK: usize = 4;

/// Element type of a tensor. The numbers are part of the object format and never change.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 half.
    F16 = 1,
    /// bfloat16.
    Bf16 = 2,
    /// IEEE 754 single.
    F32 = 3,
    /// 32-bit signed integer.
    I32 = 4,
    /// 8-bit float, 4 exponent bits.
    F8E4M3 = 5,
    /// 8-bit float, 5 exponent bits.
    F8E5M2 = 6,
    /// 8-bit unsigned integer.
    U8 = 7,
    /// 8-bit signed integer.
    I8 = 8,
    /// 64-bit signed integer.
    I64 = 9,
    /// IEEE 754 double.
    F64 = 10,
}

impl DType {
    /// Every element type.
    pub const ALL: [Self; 10] = [
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::I32,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::U8,
        Self::I8,
        Self::I64,
        Self::F64,
    ];

    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Self::F8E4M3 | Self::F8E5M2 | Self::U8 | Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// The type with this number in the object format.
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u8 == number)
    }

    /// The name that PyTorch prints, without `torch.`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
            Self::I32 => "int32",
            Self::F8E4M3 => "float8_e4m3fn",
            Self::F8E5M2 => "float8_e5m2",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I64 => "int64",
            Self::F64 => "float64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The lengths of a tensor's dimensions, outermost first; 1 to [`MAX_RANK`] of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Shape {
    dims: [u64; MAX_RANK],
    rank: u8,
}

/// A shape that no object can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Too few or too many dimensions.
    #[error("expected 1 to {MAX_RANK} dimensions, got {0}")]
    Rank(usize),
    /// A dimension that the object header cannot hold.
    #[error("expected dimensions up to {max}, got {0}", max = u32::MAX)]
    Dimension(u64),
    /// More bytes than a `u64` counts.
    #[error("the tensor's length in bytes overflows")]
    Overflow,
}

impl Shape {
    /// The shape with these dimensions.
    ///
    /// # Errors
    /// [`ShapeError`] unless there are 1 to [`MAX_RANK`] of them, each fits a `u32` and their product a
    /// `u64`.
    pub fn new(dims: &[u64]) -> Result<Self, ShapeError> {
        if dims.is_empty() || dims.len() > MAX_RANK {
            return Err(ShapeError::Rank(dims.len()));
        }
        if let Some(large) = dims.iter().find(|dim| **dim > u64::from(u32::MAX)) {
            return Err(ShapeError::Dimension(*large));
        }
        dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).ok_or(ShapeError::Overflow)?;
        let mut padded = [0; MAX_RANK];
        padded[..dims.len()].copy_from_slice(dims);
        Ok(Self { dims: padded, rank: dims.len() as u8 })
    }

    /// The usual encoder output, `[tokens, width]`.
    ///
    /// # Errors
    /// [`ShapeError::Overflow`] when the product does not fit a `u64`.
    pub fn rows(tokens: u64, width: u64) -> Result<Self, ShapeError> {
        Self::new(&[tokens, width])
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims().iter().product()
    }
}

impl TryFrom<Vec<u64>> for Shape {
    type Error = ShapeError;

    fn try_from(dims: Vec<u64>) -> Result<Self, ShapeError> {
        Self::new(&dims)
    }
}

impl From<Shape> for Vec<u64> {
    fn from(shape: Shape) -> Self {
        shape.dims().to_vec()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.dims()).finish()
    }
}

/// Element type and shape of a dense, row-major tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Shape,
}

impl TensorSpec {
    /// A tensor of this type and shape.
    ///
    /// # Errors
    /// [`ShapeError::Overflow`] when its bytes do not fit a `u64`.
    pub fn new(dtype: DType, shape: Shape) -> Result<Self, ShapeError> {
        shape.elements().checked_mul(dtype.size()).ok_or(ShapeError::Overflow)?;
        Ok(Self { dtype, shape })
    }

    /// Length of the tensor in bytes; zero if any dimension is zero.
    pub fn bytes(&self) -> u64 {
        self.shape.elements().saturating_mul(self.dtype.size())
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// A copy that did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device's own error.
    #[error("device error {code}: {message}")]
    Device {
        /// The driver's number.
        code: i32,
        /// The driver's words.
        message: String,
    },
    /// Source and destination differ in length.
    #[error("copy of {expected} bytes into {got}")]
    Length {
        /// Bytes of the tensor.
        expected: u64,
        /// Bytes of the memory.
        got: u64,
    },
}

/// Sees the bytes of a tensor on their way.
pub trait Witness: Send + 'static {
    /// The next bytes, in order and without gaps.
    fn see(&mut self, bytes: &[u8]);
}

/// A device that holds tensors.
///
/// Both copies are *started* by the call and observed through the future: dropping the future does not stop
/// the copy. The device therefore owns what it copies (the tensor, the transfer) until it is done.
pub trait Device: Clone + Send + Sync + 'static {
    /// A reference-counted tensor on this device, dense and row-major.
    type Tensor: Clone + Send + 'static;
    /// A point in the device's work: the kernels that produce a tensor, or those that last read it.
    type Event: Clone + Send + 'static;

    /// Element type and shape of a tensor.
    fn spec(&self, tensor: &Self::Tensor) -> TensorSpec;

    /// Copies `tensor` into `dest`, from byte `offset` of it to its end, after `ready`.
    fn copy_out(
        &self,
        tensor: Self::Tensor,
        ready: Self::Event,
        dest: Transfer,
        offset: u64,
    ) -> impl Future<Output = Outcome<(), DeviceError>> + Send + 'static;

    /// Copies like [`Device::copy_out`], and shows the bytes to `witness` while they are in the processor's
    /// cache, if it is the processor that moves them. Whoever needs to see them is spared to fetch them from
    /// memory again. The witness comes back if it has seen all of them; where a card moves them, `None` does.
    fn copy_out_seen<W: Witness>(
        &self,
        tensor: Self::Tensor,
        ready: Self::Event,
        dest: Transfer,
        offset: u64,
        _witness: W,
    ) -> impl Future<Output = (Outcome<(), DeviceError>, Option<W>)> + Send + 'static {
        let copy = self.copy_out(tensor, ready, dest, offset);
        async move { (copy.await, None) }
    }

    /// Copies the bytes of `source` from `offset` on into `tensor`, after `free` (the last reader of the
    /// tensor's memory). The view is kept until the copy is done.
    fn copy_in(
        &self,
        source: View,
        offset: u64,
        tensor: Self::Tensor,
        free: Self::Event,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send + 'static;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_numbers_round_trip_and_are_unique() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_wire(dtype as u8), Some(dtype));
        }
        assert_eq!(DType::from_wire(0), None);
        assert_eq!(DType::from_wire(11), None);
    }

    #[test]
    fn shapes_out_of_range_are_refused() {
        assert_eq!(Shape::new(&[]), Err(ShapeError::Rank(0)));
        assert_eq!(Shape::new(&[1; 5]), Err(ShapeError::Rank(5)));
        assert_eq!(Shape::new(&[1 << 32, 2]), Err(ShapeError::Dimension(1 << 32)));
        assert_eq!(Shape::new(&[u64::from(u32::MAX); 3]), Err(ShapeError::Overflow));
        let large = Shape::new(&[1 << 31, 1 << 31, 2]).unwrap();
        assert_eq!(TensorSpec::new(DType::F32, large), Err(ShapeError::Overflow));
    }

    #[test]
    fn empty_tensors_have_no_bytes() {
        let spec = TensorSpec::new(DType::Bf16, Shape::rows(0, 2048).unwrap()).unwrap();
        assert_eq!(spec.bytes(), 0);
        assert_eq!(spec.to_string(), "bfloat16[0, 2048]");
    }

    #[test]
    fn shapes_are_lists_in_json() {
        let spec = TensorSpec::new(DType::F8E4M3, Shape::rows(3, 8).unwrap()).unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(text, r#"{"dtype":"f8e4m3","shape":[3,8]}"#);
        assert_eq!(serde_json::from_str::<TensorSpec>(&text).unwrap(), spec);
    }
}
