//! Size classes, to which requests round up. Numbers only.

pub mod fitted;

use crate::cache::size_class::fitted::FittedClasses;
use crate::error::Error;
use bytesize::ByteSize;
use std::fmt;
use std::str::FromStr;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The largest of the fixed buckets; larger sizes round up to a power of two.
const LARGEST_FIXED: u64 = 256 * MIB;

/// Larger tight classes are multiples of 512 bytes, smaller ones an eighth of a power of two apart.
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
    /// Sizes learned from a program's requests and chosen to hold the least memory: see
    /// [`fitted`](crate::cache::size_class::fitted). Other sizes get 8 classes per power of two.
    Fitted(FittedClasses),
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
            Self::Fitted(ref classes) => classes.round(bytes),
        }
    }

    /// Returns the classes that may serve a request of `class` when it has no idle block, nearest first.
    /// These are all larger classes of the geometric range. Other rules return none, because the next class
    /// is far larger.
    pub(crate) fn lenders(&self, class: u64) -> impl Iterator<Item = u64> + use<> {
        let geometric = match *self {
            Self::Geometric { per_doubling, from } if class > from => {
                Some(Self::Geometric { per_doubling, from })
            }
            _ => None,
        };
        let first = geometric.is_some().then_some(class);
        let next = move |class: &u64| geometric.as_ref()?.round(class.checked_add(1)?);
        std::iter::successors(first, next).skip(1)
    }

    /// Whether no class up to `largest`, except the smallest ones, begins within an eighth of a power of two.
    pub(crate) fn are_eighths(&self, largest: u64) -> bool {
        match self {
            Self::Fixed | Self::PowerOfTwo => true,
            Self::Tight => largest <= LARGEST_TIGHT,
            Self::Geometric { per_doubling, from } => *per_doubling <= 8 && from.is_power_of_two(),
            Self::Multiple(_) | Self::Exact(_) | Self::Fitted(_) => false,
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

/// Writes the form that is parsed; for fitted classes only their number.
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
            Self::Fitted(ref classes) => write!(f, "fitted:{}", classes.sizes().len()),
        }
    }
}

