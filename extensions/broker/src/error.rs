//! Errors of a broker.

use crate::partition::ChunkError;
use crate::share::ShareError;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use vrampool::{Error, OutOfMemory};
use vrampool_backend::BackendError;

/// An error of a broker. A failed call has no effect, except where its documentation says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// A batch does not fit, however it is cut.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A share cannot be assigned to a client.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// An invalid array.
    #[error("array `{label}`: {reason}")]
    #[non_exhaustive]
    Request {
        /// The array's label.
        label: String,
        /// The reason, and the valid values.
        reason: String,
    },
    /// The group has never had a request.
    #[error("nothing is queued in the group `{group}`; queue requests before they are committed")]
    #[non_exhaustive]
    NothingQueued {
        /// The group.
        group: String,
    },
    /// Another run of this group is pending.
    #[error("the group `{group}` is running already; wait for that run, or use another group")]
    #[non_exhaustive]
    Busy {
        /// The group.
        group: String,
    },
    /// Shares or settings changed during every attempt of a commit.
    #[error(
        "shares or settings of the group `{group}` changed during each of {attempts} attempts of its commit; \
         commit again when they are set"
    )]
    #[non_exhaustive]
    Changing {
        /// The group.
        group: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// A callback made a call that only the caller of the commit may make.
    #[error("a broker cannot commit within a callback of a commit; commit after the callback returns")]
    Reentrant,
    /// A chunk of a run failed. Earlier chunks are complete; no further chunks were begun.
    #[error("{stage} of chunk {chunk} (runs {} to {}) failed", range.start, range.end)]
    #[non_exhaustive]
    Run {
        /// Its number.
        chunk: u64,
        /// Its runs.
        range: Range<u64>,
        /// The stage that failed, or in which the failure was detected at the end of the chunk.
        stage: Stage,
        /// The cause.
        source: Box<BrokerError>,
    },
    /// An error of the device or its pool.
    #[error(transparent)]
    Memory(#[from] Error),
    /// The host has too little memory for an array or a copy. [`is_out_of_memory`](Self::is_out_of_memory) is false:
    /// other device memory does not help.
    #[error(
        "the host has no {requested_bytes} bytes of host memory for a copy; free memory of the host, or keep less \
         there (arrays can be in a file)"
    )]
    #[non_exhaustive]
    HostMemory {
        /// The requested bytes of host memory.
        requested_bytes: u64,
    },
    /// An error of a file for arrays that exceed the host's memory.
    #[error("{call} a file for {bytes} bytes of host arrays in {} failed; {}", directory.display(), spill_remedy(source))]
    #[non_exhaustive]
    Spill {
        /// The operation.
        call: &'static str,
        /// The file's bytes.
        bytes: u64,
        /// Its directory.
        directory: Arc<Path>,
        /// The system's error.
        source: io::Error,
    },
    /// An invalid setting.
    #[error("invalid {field}: {reason}")]
    #[non_exhaustive]
    Setting {
        /// The builder's method.
        field: &'static str,
        /// The reason, and the valid values.
        reason: String,
    },
}

/// Returns the action to take after an error of a file.
fn spill_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "create the directory, or choose a directory that exists",
        io::ErrorKind::NotADirectory => "it is no directory: choose a directory",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a directory that is writable"
        }
        io::ErrorKind::FileTooLarge => {
            "raise the limit on the size of files, or choose a directory on another file system"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "choose a directory with enough space",
        io::ErrorKind::Unsupported => "use host arrays in memory on this platform",
        _ => "the cause says more; choose a directory on another file system",
    }
}

/// The stages of a chunk, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Stage {
    /// Allocation of its memory.
    Allocate,
    /// Copies to the device.
    Upload,
    /// The caller's work.
    Compute,
    /// Copies to the host.
    Download,
}

impl Stage {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Upload => "upload",
            Self::Compute => "compute",
            Self::Download => "download",
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl From<BackendError> for BrokerError {
    fn from(error: BackendError) -> Self {
        Self::Memory(error.into())
    }
}

impl BrokerError {
    /// Returns the cause of a failed run, or the error itself.
    fn cause(&self) -> &Self {
        match self {
            Self::Run { source, .. } => source.cause(),
            _ => self,
        }
    }

    fn memory(&self) -> Option<&Error> {
        match self.cause() {
            Self::Memory(error) => Some(error),
            _ => None,
        }
    }

    /// Whether memory was insufficient: no chunk fits, or the device has too little after all.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self.cause(), Self::Chunk(_)) || self.memory().is_some_and(Error::is_out_of_memory)
    }

    /// Returns the figures of a lack of device memory; `None` for any other error. Also `None` where no chunk
    /// fits: [`BrokerError::Chunk`] has figures of its own, and the device was not asked.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        self.memory()?.out_of_memory()
    }

    /// Whether there is no such device here, so that another one may serve.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.memory().is_some_and(Error::is_unavailable)
    }

    /// Whether the device is permanently lost.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        self.memory().is_some_and(Error::is_device_lost)
    }
}
