//! Errors of a broker.

use super::{ChunkError, ClientId, ShareError};
use crate::error::Error;
use std::io;
use std::ops::Range;
use vrampool_backend::BackendError;

/// An error of a broker. A failed call has no effect, except where its documentation says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// A batch does not fit, however it is cut.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A client cannot have the share that was asked for.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// An array that cannot be.
    #[error("array `{label}`: {reason}")]
    Request {
        /// The array's label.
        label: String,
        /// The reason, and the valid values.
        reason: String,
    },
    /// Nothing was ever asked for in this group.
    #[error("nothing is queued in the group `{group}`; queue requests before they are committed")]
    NothingQueued {
        /// The group.
        group: String,
    },
    /// Another run of this group is under way.
    #[error("the group `{group}` is running already; wait for that run, or use another group")]
    Busy {
        /// The group.
        group: String,
    },
    /// A callback of a client's asked the broker for what only its caller may.
    #[error("a broker cannot commit within a callback of a commit; commit after the callback returns")]
    Reentrant,
    /// The client is no longer registered.
    #[error("{0} is not registered because its handle was dropped; register the client again")]
    Gone(ClientId),
    /// Data and array do not go together.
    #[error("array `{label}` has {array} bytes, but its data {data}; give data of the same length")]
    Length {
        /// The array's label.
        label: String,
        /// Bytes of the array.
        array: u64,
        /// Bytes of the data.
        data: u64,
    },
    /// A chunk of a run failed. Chunks before it are done; none was begun after it was known.
    #[error("{stage} of chunk {chunk} (runs {} to {}) failed: {source}", range.start, range.end)]
    Run {
        /// Its number.
        chunk: u64,
        /// Its runs.
        range: Range<u64>,
        /// The stage that failed, or whose failure was found at the end of the chunk.
        stage: Stage,
        /// The cause.
        source: Box<BrokerError>,
    },
    /// Memory of the device or its pool.
    #[error(transparent)]
    Memory(#[from] Error),
    /// A file on the host that holds what is too large for its memory.
    #[error(
        "{call} a file for {bytes} bytes of host arrays failed: {source}; choose a directory with enough space"
    )]
    Spill {
        /// The operation.
        call: &'static str,
        /// The file's bytes.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A setting that cannot be.
    #[error("invalid {field}: {reason}")]
    Setting {
        /// The builder's method.
        field: &'static str,
        /// The reason, and the valid values.
        reason: String,
    },
}

/// The stages of a chunk, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Memory for it.
    Allocate,
    /// Copies to the device.
    Upload,
    /// The caller's work.
    Compute,
    /// Copies to the host.
    Download,
}

impl Stage {
    /// Its name.
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
    /// Whether there was not enough memory: no chunk fits, or the device has too little after all.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Chunk(_) => true,
            Self::Memory(error) => error.is_out_of_memory(),
            Self::Run { source, .. } => source.is_out_of_memory(),
            _ => false,
        }
    }

    /// Whether the device is gone for good.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        match self {
            Self::Memory(error) => error.is_device_lost(),
            Self::Run { source, .. } => source.is_device_lost(),
            _ => false,
        }
    }
}

/// A warning of a broker. Each is logged, too.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// Fixed shares leave automatic clients, should there be any, less than 5 % of the device.
    SharesNearlyAll {
        /// All fixed shares.
        sum: f64,
    },
    /// A group holds more than 95 % of the shares of its clients.
    LittleHeadroom {
        /// The group.
        group: String,
        /// Bytes that its clients may still take.
        headroom: u64,
        /// Bytes that they may hold.
        cap: u64,
    },
    /// A batch asks for more than 20 times what there is: it will be cut into that many chunks.
    ManyChunks {
        /// Bytes asked for.
        requested: u64,
        /// Bytes there are.
        available: u64,
    },
    /// A run was cut finer, because others took memory of the device.
    Shrunk {
        /// The group.
        group: String,
        /// Runs of a chunk from now on.
        chunk_len: u64,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SharesNearlyAll { sum } => {
                write!(f, "fixed shares are {sum:.3} of the device: automatic clients have no room")
            }
            Self::LittleHeadroom { group, headroom, cap } => {
                write!(f, "the group `{group}` may take {headroom} more bytes of {cap}")
            }
            Self::ManyChunks { requested, available } => {
                write!(f, "{requested} bytes are asked for and {available} there: it takes many chunks")
            }
            Self::Shrunk { group, chunk_len } => {
                write!(f, "the group `{group}` goes on with {chunk_len} runs a chunk: others need memory")
            }
        }
    }
}
