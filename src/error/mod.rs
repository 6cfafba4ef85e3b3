//! Errors of a pool.

mod cause;
mod chain;
mod out_of_memory;
pub(crate) mod refusal_log;

use crate::any::available::NotOpened;
use crate::heap::space::ArenaError;
pub use cause::Cause;
pub use chain::{Chain, chain};
pub use out_of_memory::{OtherPool, OutOfMemory, Owner, Shortage};
use std::fmt;
use vrampool_backend::{BackendError, DeviceId};

/// The error of a pool or an arena. A call that fails has changed nothing: every byte is accounted
/// for and every other buffer is as it was.
///
/// A lack of memory is always [`OutOfMemory`](Self::OutOfMemory), whether a pool or an arena
/// reports it: [`out_of_memory`](Self::out_of_memory) returns its figures. A result of a buffer takes
/// 24 bytes at most.
///
/// `{:?}` prints the text and that of all causes, so that a `main` that returns an error is readable.
///
/// ```
/// use vrampool::{Backend, Pool, arena::DeviceArena, host::HostDevice};
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// let arena = DeviceArena::builder(&device).limit(1 << 20).build()?;
/// let refusals = [pool.allocate(4 << 20, &stream).err(), arena.allocate(4 << 20, &stream).err()];
/// for error in refusals.iter().flatten() {
///     let shortage = error.out_of_memory().expect("a lack of memory");
///     assert_eq!((shortage.requested_bytes, shortage.live_bytes), (4 << 20, 0));
/// }
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not enough memory, also after idle memory was released.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// More than the device allocates in one piece, however much is free.
    #[error(
        "{requested_bytes} bytes are more than the {max_allocation} bytes that this device allocates in one piece; \
         request less at a time"
    )]
    #[non_exhaustive]
    TooLarge {
        /// The requested bytes.
        requested_bytes: u64,
        /// The device's largest allocation, bytes.
        max_allocation: u64,
    },
    /// A stream of another device.
    #[error(transparent)]
    WrongDevice(Box<WrongDevice>),
    /// The pool was [closed](crate::Pool::close).
    #[error("the pool is closed; buffers that it gave stay valid")]
    Closed,
    /// Work on a stream that is being captured into a graph needs an operation that a capture forbids.
    /// Nothing was done, and the capture goes on.
    #[error(
        "{forbidden} is forbidden while a stream is captured, and {requested_bytes} bytes (class {class_bytes}) \
         would need it; run the step once before the capture, on the same stream and with all its \
         buffers from a `Pool::child`"
    )]
    #[non_exhaustive]
    Capture {
        /// The requested bytes, or the buffer's.
        requested_bytes: u64,
        /// Bytes of their size class.
        class_bytes: u64,
        /// The operation.
        forbidden: Forbidden,
    },
    /// The memory is asleep: its physical memory is [detached](crate::arena::DeviceArena::detach).
    #[error(
        "{requested_bytes} bytes are requested from memory that is asleep, with {live_bytes} bytes of \
         live blocks; wake it first, or use memory that is awake"
    )]
    #[non_exhaustive]
    Asleep {
        /// The requested bytes, or the buffer's.
        requested_bytes: u64,
        /// Bytes of live blocks that are asleep with it.
        live_bytes: u64,
    },
    /// An invalid setting.
    #[error(transparent)]
    Configuration(Box<InvalidSetting>),
    /// An environment variable that cannot be read.
    #[error(transparent)]
    Environment(Box<InvalidVariable>),
    /// A device that was requested by name is absent, or does not open.
    #[error(transparent)]
    NotOpened(#[from] Box<NotOpened>),
    /// An arena refused a request for another reason than a lack of memory.
    #[error(transparent)]
    Arena(Box<ArenaError>),
    /// The device failed for another reason than a lack of memory.
    #[error(transparent)]
    Backend(Box<BackendError>),
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::OutOfMemory { requested_bytes, .. } => {
                OutOfMemory::of_device(requested_bytes, Shortage::Device(error)).into()
            }
            error => Self::Backend(Box::new(error)),
        }
    }
}

impl From<ArenaError> for Error {
    fn from(error: ArenaError) -> Self {
        match error {
            ArenaError::NoSpace { bytes, .. } => OutOfMemory::of_device(bytes, Shortage::Arena(error)).into(),
            _ if error.is_out_of_memory() => OutOfMemory::of_device(0, Shortage::Arena(error)).into(),
            error => Self::Arena(Box::new(error)),
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(error))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", chain(self))
    }
}

impl Error {
    pub(crate) fn configuration(
        field: &'static str,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        let (value, reason) = (value.into(), reason.into());
        Self::Configuration(Box::new(InvalidSetting { field, value, reason }))
    }

