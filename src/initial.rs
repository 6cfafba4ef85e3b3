//! Memory that a pool maps when it is made.

use crate::error::Error;
use bytesize::ByteSize;
use std::fmt;
use std::str::FromStr;

/// Physical memory that a pool maps when it is made, so that its first requests make few driver calls.
///
/// The pool's source must be [virtual](crate::Source::Virtual).
///
/// ```
/// # use vrampool::Initial;
/// assert_eq!("2GiB".parse::<Initial>()?, Initial::Bytes(2 << 30));
/// assert_eq!("50%".parse::<Initial>()?, Initial::Percent(50));
/// assert_eq!(Initial::default(), Initial::Bytes(0));
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Initial {
    /// So many bytes, rounded up to the device's granularity.
    Bytes(u64),
    /// This percentage of the device's memory.
    Percent(u64),
}

impl Initial {
    /// Returns it in bytes on a device with `total` bytes.
    pub(crate) fn bytes_of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                u64::try_from(u128::from(total) * u128::from(percent) / 100).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Default for Initial {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl fmt::Display for Initial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Initial {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let parsed = match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse().ok().filter(|&percent| percent <= 100).map(Self::Percent),
            None => text.parse::<ByteSize>().ok().map(|bytes| Self::Bytes(bytes.as_u64())),
        };
        parsed.ok_or_else(|| {
            let reason = "write a size such as 4GiB, or a percentage of the device such as 50%";
            Error::configuration("initial", text, reason)
        })
    }
}
