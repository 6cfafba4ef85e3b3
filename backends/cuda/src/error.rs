//! Conversion of driver result codes to errors of the contract.

use crate::driver::Library;
use std::ffi::c_int;
use vrampool_backend::BackendError;

/// `CUDA_ERROR_INVALID_VALUE`
pub(crate) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_OPERATING_SYSTEM`
pub(crate) const OPERATING_SYSTEM: c_int = 304;
/// `CUDA_ERROR_INVALID_HANDLE`
pub(crate) const INVALID_HANDLE: c_int = 400;
/// `CUDA_ERROR_NOT_READY`
pub(crate) const NOT_READY: c_int = 600;
/// `CUDA_ERROR_NOT_PERMITTED`
pub(crate) const NOT_PERMITTED: c_int = 800;
/// `CUDA_ERROR_NOT_SUPPORTED`
pub(crate) const NOT_SUPPORTED: c_int = 801;

/// Results after which all further calls of the context fail.
const LOST: [c_int; 18] = [
    4,   // CUDA_ERROR_DEINITIALIZED
    46,  // CUDA_ERROR_DEVICE_UNAVAILABLE
    201, // CUDA_ERROR_INVALID_CONTEXT
    214, // CUDA_ERROR_ECC_UNCORRECTABLE
    220, // CUDA_ERROR_NVLINK_UNCORRECTABLE
    226, // CUDA_ERROR_CONTAINED
    700, // CUDA_ERROR_ILLEGAL_ADDRESS
    702, // CUDA_ERROR_LAUNCH_TIMEOUT
    709, // CUDA_ERROR_CONTEXT_IS_DESTROYED
    710, // CUDA_ERROR_ASSERT
    714, // CUDA_ERROR_HARDWARE_STACK_ERROR
    715, // CUDA_ERROR_ILLEGAL_INSTRUCTION
    716, // CUDA_ERROR_MISALIGNED_ADDRESS
    717, // CUDA_ERROR_INVALID_ADDRESS_SPACE
    718, // CUDA_ERROR_INVALID_PC
    719, // CUDA_ERROR_LAUNCH_FAILED
    721, // CUDA_ERROR_TENSOR_MEMORY_LEAK
    810, // CUDA_ERROR_MPS_CLIENT_TERMINATED
];

impl Library {
    /// The error that `code` stands for, if it is one.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<(), BackendError> {
        if code == 0 {
            return Ok(());
        }
        let message = format!("{}: {}", self.name(code), self.text(code));
        Err(if LOST.contains(&code) {
            BackendError::lost(format!("{call} answers {code}, {message}"))
        } else {
            BackendError::driver(call, i64::from(code), message)
        })
    }
}

/// Converts an error of `cudarc` to the contract's.
pub(crate) fn from_cudarc(
    library: &Library,
    call: &'static str,
    error: cudarc::driver::DriverError,
) -> BackendError {
    match library.check(call, error.0 as c_int) {
        Err(error) => error,
        Ok(()) => BackendError::driver(call, 0, "it failed with success"),
    }
}
