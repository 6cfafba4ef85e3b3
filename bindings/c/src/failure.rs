//! What a call answers, and why.

use std::ops::{Deref, DerefMut};
use vrampool::arena::ArenaError;
use vrampool::errors::chain;
use vrampool::{BackendError, Error};
use vrampool_broker::BrokerError;

/// A `vrampool_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
#[must_use]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $NAME:ident = $code:literal),+ $(,)?) => {
        impl Status {
            $($(#[$doc])* pub const $NAME: Self = Self($code);)+

            /// Its name in the header, without the prefix.
            #[must_use]
            pub fn name(self) -> &'static str {
                self.c_name().to_str().unwrap_or_default()
            }

            pub(crate) fn c_name(self) -> &'static std::ffi::CStr {
                const UNKNOWN: &std::ffi::CStr = c"UNKNOWN";
                match self {
                    $(Self::$NAME => {
                        let name = concat!(stringify!($NAME), "\0");
                        std::ffi::CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or(UNKNOWN)
                    })+
                    _ => UNKNOWN,
                }
            }
        }
    };
}

statuses! {
    /// Done.
    OK = 0,
    /// An argument is null, out of range, no text, or names nothing.
    INVALID_ARGUMENT = 1,
    /// A pool's handle that is none, or no longer.
    INVALID_HANDLE = 2,
    /// An address where no live block begins.
    INVALID_POINTER = 3,
    /// There is not enough memory.
    OUT_OF_MEMORY = 4,
    /// More than the device allocates in one piece.
    TOO_LARGE = 5,
    /// A block or a stream of another pool, device or size.
    MISMATCH = 6,
    /// Forbidden while the stream is captured.
    CAPTURE = 7,
    /// The memory is asleep.
    ASLEEP = 8,
    /// An option or an environment variable that cannot be.
    CONFIGURATION = 9,
    /// There is no such device here.
    UNAVAILABLE = 10,
    /// It cannot be done at all.
    UNSUPPORTED = 11,
    /// The driver failed.
    DEVICE = 12,
    /// The device is lost.
    DEVICE_LOST = 13,
    /// Another call is active, or the time for this one is over.
    BUSY = 14,
    /// A fault of vrampool's own.
    INTERNAL = 15,
    /// The process was forked from one that had opened a device.
    FORKED = 16,
}

/// Why a call did not do what it was asked. One word, so that what a call answers passes in registers: in
/// memory it would be stored in parts and read as one, for which a processor waits.
#[derive(Debug, Clone)]
pub(crate) struct Failure(Box<Content>);

/// The text and figures of a failure.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Deref for Failure {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Content {
        &mut self.0
    }
}

impl Failure {
    #[cold]
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self(Box::new(Content { status, text: text.into() }))
    }

    #[cold]
    pub(crate) fn invalid(argument: &str, reason: &str) -> Self {
        Self::new(Status::INVALID_ARGUMENT, format!("invalid {argument}: {reason}"))
    }

    #[cold]
    pub(crate) fn configuration(key: &str, value: &str, reason: &str) -> Self {
        Self::new(Status::CONFIGURATION, format!("invalid {key} `{value}`: {reason}"))
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::TooLarge { .. } => Status::TOO_LARGE,
            error if error.is_out_of_memory() => Status::OUT_OF_MEMORY,
            error if error.is_unavailable() => Status::UNAVAILABLE,
            error if error.is_device_lost() => Status::DEVICE_LOST,
            Error::NotOpened(error) => status_of(&error.cause),
            Error::WrongDevice { .. } => Status::MISMATCH,
            Error::Capture { .. } => Status::CAPTURE,
            Error::Asleep { .. } => Status::ASLEEP,
            Error::Configuration { .. } | Error::Environment { .. } => Status::CONFIGURATION,
            Error::Backend(error) => status_of(error),
            Error::Arena(error) if **error == ArenaError::Pinned => Status::BUSY,
            // A value that the arena does not take, such as a limit below its size.
            Error::Arena(_) => Status::INVALID_ARGUMENT,
            _ => Status::DEVICE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<vrampool_sleep::Error> for Failure {
    #[cold]
    fn from(error: vrampool_sleep::Error) -> Self {
        use vrampool_sleep::Error;
        let status = match error {
            Error::Arena(error) => return error.into(),
            // Its text says whose memory.
            Error::HostMemory { .. } => Status::OUT_OF_MEMORY,
            Error::UnknownTag { .. } => Status::INVALID_ARGUMENT,
            Error::Busy => Status::BUSY,
            _ => Status::CONFIGURATION,
        };
        Self::new(status, error.to_string())
    }
}

impl From<BackendError> for Failure {
    #[cold]
    fn from(error: BackendError) -> Self {
        Self::new(status_of(&error), error.to_string())
    }
}

impl From<BrokerError> for Failure {
    #[cold]
    fn from(error: BrokerError) -> Self {
        let text = chain(&error).to_string();
        let mut cause = error;
        while let BrokerError::Run { source, .. } = cause {
            cause = *source;
        }
        let status = match cause {
            BrokerError::Memory(error) => Self::from(error).status,
            BrokerError::Chunk(_) | BrokerError::HostMemory { .. } => Status::OUT_OF_MEMORY,
            BrokerError::Setting { .. } => Status::CONFIGURATION,
            BrokerError::Busy { .. } | BrokerError::Changing { .. } | BrokerError::Reentrant => Status::BUSY,
            // Arguments, and files, whose text has the cause.
            _ => Status::INVALID_ARGUMENT,
        };
        Self::new(status, text)
    }
}

/// For calls that wait for what a sleep, a wake or a copy of segments holds, also of other threads.
///
/// # Errors
/// [`Status::BUSY`] in a copy callback.
pub(crate) fn check_no_callback() -> Result<(), Failure> {
    if vrampool_sleep::is_reporting() { Err(vrampool_sleep::Error::Busy.into()) } else { Ok(()) }
}

fn status_of(error: &BackendError) -> Status {
    match error {
        BackendError::OutOfMemory { .. } => Status::OUT_OF_MEMORY,
        BackendError::DeviceLost { .. } => Status::DEVICE_LOST,
        BackendError::Forked => Status::FORKED,
        BackendError::Unavailable { .. } => Status::UNAVAILABLE,
        BackendError::Unsupported { .. } => Status::UNSUPPORTED,
        BackendError::InvalidArgument { .. } => Status::INVALID_ARGUMENT,
        _ => Status::DEVICE,
    }
}
