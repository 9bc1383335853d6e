//! What a call can fail with.

use std::{ffi::NulError, fmt};

/// A negative error code of Mooncake Store; `mooncake_error_code` and `types.h` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(i32);

impl Code {
    /// Null argument, or an exception in the library.
    pub const INTERNAL_ERROR: Self = Self(-1);
    /// Parameters were refused.
    pub const INVALID_PARAMS: Self = Self(-600);
    /// The data transfer failed or ran into its limit: see the crate's notes on buffers.
    pub const TRANSFER_FAIL: Self = Self(-800);

    /// The code, unless the number is a result: zero or positive. A number beyond 32 bits, which the
    /// header does not know, is [`Code::INTERNAL_ERROR`].
    pub fn from_number(number: i64) -> Option<Self> {
        (number < 0).then(|| i32::try_from(number).map_or(Self::INTERNAL_ERROR, Self))
    }

    /// Mooncake's number, below zero.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mooncake's code {}", self.0)
    }
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The client is closed or being closed. The library was not called: it would have crashed.
    #[error("the client is closed")]
    Closed,
    /// A key or pattern contains a NUL. The library was not called: it would have taken what stands
    /// before the NUL for the whole.
    #[error("a key with a NUL at byte {at}: the C ABI would cut it there")]
    Nul {
        /// Position of the NUL in bytes.
        at: usize,
    },
    /// The library's answer.
    #[error("{0}")]
    Code(Code),
}

impl From<NulError> for CallError {
    fn from(error: NulError) -> Self {
        Self::Nul { at: error.nul_position() }
    }
}

/// A result that is zero or positive, or a code.
pub(crate) fn checked(number: i64) -> Result<u64, CallError> {
    u64::try_from(number)
        .map_err(|_| CallError::Code(Code::from_number(number).unwrap_or(Code::INTERNAL_ERROR)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_results_or_codes() {
        assert_eq!(checked(0), Ok(0));
        assert_eq!(checked(i64::MAX), Ok(i64::MAX as u64));
        assert_eq!(checked(-600), Err(CallError::Code(Code::INVALID_PARAMS)));
        assert_eq!(checked(i64::MIN), Err(CallError::Code(Code::INTERNAL_ERROR)));
        assert_eq!(Code::from_number(7), None);
    }
}
