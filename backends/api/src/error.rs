//! Errors of devices.

use crate::scarce::Scarce;
use std::borrow::Cow;

/// Why a device did not do what it was asked.
///
/// # When work fails
///
/// Work that was enqueued may fail later, while the device runs it: a kernel panics, or accesses memory that
/// is not there. One rule holds on all backends:
///
/// * From then on, every call that enqueues work on its stream, waits for its work or reads its results
///   returns an error whose [`is_stream_failed`](Self::is_stream_failed) is true. Create another stream.
/// * A stream that is made to wait for that work fails as well: the results that it waits for do not exist.
/// * Events of a failed stream are still reached, because its work is over. Other streams can reuse the
///   memory that it used.
/// * Where the driver loses the whole device with it (CUDA, OpenCL, wgpu),
///   [`is_device_lost`](Self::is_device_lost) is true too, on every stream. Open the device again.
///
/// ```
/// use vrampool_backend::BackendError;
/// let error = BackendError::out_of_memory(1 << 20, Some(4096));
/// assert!(error.is_out_of_memory() && !error.is_device_lost());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There is not enough memory, or another [resource](Scarce) that memory takes. Only this error makes a pool trim and
    /// try again.
    #[error("{scarce}: {requested_bytes} bytes were requested{}{}",
        free_bytes.map(|free| format!(" and {free} are free")).unwrap_or_default(),
        scarce.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default()
    )]
    #[non_exhaustive]
    OutOfMemory {
        /// Requested bytes.
        requested_bytes: u64,
        /// Free bytes; `None` if the device does not report them.
        free_bytes: Option<u64>,
        /// The resource.
        scarce: Scarce,
    },
    /// The device is lost. Nothing works on it any more; open it again.
    #[error("the device is lost: {reason}")]
    #[non_exhaustive]
    DeviceLost {
        /// The driver's message.
        reason: String,
    },
    /// Work on a stream has failed, or on a stream that this one waited for. The stream is of no more use;
    /// other streams are. See [the rule](Self#when-work-fails).
    #[error("work on the stream failed: {reason}; create another stream")]
    #[non_exhaustive]
    StreamFailed {
        /// The error that the work reported.
        reason: String,
    },
    /// There is no such device to open here: no driver, one too old, or no device. Another backend may serve.
    #[error("{backend} is not available: {reason}")]
    #[non_exhaustive]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// The missing part.
        reason: String,
    },
    /// The device cannot do this at all.
    #[error("this device does not support {operation}")]
    #[non_exhaustive]
    Unsupported {
        /// The requested operation.
        operation: &'static str,
    },
    /// An argument is wrong; the device was not asked.
    #[error("invalid {argument}: {reason}")]
    #[non_exhaustive]
    InvalidArgument {
        /// Which argument.
        argument: &'static str,
        /// The fault of the value.
        reason: String,
    },
    /// The process was [forked](crate::fork) from one that had opened a device.
    #[error(
        "made before a fork: this process was forked from one that had opened a device, whose memory, streams and threads stay there; \
         start processes that use devices by spawning them, or fork before the first device is opened"
    )]
    Forked,
    /// The call would wait for the device, which is impossible where the one thread must return for the device to
    /// go on: in a browser. The call has enqueued nothing, but work before it is submitted.
    #[error(
        "{operation} would block, which a browser does not allow; await the backend's asynchronous call, then repeat this one"
    )]
    #[non_exhaustive]
    WouldBlock {
        /// The operation that waits.
        operation: &'static str,
    },
    /// Any other failure that the driver reported.
    #[error("{call} failed with code {code}: {message}")]
    #[non_exhaustive]
    Driver {
        /// The driver's call.
        call: Cow<'static, str>,
        /// The driver's own error code.
        code: i64,
        /// The driver's own text.
        message: String,
    },
}

impl BackendError {
    /// Whether the same call may succeed after memory was released.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }

