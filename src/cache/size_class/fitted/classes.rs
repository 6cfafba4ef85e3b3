//! A set of learned sizes, and the lookup of a request's size. Numbers only.

use super::bounds;
use super::error::FittedFault;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The unit of small classes in bytes: the alignment of device allocators.
pub(crate) const UNIT: u64 = 512;

/// The highest ratio of a learned class to a request's class by the general rule.
const REACH: u64 = 4;

/// Eighths of powers of two below 2⁶⁴.
const EIGHTHS: usize = 488;

/// Sizes learned from what a program asks for, for [`SizeClasses::Fitted`](crate::SizeClasses::Fitted).
///
/// A request gets the smallest learned size that holds it, up to 4 times its class by the general rule.
/// Otherwise it gets its class by the general rule: the next multiple of 512 bytes up to 4 KiB, then the next
/// of 8 sizes per power of two. So learned sizes fit exactly. Other sizes are padded by at most an eighth
/// (from 4 KiB on), or share a learned class of at most 4.5 times their size.
///
/// Clones share one table, which is freed with the last of them. Two are equal if their sizes are.
///
/// ```
/// use vrampool::{SizeClasses, fitted::FittedClasses};
/// let classes = SizeClasses::Fitted(FittedClasses::new([300_032, 40_000_000])?);
/// assert_eq!(classes.round(300_000), Some(300_032)); // as it was learned
/// assert_eq!(classes.round(39_000_000), Some(40_000_000)); // shares that class
/// assert_eq!(classes.round(1_000_000), Some(1 << 20)); // 40 times that would be too much
/// # Ok::<(), vrampool::fitted::FittedFault>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FittedClasses(Arc<Table>);

#[derive(PartialEq, Eq, Hash)]
struct Table {
    /// Smallest first.
    sizes: Box<[u64]>,
    /// Number of sizes below each eighth of a power of two.
    below: [u16; EIGHTHS + 1],
}

impl FittedClasses {
    /// The largest number of sizes.
    pub const MAX_CLASSES: usize = bounds::MAX_CLASSES;

    /// The largest size of a file of classes in bytes, with room for comments.
    pub const MAX_FILE_BYTES: usize = bounds::MAX_FILE_BYTES;

    /// The recommended number of classes to fit.
    pub const DEFAULT_CLASSES: usize = 64;

    /// Creates classes of these sizes, in any order. Without sizes every request gets its class by the
    /// general rule.
    ///
    /// # Errors
    /// [`FittedFault::Zero`] for a size of 0 bytes, [`FittedFault::TooManyClasses`] for more than
    /// [`MAX_CLASSES`](Self::MAX_CLASSES).
    pub fn new(sizes: impl IntoIterator<Item = u64>) -> Result<Self, FittedFault> {
        let mut set = BTreeSet::new();
        for size in sizes {
            if size == 0 {
                return Err(FittedFault::Zero);
            }
            set.insert(size);
            if set.len() > Self::MAX_CLASSES {
                return Err(FittedFault::TooManyClasses);
            }
        }
        Ok(Self::of_sorted(set.into_iter().collect()))
    }

    /// Creates classes of sizes that are sorted, distinct, and within the maximum.
    pub(crate) fn of_sorted(sizes: Vec<u64>) -> Self {
        let mut below = [0; EIGHTHS + 1];
        for &size in &sizes {
            below[eighth(size) + 1..].iter_mut().for_each(|count| *count += 1);
        }
        Self(Arc::new(Table { sizes: sizes.into(), below }))
    }

    /// Returns the sizes, smallest first.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        &self.0.sizes
    }

    /// Returns the class of a request, bytes; `None` if it would be 2⁶⁴ or more.
    // Not inlined, so that it does not slow down pools with other rules.
    #[inline(never)]
    pub(crate) fn round(&self, bytes: u64) -> Option<u64> {
        let general = general(bytes);
        match (self.at_least(bytes), general) {
            (Some(size), Some(general)) if !reaches(size, general) => Some(general),
            (Some(size), _) => Some(size),
            (None, general) => general,
        }
    }

    /// Returns the smallest size of at least `bytes`, in constant time if no two sizes are close together.
    fn at_least(&self, bytes: u64) -> Option<u64> {
        let Table { sizes, below } = &*self.0;
        let eighth = eighth(bytes);
        let (from, to) = (usize::from(below[eighth]), usize::from(below[eighth + 1]));
        sizes.get(from + sizes[from..to].partition_point(|&size| size < bytes)).copied()
    }
}

