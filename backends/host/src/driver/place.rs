//! Ranges of bytes, by what identifies them.

use std::ops::Range;

/// The base of the numbers of a [`Place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Addresses of this process.
    Addresses,
    /// Offsets in the file of these numbers, which has physical memory.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there is no physical memory"))]
    File { device: u64, inode: u64 },
}

/// A range of bytes, by what identifies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Place {
    pub(super) fn of_addresses(addresses: Range<u64>) -> Self {
        Self { space: Space::Addresses, start: addresses.start, end: addresses.end }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.space == other.space
            && self.start < self.end
            && other.start < other.end
            && self.start < other.end
            && other.start < self.end
    }
}