    /// Whether the device is lost for good.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::DeviceLost { .. })
    }

    /// Whether the stream is of no more use, because work on it, or on a stream that it waited for, has
    /// failed. True of [`DeviceLost`](Self::DeviceLost) too. See [the rule](Self#when-work-fails).
    ///
    /// ```
    /// # use vrampool_backend::BackendError;
    /// let failed = BackendError::stream_failed("a kernel panicked");
    /// assert!(failed.is_stream_failed() && !failed.is_device_lost());
    /// assert!(BackendError::lost("unplugged").is_stream_failed());
    /// ```
    #[must_use]
    pub fn is_stream_failed(&self) -> bool {
        matches!(self, Self::StreamFailed { .. } | Self::DeviceLost { .. })
    }

    /// Whether the process was [forked](crate::fork) from one that had opened a device, so that nothing is
    /// done here.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        matches!(self, Self::Forked)
    }

    /// Whether the call would have to wait where that is impossible, and may succeed after the work before it is
    /// complete.
    ///
    /// ```
    /// # use vrampool_backend::BackendError;
    /// let error = BackendError::would_block("a download");
    /// assert!(error.is_would_block() && !error.is_out_of_memory());
    /// ```
    #[must_use]
    pub fn is_would_block(&self) -> bool {
        matches!(self, Self::WouldBlock { .. })
    }

    /// Whether the backend has no device here, so that another backend may serve.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns an [`OutOfMemory`](Self::OutOfMemory) error: `requested_bytes` were requested, and the device
    /// reports `free_bytes` as free, if it reports any.
    #[must_use]
    pub const fn out_of_memory(requested_bytes: u64, free_bytes: Option<u64>) -> Self {
        Self::OutOfMemory { requested_bytes, free_bytes, scarce: Scarce::Memory }
    }

    /// Returns an [`OutOfMemory`](Self::OutOfMemory) error about another resource than the device's memory.
    #[must_use]
    pub const fn lacks(requested_bytes: u64, scarce: Scarce) -> Self {
        Self::OutOfMemory { requested_bytes, free_bytes: None, scarce }
    }

    /// Returns the resource of an [`OutOfMemory`](Self::OutOfMemory) error.
    #[must_use]
    pub fn scarce(&self) -> Option<&Scarce> {
        match self {
            Self::OutOfMemory { scarce, .. } => Some(scarce),
            _ => None,
        }
    }

    /// Returns a [`Driver`](Self::Driver) error: the driver's `call` failed with its own `code` and `message`.
    ///
    /// ```
    /// # use vrampool_backend::BackendError;
    /// let error = BackendError::driver("cuMemMap", 801, "operation not supported");
    /// assert_eq!(error.to_string(), "cuMemMap failed with code 801: operation not supported");
    /// ```
    pub fn driver(call: impl Into<Cow<'static, str>>, code: i64, message: impl Into<String>) -> Self {
        Self::Driver { call: call.into(), code, message: message.into() }
    }

    /// Returns a [`DeviceLost`](Self::DeviceLost) error.
    pub fn lost(reason: impl Into<String>) -> Self {
        Self::DeviceLost { reason: reason.into() }
    }

    /// Returns a [`StreamFailed`](Self::StreamFailed) error.
    pub fn stream_failed(reason: impl Into<String>) -> Self {
        Self::StreamFailed { reason: reason.into() }
    }

    /// Returns an [`Unavailable`](Self::Unavailable) error of the backend of that name.
    pub fn unavailable(backend: &'static str, reason: impl Into<String>) -> Self {
        Self::Unavailable { backend, reason: reason.into() }
    }

    /// Returns a [`WouldBlock`](Self::WouldBlock) error of `operation`.
    #[must_use]
    pub const fn would_block(operation: &'static str) -> Self {
        Self::WouldBlock { operation }
    }

    /// Returns an [`Unsupported`](Self::Unsupported) error.
    #[must_use]
    pub const fn unsupported(operation: &'static str) -> Self {
        Self::Unsupported { operation }
    }

    /// Returns an [`InvalidArgument`](Self::InvalidArgument) error.
    pub fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, reason: reason.into() }
    }
}