/// Returns the class of a request without a learned size; `None` if it would be 2⁶⁴ or more.
pub(crate) fn general(bytes: u64) -> Option<u64> {
    let bytes = bytes.max(1);
    let unit = if bytes <= 8 * UNIT { UNIT } else { 1 << (bytes.ilog2() - 3) };
    bytes.checked_next_multiple_of(unit)
}

/// Whether a learned size may serve requests whose class by the general rule is `general`.
pub(crate) fn reaches(size: u64, general: u64) -> bool {
    size <= general.saturating_mul(REACH)
}

/// Returns the number of the eighth of a power of two. Sizes below 8 count as 8.
fn eighth(bytes: u64) -> usize {
    let bytes = bytes.max(8);
    let shift = bytes.ilog2() - 3;
    (bytes >> shift) as usize + 8 * shift as usize - 8
}

/// Omits the table's address and index, which are of no use to readers.
impl fmt::Debug for FittedClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FittedClasses").field(&self.sizes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    fn any_size() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift),
            1u64..100_000,
            Just(u64::MAX)
        ]
    }

    #[test]
    fn the_same_sizes_are_the_same_classes() {
        let one = FittedClasses::new([4096, 512, 4096]).expect("sizes");
        let two = FittedClasses::new([512, 4096]).expect("sizes");
        assert_eq!(one, two);
        assert_eq!(one.sizes(), [512, 4096]);
        assert_ne!(one, FittedClasses::new([512]).expect("a size"));
        assert_eq!(format!("{one:?}"), "FittedClasses([512, 4096])");
    }

    #[test]
    fn clones_share_a_table_that_is_freed_with_the_last() {
        let one = FittedClasses::new([512, 4096]).expect("sizes");
        let table = Arc::downgrade(&one.0);
        let two = one.clone();
        assert!(Arc::ptr_eq(&one.0, &two.0));
        drop(one);
        assert!(table.upgrade().is_some());
        drop(two);
        assert!(table.upgrade().is_none());
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(matches!(FittedClasses::new([1, 0]), Err(FittedFault::Zero)));
        let most = FittedClasses::MAX_CLASSES as u64;
        assert!(FittedClasses::new((1..=most).chain(1..=most).chain(1..=most)).is_ok(), "each counts once");
        assert!(matches!(FittedClasses::new(1..=most + 1), Err(FittedFault::TooManyClasses)));
        assert!(matches!(FittedClasses::new(1..), Err(FittedFault::TooManyClasses)), "and that ends");
    }

    #[test]
    fn the_general_rule() {
        for (bytes, class) in [(0, 512), (513, 1024), (4096, 4096), (4097, 4608), (40_000_000, 41_943_040)] {
            assert_eq!(general(bytes), Some(class));
        }
        assert_eq!((general(u64::MAX), general(15 << 60)), (None, Some(15 << 60)));
        assert_eq!((eighth(0), eighth(u64::MAX)), (0, EIGHTHS - 1));
    }

    proptest! {
        /// Checked against a linear search.
        #[test]
        fn a_request_gets_the_smallest_size_within_reach(
            sizes in btree_set(any_size().prop_map(|size| size.max(1)), 0..40), bytes in any_size(),
        ) {
            let classes = FittedClasses::new(sizes.iter().copied()).expect("sizes");
            let learned = sizes.into_iter().find(|&size| size >= bytes);
            let expected = match (learned, general(bytes)) {
                (Some(size), Some(general)) if u128::from(size) > 4 * u128::from(general) => Some(general),
                (None, general) => general,
                (size, _) => size,
            };
            prop_assert_eq!(classes.round(bytes), expected);
        }

        #[test]
        fn order_is_kept_a_class_is_its_own_and_padding_is_bounded(
            sizes in btree_set(any_size().prop_map(|size| size.max(1)), 0..40), one in any_size(), two in any_size(),
        ) {
            let classes = FittedClasses::new(sizes.iter().copied()).expect("sizes");
            let (small, large) = (one.min(two), one.max(two));
            for learned in &sizes {
                prop_assert_eq!(classes.round(*learned), Some(*learned));
            }
            if let Some(class) = classes.round(large) {
                prop_assert!(class >= large);
                prop_assert_eq!(classes.round(class), Some(class));
                prop_assert!(classes.round(small).is_some_and(|small| small <= class));
                // 4 times 9/8.
                prop_assert!(u128::from(class) * 2 <= 9 * u128::from(large.max(8 * UNIT)));
            }
        }
    }
}