/// Parses `fixed`, `power-of-two`, `tight`, `geometric`, `geometric:N`, `geometric:N:FROM`, `multiple:UNIT`,
/// `exact`, `exact:UNIT`, with sizes such as `32MiB`. [`FittedClasses::load`] reads fitted classes.
impl FromStr for SizeClasses {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::configuration("size_classes", text, reason);
        let size = |text: &str| match text.parse::<ByteSize>() {
            Ok(size) => Ok(size.as_u64()),
            Err(_) => Err(wrong("a size is a number with an optional unit, as in 32MiB")),
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
            ["fitted", ..] => {
                return Err(wrong("fitted classes are read from a file, by `FittedClasses::load`"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_vectors_of_netcl() {
        let table: [(u64, [u64; 4]); 9] = [
            (0, [1024, 1024, 1024, 1]),
            (1025, [4096, 4096, 4096, 2048]),
            (65537, [262_144, 262_144, 262_144, 131_072]),
            (1_048_577, [1_179_648, 4_194_304, 4_194_304, 2_097_152]),
            (2_097_153, [2_359_296, 4_194_304, 4_194_304, 4_194_304]),
            (40_000_000, [41_943_040, 67_108_864, 67_108_864, 67_108_864]),
            (102_760_448, [109_051_904, 268_435_456, 134_217_728, 134_217_728]),
            (268_435_457, [301_989_888, 536_870_912, 301_989_888, 536_870_912]),
            (1_073_741_825, [1_207_959_552, 2_147_483_648, 1_107_296_256, 2_147_483_648]),
        ];
        let modes = [
            SizeClasses::GEOMETRIC,
            SizeClasses::Fixed,
            SizeClasses::Multiple(32 * MIB),
            SizeClasses::PowerOfTwo,
        ];
        for (bytes, classes) in table {
            for (mode, class) in modes.iter().zip(classes) {
                assert_eq!(mode.round(bytes), Some(class), "{bytes} bytes, {mode}");
            }
        }
    }

    #[test]
    fn the_ten_fixed_buckets() {
        let mut buckets: Vec<u64> =
            (0..=28).filter_map(|shift| SizeClasses::Fixed.round(1 << shift)).collect();
        buckets.dedup();
        assert_eq!(buckets, (0..10).map(|n| KIB << (2 * n)).collect::<Vec<_>>());
    }

    #[test]
    fn a_class_borrows_in_the_geometric_range_only() {
        let lenders = |class| SizeClasses::GEOMETRIC.lenders(class).take(2).collect::<Vec<_>>();
        assert_eq!(lenders(8 * MIB), [9 * MIB, 10 * MIB]);
        assert_eq!(lenders(15 * MIB), [16 * MIB, 18 * MIB]);
        assert!(lenders(MIB).is_empty() && lenders(KIB).is_empty());
        assert!(SizeClasses::Fixed.lenders(4 * MIB).next().is_none());
        assert!(lenders(15 << 60).len() < 2, "the top of the range ends");
    }

    #[test]
    fn rules_without_classes_round_to_nothing() {
        for classes in [
            SizeClasses::Geometric { per_doubling: 0, from: 1 },
            SizeClasses::Multiple(0),
            SizeClasses::Exact(0),
        ] {
            assert_eq!(classes.round(100), None, "{classes}");
        }
    }

    #[test]
    fn rules_without_classes_are_refused() {
        for text in [
            "exact:0",
            "multiple:0",
            "geometric:0",
            "geometric:3",
            "geometric:8:4",
            "",
            "fixed:1",
            "exact:x",
            "fitted:64",
        ] {
            let error = text.parse::<SizeClasses>().expect_err(text);
            assert!(error.to_string().contains("size_classes"), "{error}");
        }
    }

    fn any_classes() -> impl Strategy<Value = SizeClasses> {
        prop_oneof![
            Just(SizeClasses::Fixed),
            Just(SizeClasses::PowerOfTwo),
            Just(SizeClasses::Tight),
            (0u32..6, 6u32..32)
                .prop_map(|(n, from)| SizeClasses::Geometric { per_doubling: 1 << n, from: 1 << from }),
            (1u64..1 << 34).prop_map(|from| SizeClasses::Geometric { per_doubling: 1, from }),
            (1u64..1 << 34).prop_map(SizeClasses::Multiple),
            (1u64..1 << 34).prop_map(SizeClasses::Exact),
            proptest::collection::vec(1u64..1 << 34, 0..20)
                .prop_map(|sizes| SizeClasses::Fitted(FittedClasses::new(sizes).expect("few sizes"))),
        ]
    }

    fn any_bytes() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift),
            Just(u64::MAX)
        ]
    }

    proptest! {
        #[test]
        fn a_class_holds_its_request_and_rounding_keeps_order(
            classes in any_classes(), one in any_bytes(), two in any_bytes(),
        ) {
            let (small, large) = (one.min(two), one.max(two));
            match (classes.round(small), classes.round(large)) {
                (Some(a), Some(b)) => prop_assert!(small <= a && large <= b && a <= b),
                (None, Some(_)) => prop_assert!(false, "{} has no class but {} has", small, large),
                _ => {}
            }
        }

        #[test]
        fn a_class_is_its_own_class(classes in any_classes(), bytes in any_bytes()) {
            if let Some(class) = classes.round(bytes) {
                prop_assert_eq!(classes.round(class), Some(class));
            }
        }

        #[test]
        fn the_padding_is_bounded(bytes in 1u64..1 << 50) {
            let ratio = |classes: SizeClasses| classes.round(bytes).map(|class| class as f64 / bytes as f64);
            if bytes > MIB {
                prop_assert!(ratio(SizeClasses::GEOMETRIC) <= Some(1.125));
            }
            if bytes > KIB {
                prop_assert!(ratio(SizeClasses::Fixed) < Some(4.0));
            }
            prop_assert!(ratio(SizeClasses::PowerOfTwo) < Some(2.0));
            if bytes > 8 * KIB {
                prop_assert!(ratio(SizeClasses::Tight) <= Some(1.125));
            }
            if bytes > MIB {
                prop_assert!(SizeClasses::Tight.round(bytes) < Some(bytes + 512));
            }
        }

        #[test]
        fn display_and_parse_agree(classes in any_classes()) {
            prop_assume!(!matches!(classes, SizeClasses::Fitted(_)), "which say only how many they are");
            prop_assert_eq!(classes.to_string().parse::<SizeClasses>().ok(), Some(classes));
        }
    }
}
