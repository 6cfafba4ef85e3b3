//! What a device can answer instead of doing what it was asked.

/// Why a device did not do what it was asked.
///
/// ```
/// use vrampool_backend::BackendError;
/// let error = BackendError::OutOfMemory { requested: 1 << 20, free: Some(4096) };
/// assert!(error.is_out_of_memory() && !error.is_device_lost());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The device has not enough memory. Only this error makes a pool trim and try again.
    #[error(
        "the device is out of memory: {requested} bytes were asked for{}",
        free.map(|free| format!(" and {free} are free")).unwrap_or_default()
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes the device says are free, where it says so.
        free: Option<u64>,
    },
    /// The device is gone. Nothing works on it any more; open it again.
    #[error("the device is lost: {reason}")]
    DeviceLost {
        /// What the driver said.
        reason: String,
    },
    /// There is no such device to open here: no driver, one too old, or no device. Another backend may serve.
    #[error("{backend} is not available: {reason}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The device cannot do this at all.
    #[error("this device does not support {operation}")]
    Unsupported {
        /// What was asked for.
        operation: &'static str,
    },
    /// An argument is wrong; the device was not asked.
    #[error("invalid {argument}: {reason}")]
    InvalidArgument {
        /// Which argument.
        argument: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Any other failure that the driver reported.
    #[error("{call} failed with code {code}: {message}")]
    Driver {
        /// The driver's call.
        call: &'static str,
        /// The driver's own error code.
        code: i64,
        /// The driver's own text.
        message: String,
    },
}

impl BackendError {
    /// Whether giving memory back may make the same call succeed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }

    /// Whether the device is gone for good.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::DeviceLost { .. })
    }

    /// Whether the backend has no device here, so that another backend may serve.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// An [`InvalidArgument`](Self::InvalidArgument) error.
    pub fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, reason: reason.into() }
    }
}
