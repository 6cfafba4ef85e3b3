//! Size classes, to which requests round up. Numbers only.

mod table;

pub use table::SizeTable;

use crate::error::Error;
use std::fmt;
use std::iter;
use std::str::FromStr;
use vrampool_backend::Amount;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The largest of the fixed buckets; larger sizes round up to a power of two.
const LARGEST_FIXED: u64 = 256 * MIB;

/// A class that is clamped is a multiple of this if the request fits, bytes.
pub(crate) const CLAMPED: u64 = 512;

/// Larger tight classes are multiples of 512 bytes, smaller ones in steps of an eighth of a power of two.
const LARGEST_TIGHT: u64 = MIB;

/// The rule by which requests round up to classes. Memory of a class serves any request of that class.
///
/// A request of 0 bytes gets the smallest class. With every rule, a larger request never gets a smaller
/// class.
///
/// ```
/// use vrampool::SizeClasses;
/// assert_eq!(SizeClasses::Fixed.round(40_000_000), Some(64 << 20));
/// assert_eq!(SizeClasses::GEOMETRIC.round(40_000_000), Some(40 << 20));
/// assert_eq!(SizeClasses::PowerOfTwo.round(1025), Some(2048));
/// assert_eq!("multiple:32MiB".parse::<SizeClasses>()?, SizeClasses::Multiple(32 << 20));
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SizeClasses {
    /// netcl's ten buckets, 1 KiB to 256 MiB by factors of 4, then powers of two. With few classes most
    /// requests hit, but a buffer may be almost 4 times the requested size.
    #[default]
    Fixed,
    /// Powers of two.
    PowerOfTwo,
    /// `per_doubling` classes per power of two above `from` bytes, and the fixed buckets (at most `from`)
    /// below. An empty class borrows from the next ones
    /// ([`PoolBuilder::borrow_classes`](crate::PoolBuilder::borrow_classes)).
    Geometric {
        /// Classes per power of two; a power of two. 8 adds at most 12.5 % padding.
        per_doubling: u32,
        /// Start of the geometric range, bytes; at least `per_doubling`.
        from: u64,
    },
    /// Multiples of this many bytes; for smaller requests the fixed buckets (at most this size).
    Multiple(u64),
    /// Multiples of this many bytes for every request: as many classes as sizes, little padding.
    Exact(u64),
    /// For a source that coalesces. Up to 1 MiB, 8 classes per power of two (multiples of 1 KiB below 8 KiB),
    /// which are often idle and have little padding. Above, multiples of 512 bytes, because padding would be
    /// most of the waste.
    Tight,
    /// A table of sizes, as the crate `vrampool-trace` fits one to a program's requests. Other sizes get 8
    /// classes per power of two.
    Table(SizeTable),
}

impl SizeClasses {
    /// netcl's geometric rule: 8 classes per power of two above 1 MiB.
    pub const GEOMETRIC: Self = Self::Geometric { per_doubling: 8, from: MIB };

    /// A class per size, in steps of 512 bytes, the alignment of device allocators.
    pub const EXACT: Self = Self::Exact(512);

    /// Returns the class of a request, bytes; `None` if it would be 2⁶⁴ or more.
    #[inline]
    #[must_use]
    pub fn round(&self, bytes: u64) -> Option<u64> {
        match *self {
            Self::Fixed => fixed(bytes),
            Self::PowerOfTwo => bytes.max(1).checked_next_power_of_two(),
            Self::Geometric { from, .. } if bytes <= from => fixed(bytes).map(|class| class.min(from)),
            Self::Geometric { per_doubling, .. } => {
                let doubling = 1u64 << bytes.ilog2();
                bytes.checked_next_multiple_of(doubling.checked_div(u64::from(per_doubling))?.max(1))
            }
            Self::Multiple(unit) if bytes < unit => fixed(bytes).map(|class| class.min(unit)),
            Self::Multiple(unit) | Self::Exact(unit) => bytes.max(1).checked_next_multiple_of(unit),
            Self::Tight if bytes <= LARGEST_TIGHT => {
                let bytes = bytes.max(1);
                bytes.checked_next_multiple_of((1 << bytes.ilog2() >> 3).max(KIB))
            }
            Self::Tight => bytes.checked_next_multiple_of(512),
            Self::Table(ref table) => table.round(bytes),
        }
    }

    /// Returns the class of a request, or at most `largest` bytes if the request fits in them. `None` if it does not.
    pub(crate) fn round_within(&self, bytes: u64, largest: u64) -> Option<u64> {
        match self.round(bytes) {
            Some(class) if class <= largest => Some(class),
            // A source may align what it allocates.
            _ => [largest / CLAMPED * CLAMPED, largest].into_iter().find(|&class| class >= bytes.max(1)),
        }
    }

