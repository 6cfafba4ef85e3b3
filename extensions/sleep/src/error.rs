//! Errors of sleep and wake.

use vrampool::BackendError;

/// The error of a sleep or a wake. A call that fails has changed nothing.
///
/// ```
/// # use vrampool_sleep::{Error, check_tags};
/// let error = check_tags(&["weigths"], [].into_iter()).unwrap_err();
/// assert!(matches!(&error, Error::UnknownTag { tag, .. } if tag == "weigths"));
/// assert!(error.to_string().contains("use one of cudagraph, default, kv_cache, runtime, weights"));
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An arena or its device failed.
    #[error(transparent)]
    Arena(#[from] vrampool::Error),
    /// The host has too little memory for the contents.
    #[error(
        "the host has no {requested_bytes} bytes of host memory for a backup; free memory of the host, or keep the \
         contents of fewer tags"
    )]
    #[non_exhaustive]
    HostMemory {
        /// The requested bytes of host memory.
        requested_bytes: u64,
    },
    /// A tag that does not exist: nothing was allocated under it, and it is none that programs have by custom.
    #[error("nothing was ever allocated under the tag `{tag}`; use one of {}", known.join(", "))]
    #[non_exhaustive]
    UnknownTag {
        /// The tag.
        tag: String,
        /// All tags that exist.
        known: Vec<String>,
    },
    /// A sleep or a wake within a [callback for the progress](crate::is_reporting) of another one.
    #[error(
        "a callback for progress cannot put memory to sleep or wake it; do that after the call that reports"
    )]
    Busy,
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        Self::Arena(error.into())
    }
}

impl Error {
    /// Returns the error of an arena or its device; `None` for any other error.
    #[must_use]
    pub fn of_arena(&self) -> Option<&vrampool::Error> {
        match self {
            Self::Arena(error) => Some(error),
            _ => None,
        }
    }

    /// Whether there was not enough device memory, by a limit or the device's.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.of_arena().is_some_and(vrampool::Error::is_out_of_memory)
    }
}
