//! Amounts of memory, and the one parser of their text.

use bytesize::ByteSize;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// An amount of memory: bytes, a percentage of a whole, or no bound. The setting states what the whole is.
///
/// As text: a number of bytes, or with a unit. `KiB`, `MiB`, `GiB` are powers of 1024; `K`, `KB`, `M`, `MB`, `G`, `GB`
/// are powers of 1000. Its own text has the largest unit that states it exactly.
///
/// ```
/// use vrampool_backend::Amount;
/// assert_eq!("512MiB".parse(), Ok(Amount::Bytes(512 << 20)));
/// assert_eq!("8G".parse::<Amount>()?.to_string(), "8GB");
/// assert_eq!("12.5%".parse::<Amount>()?.bytes_of(8000), Some(1000));
/// assert_eq!("unlimited".parse::<Amount>()?, Amount::from(None));
/// # Ok::<(), vrampool_backend::InvalidAmount>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Amount {
    /// No bound.
    #[default]
    Unlimited,
    /// A number of bytes. `u64::MAX` is no bound.
    Bytes(u64),
    /// A percentage of the whole, 0 to 100.
    Percent(f64),
}

/// Units that a text has, the largest first. Of equal amounts at most one is exact.
const UNITS: [(&str, u64); 12] = [
    ("EiB", 1 << 60),
    ("EB", 10u64.pow(18)),
    ("PiB", 1 << 50),
    ("PB", 10u64.pow(15)),
    ("TiB", 1 << 40),
    ("TB", 10u64.pow(12)),
    ("GiB", 1 << 30),
    ("GB", 10u64.pow(9)),
    ("MiB", 1 << 20),
    ("MB", 10u64.pow(6)),
    ("KiB", 1 << 10),
    ("KB", 1000),
];

impl Amount {
    /// Returns the bytes, rounded down. A percentage is of `whole`. `None` is unlimited.
    #[must_use]
    pub fn bytes_of(self, whole: u64) -> Option<u64> {
        match self {
            Self::Unlimited | Self::Bytes(u64::MAX) => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => Some((whole as f64 * (percent / 100.0)) as u64),
        }
    }

    /// Parses bytes where percentages have no meaning; `unlimited` is `u64::MAX`.
    ///
    /// ```
    /// use vrampool_backend::Amount;
    /// assert_eq!(Amount::parse_bytes("64KiB"), Ok(64 << 10));
    /// assert!(Amount::parse_bytes("25%").is_err());
    /// ```
    ///
    /// # Errors
    /// [`InvalidAmount`] for a percentage, and for text that is no amount.
    pub fn parse_bytes(text: &str) -> Result<u64, InvalidAmount> {
        match text.parse() {
            Ok(Self::Unlimited) => Ok(u64::MAX),
            Ok(Self::Bytes(bytes)) => Ok(bytes),
            Ok(Self::Percent(_)) => Err(InvalidAmount { has_whole: false, is_too_large: false }),
            Err(invalid) => Err(InvalidAmount { has_whole: false, ..invalid }),
        }
    }

    /// Checks that a percentage is from 0 to 100.
    ///
    /// # Errors
    /// [`InvalidAmount`] if it is not.
    pub fn check(self) -> Result<Self, InvalidAmount> {
        match self {
            Self::Percent(percent) if !(0.0..=100.0).contains(&percent) => {
                Err(InvalidAmount { has_whole: true, is_too_large: false })
            }
            amount => Ok(amount),
        }
    }

    fn key(self) -> (u8, u64) {
        match self {
            Self::Unlimited | Self::Bytes(u64::MAX) => (0, 0),
            Self::Bytes(bytes) => (1, bytes),
            Self::Percent(percent) => (2, percent.to_bits()),
        }
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Amount {}

impl Hash for Amount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// `None` has no bound.
impl From<Option<u64>> for Amount {
    fn from(bytes: Option<u64>) -> Self {
        bytes.map_or(Self::Unlimited, Self::from)
    }
}

/// `u64::MAX` is no bound.
impl From<u64> for Amount {
    fn from(bytes: u64) -> Self {
        if bytes == u64::MAX { Self::Unlimited } else { Self::Bytes(bytes) }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unlimited | Self::Bytes(u64::MAX) => f.write_str("unlimited"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => {
                let exact = UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
                let (name, unit) = exact.unwrap_or(&("B", 1));
                write!(f, "{}{name}", bytes / unit)
            }
        }
    }
}

/// Text that is not an [`Amount`], or a percentage where bytes are required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write a size below 2^64 bytes such as 512MiB (512M is 512000000){}; use unlimited for no bound",
    if *.has_whole { ", or a percentage from 0 to 100 such as 25%" } else { "" }
)]
pub struct InvalidAmount {
    /// Whether percentages have a meaning.
    has_whole: bool,
    is_too_large: bool,
}

impl InvalidAmount {
    /// Whether the text is a size of 2^64 bytes or more.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }
}

impl FromStr for Amount {
    type Err = InvalidAmount;

    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        let text = text.trim();
        let invalid = InvalidAmount { has_whole: true, is_too_large: false };
        match text.strip_suffix('%') {
            _ if text == "unlimited" => Ok(Self::Unlimited),
            Some(percent) => Self::Percent(percent.trim_end().parse().map_err(|_| invalid)?).check(),
            None => match text.parse().map_err(|_| invalid)? {
                // The parser reads larger numbers as this one.
                ByteSize(u64::MAX) => Err(InvalidAmount { is_too_large: true, ..invalid }),
                ByteSize(bytes) => Ok(Self::Bytes(bytes)),
            },
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Amount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_is_written() {
        let numbers = [1, 1000, 1024, 1_000_000, 8 << 30, 8_000_000_000, 3 << 40, 1 << 63, u64::MAX - 1];
        let amounts = numbers.map(Amount::from).into_iter();
        for amount in amounts.chain([0.0, 12.5, 33.3, 100.0].map(Amount::Percent)).chain([Amount::Unlimited])
        {
            assert_eq!(amount.to_string().parse(), Ok(amount), "{amount}");
        }
        assert_eq!(Amount::Bytes(u64::MAX).to_string().parse(), Ok(Amount::Bytes(u64::MAX)));
        for (text, same) in
            [("8G", "8GB"), ("0", "0B"), ("1024", "1KiB"), (" 1.5 GiB ", "1536MiB"), ("25 %", "25%")]
        {
            assert_eq!(text.parse::<Amount>().expect(text).to_string(), same);
        }
        for text in
            ["", "much", "-1", "25%%", "%", "101%", "-1%", "NaN%", "inf%", "16EiB", "18446744073709551615"]
        {
            let is_too_large = ["16EiB", "18446744073709551615"].contains(&text);
            assert_eq!(
                text.parse::<Amount>(),
                Err(InvalidAmount { has_whole: true, is_too_large }),
                "{text}"
            );
        }
    }

    #[test]
    fn a_percentage_is_of_a_whole() {
        for (amount, bytes) in
            [(Amount::Percent(25.0), Some(100)), (Amount::Bytes(7), Some(7)), (None.into(), None)]
        {
            assert_eq!(amount.bytes_of(400), bytes);
        }
        assert_eq!(Amount::Percent(100.0).bytes_of(u64::MAX), Some(u64::MAX));
    }
}
