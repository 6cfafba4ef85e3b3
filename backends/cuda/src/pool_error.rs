//! Errors of a driver pool.

use vrampool_backend::BackendError;

/// An error of an allocation from a driver's pool. The pool is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverPoolError {
    /// There is not enough memory, also after unused memory was released.
    #[error(
        "out of memory: {requested_bytes} bytes were requested, {live_bytes} are live{}{}; {}",
        reserved_bytes.map(|bytes| format!(" of {bytes} reserved by the driver's pool")).unwrap_or_default(),
        limit.map(|bytes| format!(", and the limit is {bytes}")).unwrap_or_default(),
        match cause {
            Some(cause) => format!("{cause}; drop memory, or have other pools trimmed"),
            None => "drop memory, or raise the limit".to_owned(),
        }
    )]
    #[non_exhaustive]
    OutOfMemory {
        /// Requested bytes.
        requested_bytes: u64,
        /// Live bytes, rounded.
        live_bytes: u64,
        /// Reserved bytes of the driver's pool; `None` if the driver does not report them.
        reserved_bytes: Option<u64>,
        /// The limit in bytes, if there is one.
        limit: Option<u64>,
        /// The device's error, which the text includes; `None` if the limit refused the memory.
        cause: Option<BackendError>,
    },
    /// Another failure.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl DriverPoolError {
    /// Returns the device's error, also where it is the cause of a lack of memory.
    #[must_use]
    pub fn backend(&self) -> Option<&BackendError> {
        match self {
            Self::OutOfMemory { cause, .. } => cause.as_ref(),
            Self::Backend(error) => Some(error),
        }
    }

    /// Whether the device is permanently lost.
    ///
    /// ```
    /// # use vrampool_cuda::{BackendError, DriverPoolError};
    /// assert!(DriverPoolError::from(BackendError::lost("unplugged")).is_device_lost());
    /// ```
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        self.backend().is_some_and(BackendError::is_device_lost)
    }

    /// Whether dropping memory may help.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Backend(error) => error.is_out_of_memory(),
        }
    }
}

/// Converts to the contract's error, without the pool's own figures.
impl From<DriverPoolError> for BackendError {
    fn from(error: DriverPoolError) -> Self {
        match error {
            DriverPoolError::OutOfMemory { requested_bytes, live_bytes, limit, cause, .. } => {
                let free = limit.map(|limit| limit.saturating_sub(live_bytes));
                cause.unwrap_or(Self::out_of_memory(requested_bytes, free))
            }
            DriverPoolError::Backend(error) => error,
        }
    }
}
