//! The bound on memory that a pool allocates so that streams do not wait for each other.

use crate::error::Error;
use bytesize::ByteSize;
use std::fmt;
use std::str::FromStr;

/// The most bytes that a pool holds beyond its peak of live bytes so that streams run side by side.
///
/// A request finds idle memory that another stream still uses. The pool then allocates new memory while this
/// bound, the limit, the budget and the device leave room. Otherwise the request's stream waits for the
/// other stream's work on that memory.
///
/// ```
/// # use vrampool::Overlap;
/// assert_eq!("256MiB".parse::<Overlap>()?, Overlap::Bytes(256 << 20));
/// assert_eq!("25%".parse::<Overlap>()?, Overlap::Percent(25));
/// assert_eq!(Overlap::default(), Overlap::Unlimited);
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Overlap {
    /// Only the limit, the budget and the device bound it.
    #[default]
    Unlimited,
    /// At most so many bytes; with 0, a stream always waits instead.
    Bytes(u64),
    /// At most this percentage of the held bytes.
    Percent(u64),
}

impl Overlap {
    /// Whether a pool may hold `held` bytes when its peak of live bytes is `peak_live`.
    #[inline]
    pub(crate) fn allows(self, held: u64, peak_live: u64) -> bool {
        self.bytes_of(held).is_none_or(|most| held.saturating_sub(peak_live) <= most)
    }

    /// Returns the bound in bytes while `held` bytes are held; `None` if it is unlimited.
    pub(crate) fn bytes_of(self, held: u64) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Bytes(most) => Some(most),
            Self::Percent(percent) => {
                let bytes = u128::from(held) * u128::from(percent) / 100;
                Some(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Overlap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let parsed = match text.strip_suffix('%') {
            _ if text == "unlimited" => Some(Self::Unlimited),
            Some(percent) => percent.trim().parse().ok().map(Self::Percent),
            None => text.parse::<ByteSize>().ok().map(|bytes| Self::Bytes(bytes.as_u64())),
        };
        parsed.ok_or_else(|| {
            let reason = "write a size such as 256MiB, a percentage such as 25%, or unlimited";
            Error::configuration("overlap", text, reason)
        })
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Overlap {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_is_held() {
        assert!(Overlap::Percent(25).allows(400, 300) && !Overlap::Percent(25).allows(401, 300));
        assert!(Overlap::Bytes(0).allows(300, 300) && !Overlap::Bytes(0).allows(301, 300));
        assert!(Overlap::Unlimited.allows(u64::MAX, 0) && Overlap::Percent(u64::MAX).allows(u64::MAX, 0));
    }
}
