//! A table of sizes, and the lookup of a request's size. Numbers only.

use std::fmt;
use std::sync::Arc;

/// The unit of small classes in bytes: the alignment of device allocators.
const UNIT: u64 = 512;

/// Eighths of powers of two below 2⁶⁴.
const EIGHTHS: usize = 488;

/// A table of sizes, for [`SizeClasses::Table`](crate::SizeClasses::Table): those that a program requests
/// again and again.
///
/// A request gets the smallest size of the table that holds it, up to [`REACH`](Self::REACH) times its class
/// by the general rule. Otherwise it gets its class by the general rule: the next multiple of 512 bytes up to
/// 4 KiB, then the next of 8 sizes per power of two. So sizes of the table fit exactly. Other sizes are padded
/// by at most an eighth (from 4 KiB on), or share a size of the table of at most 4.5 times their size.
///
/// Clones share the sizes, which are freed with the last of them. Two tables are equal if their sizes are.
///
/// ```
/// use vrampool::{SizeClasses, SizeTable};
/// let classes = SizeClasses::Table(SizeTable::new([300_032, 40_000_000]));
/// assert_eq!(classes.round(300_000), Some(300_032)); // as in the table
/// assert_eq!(classes.round(39_000_000), Some(40_000_000)); // shares that class
/// assert_eq!(classes.round(1_000_000), Some(1 << 20)); // 40 times that would be too much
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SizeTable(Arc<Sizes>);

#[derive(PartialEq, Eq, Hash)]
struct Sizes {
    /// Smallest first.
    sizes: Box<[u64]>,
    /// Number of sizes below each eighth of a power of two.
    below: [usize; EIGHTHS + 1],
}

impl SizeTable {
    /// The highest ratio of a size of the table to the class that a request has by the general rule.
    pub const REACH: u64 = 4;

    /// Creates a table of these sizes in bytes, in any order, each once or several times. Without sizes every
    /// request gets its class by the general rule. A pool refuses a table with a size of 0 bytes.
    #[must_use]
    pub fn new(sizes: impl IntoIterator<Item = u64>) -> Self {
        let mut sizes: Vec<u64> = sizes.into_iter().collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut below = [0; EIGHTHS + 1];
        for &size in &sizes {
            below[eighth(size) + 1] += 1;
        }
        for place in 1..below.len() {
            below[place] += below[place - 1];
        }
        Self(Arc::new(Sizes { sizes: sizes.into(), below }))
    }

    /// Returns the sizes, smallest first.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        &self.0.sizes
    }

    /// Returns the class of a request, bytes; `None` if it would be 2⁶⁴ or more.
    // Not inlined, so that it does not slow down pools with other rules.
    #[inline(never)]
    pub(super) fn round(&self, bytes: u64) -> Option<u64> {
        let general = general(bytes);
        match (self.at_least(bytes.max(1)), general) {
            (Some(size), Some(general)) if size > general.saturating_mul(Self::REACH) => Some(general),
            (Some(size), _) => Some(size),
            (None, general) => general,
        }
    }

    /// Returns the smallest size of at least `bytes`, in constant time if no two sizes are close together.
    fn at_least(&self, bytes: u64) -> Option<u64> {
        let Sizes { sizes, below } = &*self.0;
        let eighth = eighth(bytes);
        let (from, to) = (below[eighth], below[eighth + 1]);
        sizes.get(from + sizes[from..to].partition_point(|&size| size < bytes)).copied()
    }
}

/// Returns the class of a request that no size of the table serves; `None` if it would be 2⁶⁴ or more.
fn general(bytes: u64) -> Option<u64> {
    let bytes = bytes.max(1);
    let unit = if bytes <= 8 * UNIT { UNIT } else { 1 << (bytes.ilog2() - 3) };
    bytes.checked_next_multiple_of(unit)
}

/// Returns the number of the eighth of a power of two. Sizes below 8 count as 8.
fn eighth(bytes: u64) -> usize {
    let bytes = bytes.max(8);
    let shift = bytes.ilog2() - 3;
    (bytes >> shift) as usize + 8 * shift as usize - 8
}

/// Omits the index, which is of no use to readers.
impl fmt::Debug for SizeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SizeTable").field(&self.sizes()).finish()
    }
}
