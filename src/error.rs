//! Errors of a pool.

use crate::any::found::NotOpened;
use crate::arena::engine::ArenaError;
use bytesize::ByteSize;
use std::fmt;
use vrampool_backend::{BackendError, DeviceId, Rejected};

/// Why a pool did not do what it was asked. A call that fails has changed nothing: every byte is accounted
/// for and every other buffer is as it was.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not enough memory, and giving idle memory back did not help.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// More than the device allocates in one piece, however much is free.
    #[error(
        "{requested} bytes, rounded up to a size class, are more than the {max_allocation} bytes that this device \
             allocates in one piece; ask for less at a time"
    )]
    TooLarge {
        /// Bytes asked for.
        requested: u64,
        /// The device's largest allocation, bytes.
        max_allocation: u64,
    },
    /// A stream of another device.
    #[error(
        "the stream belongs to device {given} and the pool to device {pool}; use a stream of the pool's device"
    )]
    WrongDevice {
        /// The pool's device.
        pool: DeviceId,
        /// The stream's device.
        given: DeviceId,
    },
    /// The pool was [closed](crate::Pool::close).
    #[error("the pool is closed; buffers that it gave stay valid")]
    Closed,
    /// What a stream was to do that is being captured into a graph takes something that a capture forbids.
    /// Nothing was done, and the capture goes on.
    #[error(
        "{forbidden} is forbidden while a stream is captured, and {requested} bytes (class {class}) would take it; run the step \
         once before the capture, on the same stream and with all its buffers of a `GraphMemory`"
    )]
    Capture {
        /// Bytes asked for, or of the buffer.
        requested: u64,
        /// Bytes of their size class.
        class: u64,
        /// What they take.
        forbidden: Forbidden,
    },
    /// The memory is [asleep](crate::arena::DeviceArena::sleep): physical memory behind it is the device's.
    #[error(
        "{requested} bytes are requested from memory that is asleep, with {live} bytes of live blocks; wake it first, or use \
         memory that is awake"
    )]
    Asleep {
        /// Bytes asked for, or of the buffer.
        requested: u64,
        /// Bytes of live blocks that are asleep with it.
        live: u64,
    },
    /// An invalid setting.
    #[error("invalid {field} `{value}`: {reason}")]
    Configuration {
        /// The builder's method or the field's name.
        field: &'static str,
        /// The rejected value.
        value: String,
        /// The reason, and the valid values.
        reason: String,
    },
    /// An environment variable that cannot be read.
    #[error("invalid environment variable {variable}=`{value}`: {reason}; correct or unset it")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A device that was asked for by name and is not there, or does not open.
    #[error(transparent)]
    NotOpened(#[from] Box<NotOpened>),
    /// An arena did not do what it was asked.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The device failed for another reason than a lack of memory. From an arena or a sleeper also: it has no
    /// more memory ([`is_out_of_memory`](Self::is_out_of_memory)).
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl<T> From<Rejected<T>> for Error {
    fn from(rejected: Rejected<T>) -> Self {
        rejected.error.into()
    }
}

impl Error {
    /// Whether there was not enough memory, by the pool's limit or the device's.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory(_) => true,
            Self::Arena(error) => error.is_out_of_memory(),
            Self::Backend(error) => error.is_out_of_memory(),
            _ => false,
        }
    }

    /// Whether the process was [forked](vrampool_backend::fork) from one that had opened a device: nothing
    /// was done.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        matches!(self, Self::Backend(BackendError::Forked))
    }

    /// Whether there is no such device here, so that another one may serve.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::NotOpened(error) => error.cause.is_unavailable(),
            Self::Backend(error) => error.is_unavailable(),
            _ => false,
        }
    }

    /// Whether the stream is of no more use, because work on it, or on a stream that it waited for, has
    /// failed: by [the rule of all backends](BackendError#when-work-fails).
    #[must_use]
    pub fn is_stream_failed(&self) -> bool {
        matches!(self, Self::Backend(error) if error.is_stream_failed())
    }

    /// Whether the device is gone for good.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Backend(error) if error.is_device_lost())
    }
}

/// The names of `all`, for the text of an error.
pub(crate) fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> String {
    all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", ")
}

/// What a pool does not do while a stream is captured into a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Forbidden {
    /// Taking memory from the device: nothing that is idle would serve.
    Allocation,
    /// Making a captured stream wait for one that is not, or the other way round: another stream used the
    /// memory.
    Wait,
    /// Giving memory back, waiting for what others give back, or moving blocks, because there is too little.
    Relief,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocation => "an allocation of the device's",
            Self::Wait => "a wait between a captured stream and another one",
            Self::Relief => "giving back or moving idle memory",
        })
    }
}

/// Who said that there is no memory left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// The pool's own `limit`, bytes.
    Limit(u64),
    /// The device.
    Device(BackendError),
    /// The pool's arena; its text tells the largest hole.
    Arena(ArenaError),
}

/// All that was known when memory ran out. Its text says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: u64,
    /// The size class they round up to, bytes.
    pub class: u64,
    /// Bytes handed out by this pool.
    pub live: u64,
    /// Bytes idle in this pool's buckets.
    pub cached: u64,
    /// Bytes counted against the pool's limit: live, idle, reserved for other requests, and being given back.
    pub held: u64,
    /// The limit or the device that caused the failure.
    pub shortage: Shortage,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: {} bytes were requested (class {}); the pool holds {} ({} live, {} idle)",
            self.requested,
            ByteSize(self.class),
            ByteSize(self.held),
            ByteSize(self.live),
            ByteSize(self.cached),
        )?;
        match &self.shortage {
            Shortage::Limit(limit) if self.class > *limit => {
                write!(f, " and its limit is {}; raise `limit`, or request less at a time", ByteSize(*limit))
            }
            Shortage::Limit(limit) => write!(
                f,
                " and its limit is {}; drop live buffers, raise `limit`, or choose size classes that round up less",
                ByteSize(*limit)
            ),
            Shortage::Arena(cause) => {
                write!(
                    f,
                    "; the arena has {cause}; drop live buffers, raise `limit`, or give the pool a larger arena"
                )
            }
            Shortage::Device(cause) => write!(
                f,
                "; {cause}; drop live buffers, use smaller batches, set a `limit` that leaves room for others, or \
                 choose size classes that round up less"
            ),
        }
    }
}

impl std::error::Error for OutOfMemory {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.shortage {
            Shortage::Device(cause) => Some(cause),
            Shortage::Arena(cause) => Some(cause),
            Shortage::Limit(_) => None,
        }
    }
}