    pub(crate) fn environment(
        variable: &'static str,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        let (value, reason) = (value.into(), reason.into());
        Self::Environment(Box::new(InvalidVariable { variable, value, reason }))
    }

    #[cold]
    pub(crate) fn wrong_device(pool: DeviceId, given: DeviceId) -> Self {
        Self::WrongDevice(Box::new(WrongDevice { pool, given }))
    }

    /// Completes the figures of a lack of memory that an arena or a device reported, unless a holder did.
    pub(crate) fn held_by(mut self, describe: impl FnOnce(&mut OutOfMemory)) -> Self {
        if let Self::OutOfMemory(error) = &mut self
            && error.owner == Owner::Device
        {
            describe(error);
        }
        self
    }

    /// Whether there was not enough memory, by a limit or the device's, so that a smaller request may succeed. True of
    /// [`TooLarge`](Self::TooLarge), too.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_) | Self::TooLarge { .. })
    }

    /// Returns the figures of a lack of memory; `None` for any other error.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Self::OutOfMemory(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the arena's error, also where it is the cause of a lack of memory.
    ///
    /// ```
    /// use vrampool::{Backend, arena::{ArenaError, DeviceArena}, host::HostDevice};
    /// let device = HostDevice::new();
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).limit(1 << 20).build()?;
    /// let error = arena.allocate(0, &stream).unwrap_err();
    /// assert_eq!(error.arena(), Some(&ArenaError::ZeroBytes));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[must_use]
    pub fn arena(&self) -> Option<&ArenaError> {
        match self {
            Self::Arena(error) => Some(error),
            _ => match &self.out_of_memory()?.shortage {
                Shortage::Arena(error) => Some(error),
                _ => None,
            },
        }
    }

    /// Returns the device's error, also where it is the cause of a lack of memory or of a device that did not
    /// open.
    #[must_use]
    pub fn backend(&self) -> Option<&BackendError> {
        match self {
            Self::Backend(error) => Some(error),
            Self::NotOpened(error) => Some(&error.cause),
            _ => match &self.out_of_memory()?.shortage {
                Shortage::Device(error) => Some(error),
                _ => None,
            },
        }
    }

    /// Whether the process was [forked](vrampool_backend::fork) from one that had opened a device, so that
    /// nothing was done.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.backend().is_some_and(BackendError::is_forked)
    }

    /// Whether the device is absent, so that another one may serve.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.backend().is_some_and(BackendError::is_unavailable)
    }

    /// Whether the stream is unusable, because work on it, or on a stream that it waited for, has failed: by
    /// [the rule of all backends](BackendError#when-work-fails).
    #[must_use]
    pub fn is_stream_failed(&self) -> bool {
        matches!(self, Self::Backend(error) if error.is_stream_failed())
    }

    /// Whether the device is lost for good.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Backend(error) if error.is_device_lost())
    }
}

/// An invalid setting of a builder: [`Error::Configuration`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {field} `{value}`: {reason}")]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The builder's method or the field's name.
    pub field: &'static str,
    /// The rejected value.
    pub value: String,
    /// The reason, and the valid values.
    pub reason: String,
}

/// An environment variable that cannot be read: [`Error::Environment`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid environment variable {variable}=`{value}`: {reason}; correct or unset it")]
#[non_exhaustive]
pub struct InvalidVariable {
    /// Its name.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// The reason, and the valid values.
    pub reason: String,
}

/// A stream of another device: [`Error::WrongDevice`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stream belongs to device {given} and the pool to device {pool}; use a stream of the pool's device"
)]
#[non_exhaustive]
pub struct WrongDevice {
    /// The pool's device.
    pub pool: DeviceId,
    /// The stream's device.
    pub given: DeviceId,
}

/// An operation that is forbidden while a stream is captured into a graph.
///
/// ```
/// use vrampool::{Error, Forbidden};
/// /// Whether a step that failed in a capture should run once before it.
/// fn needs_warm_up(error: &Error) -> bool {
///     matches!(error, Error::Capture { forbidden: Forbidden::Allocation, .. })
/// }
/// assert!(!needs_warm_up(&Error::Closed));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Forbidden {
    /// Taking memory from the device: nothing that is idle would serve.
    Allocation,
    /// Making a captured stream wait for one that is not, or the other way round: another stream used the
    /// memory.
    Wait,
    /// Releasing idle memory, waiting for a release, or moving blocks, because memory is short.
    Release,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocation => "an allocation of the device's",
            Self::Wait => "a wait between a captured stream and another one",
            Self::Release => "releasing or moving idle memory",
        })
    }
}
