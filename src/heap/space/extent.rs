//! Parts of a range.

use std::ops::Range;

/// A number of bytes at an offset of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Extent {
    #[inline]
    pub(crate) fn end(self) -> u64 {
        self.start + self.bytes
    }

    pub(crate) fn first(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    pub(crate) fn last(self, bytes: u64) -> Self {
        Self { start: self.end() - bytes, bytes }
    }

    /// Bytes that it shares with the front of `other`, which does not start before it.
    #[inline]
    pub(crate) fn reach_in(self, other: Self) -> u64 {
        self.end().min(other.end()).saturating_sub(other.start)
    }

    #[inline]
    pub(crate) fn range(self) -> Range<u64> {
        self.start..self.end()
    }
}

/// Joins adjacent extents.
pub(crate) fn runs(extents: &[Extent]) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    for &extent in extents {
        match runs.last_mut() {
            Some(last) if last.end() == extent.start => last.bytes += extent.bytes,
            _ => runs.push(extent),
        }
    }
    runs
}