    /// Returns the classes that may serve a request of `class` when it has no idle block, nearest first.
    /// These are all larger classes of the geometric range. Other rules return none, because the next class
    /// is far larger.
    pub(crate) fn larger_classes(&self, class: u64) -> impl Iterator<Item = u64> + use<> {
        let geometric = match *self {
            Self::Geometric { per_doubling, from } if class > from => {
                Some(Self::Geometric { per_doubling, from })
            }
            _ => None,
        };
        let mut class = class;
        iter::from_fn(move || {
            class = geometric.as_ref()?.round(class.checked_add(1)?)?;
            Some(class)
        })
    }

    /// Whether no class up to `largest`, except the smallest ones, begins within an eighth of a power of two.
    pub(crate) fn are_eighths(&self, largest: u64) -> bool {
        match self {
            Self::Fixed | Self::PowerOfTwo => true,
            Self::Tight => largest <= LARGEST_TIGHT,
            Self::Geometric { per_doubling, from } => *per_doubling <= 8 && from.is_power_of_two(),
            Self::Multiple(_) | Self::Exact(_) | Self::Table(_) => false,
        }
    }

    /// Returns the size under which a class is reported: the class itself if there are few, else the next
    /// power of two, to keep reports short.
    pub(crate) fn reported(&self, class: u64) -> u64 {
        match self {
            Self::Tight if class <= LARGEST_TIGHT => class,
            Self::Multiple(_) | Self::Exact(_) | Self::Tight => {
                class.checked_next_power_of_two().unwrap_or(u64::MAX)
            }
            _ => class,
        }
    }

    /// Checks the rule.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a rule without classes.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let reason = match *self {
            Self::Geometric { per_doubling, .. } if !per_doubling.is_power_of_two() => {
                "the classes to a doubling must be a power of two"
            }
            Self::Geometric { per_doubling, from } if from < u64::from(per_doubling) => {
                "geometric classes must start at least at as many bytes as there are classes to a doubling"
            }
            Self::Multiple(0) | Self::Exact(0) => "the unit must be at least 1 byte",
            Self::Table(ref table) if table.sizes().first() == Some(&0) => "a size must be at least 1 byte",
            _ => return Ok(()),
        };
        Err(Error::configuration("size_classes", self.to_string(), reason))
    }
}

/// netcl's buckets: 1 KiB × 4ⁿ up to 256 MiB, then powers of two.
#[inline]
fn fixed(bytes: u64) -> Option<u64> {
    if bytes <= KIB {
        return Some(KIB);
    }
    let power = bytes.checked_next_power_of_two()?;
    // 1 KiB is 2¹⁰ and even powers are buckets, so an odd power moves up by one.
    Some(if power <= LARGEST_FIXED && power.ilog2() % 2 == 1 { power << 1 } else { power })
}

/// Writes the form that is parsed; of a table only the number of its sizes.
impl fmt::Display for SizeClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed => f.write_str("fixed"),
            Self::PowerOfTwo => f.write_str("power-of-two"),
            Self::Tight => f.write_str("tight"),
            Self::GEOMETRIC => f.write_str("geometric"),
            Self::Geometric { per_doubling, from } => write!(f, "geometric:{per_doubling}:{from}"),
            Self::Multiple(unit) => write!(f, "multiple:{unit}"),
            Self::EXACT => f.write_str("exact"),
            Self::Exact(unit) => write!(f, "exact:{unit}"),
            Self::Table(ref table) => write!(f, "table:{}", table.sizes().len()),
        }
    }
}

/// Parses `fixed`, `power-of-two`, `tight`, `geometric`, `geometric:N`, `geometric:N:FROM`, `multiple:UNIT`,
/// `exact`, `exact:UNIT`, with sizes such as `32MiB`. A table has no such form.
impl FromStr for SizeClasses {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::configuration("size_classes", text, reason);
        let size = |text: &str| match Amount::parse_bytes(text) {
            Ok(size) if size < u64::MAX => Ok(size),
            _ => Err(wrong("a size is a number with an optional unit, as in 32MiB")),
        };
        let parts: Vec<&str> = text.split(':').collect();
        let classes = match parts[..] {
            ["fixed"] => Self::Fixed,
            ["power-of-two"] => Self::PowerOfTwo,
            ["tight"] => Self::Tight,
            ["geometric"] => Self::GEOMETRIC,
            ["geometric", count, ref from @ ..] if from.len() <= 1 => Self::Geometric {
                per_doubling: count.parse().map_err(|_| wrong("the classes to a doubling are a number"))?,
                from: from.first().map_or(Ok(MIB), |from| size(from))?,
            },
            ["multiple", unit] => Self::Multiple(size(unit)?),
            ["exact"] => Self::EXACT,
            ["exact", unit] => Self::Exact(size(unit)?),
            ["fitted", _, ..] => {
                return Err(wrong(
                    "files of fitted classes are read by the option of the program `vrampool`, of C and of Python, and by \
                     `fitted::load` of vrampool-trace",
                ));
            }
            _ => {
                return Err(wrong(
                    "known are fixed, power-of-two, geometric[:N[:FROM]], multiple:UNIT, exact[:UNIT], tight",
                ));
            }
        };
        classes.validate()?;
        Ok(classes)
    }
}
