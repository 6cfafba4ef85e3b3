//! A set of learned sizes.

use crate::error::{TraceFault, bounds};
use std::collections::BTreeSet;
use vrampool::{SizeClasses, SizeTable};

/// Sizes learned from a program's requests: a [`SizeTable`] that is read from a file or fitted to a
/// [`Demand`](super::Demand).
///
/// ```
/// use vrampool::SizeClasses;
/// use vrampool_trace::fitted::FittedClasses;
/// let classes = FittedClasses::new([300_032, 40_000_000])?;
/// assert_eq!(SizeClasses::from(classes).round(300_000), Some(300_032));
/// # Ok::<(), vrampool_trace::TraceFault>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FittedClasses(SizeTable);

impl FittedClasses {
    /// The largest number of sizes.
    pub const MAX_CLASSES: usize = bounds::MAX_CLASSES;

    /// The largest size of a file of classes in bytes, with room for comments.
    pub const MAX_FILE_BYTES: usize = bounds::MAX_CLASS_FILE_BYTES;

    /// The recommended number of classes to fit.
    pub const DEFAULT_CLASSES: usize = 64;

    /// Creates classes of these sizes, in any order. Without sizes every request gets its class by the
    /// table's general rule.
    ///
    /// # Errors
    /// [`TraceFault::Zero`] for a size of 0 bytes, [`TraceFault::TooManyClasses`] for more than
    /// [`MAX_CLASSES`](Self::MAX_CLASSES).
    pub fn new(sizes: impl IntoIterator<Item = u64>) -> Result<Self, TraceFault> {
        let mut set = BTreeSet::new();
        for size in sizes {
            if size == 0 {
                return Err(TraceFault::Zero);
            }
            set.insert(size);
            if set.len() > Self::MAX_CLASSES {
                return Err(TraceFault::TooManyClasses);
            }
        }
        Ok(Self::of_checked(set))
    }

    /// Creates classes of sizes that are not 0, and within the maximum.
    pub(super) fn of_checked(sizes: impl IntoIterator<Item = u64>) -> Self {
        Self(SizeTable::new(sizes))
    }

    /// Returns the sizes, smallest first.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        self.0.sizes()
    }
}

/// For [`PoolBuilder::size_classes`](vrampool::PoolBuilder::size_classes).
impl From<FittedClasses> for SizeClasses {
    fn from(classes: FittedClasses) -> Self {
        Self::Table(classes.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(matches!(FittedClasses::new([1, 0]), Err(TraceFault::Zero)));
        let most = FittedClasses::MAX_CLASSES as u64;
        assert!(FittedClasses::new((1..=most).chain(1..=most).chain(1..=most)).is_ok(), "each counts once");
        assert!(matches!(FittedClasses::new(1..=most + 1), Err(TraceFault::TooManyClasses)));
        assert!(matches!(FittedClasses::new(1..), Err(TraceFault::TooManyClasses)), "and that ends");
    }
}
