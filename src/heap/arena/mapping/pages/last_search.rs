//! The last search among the stitched ranges.

use super::cover::Holes;
use crate::heap::space::Moment;

/// The last search for a range, and its result. The next search is mostly for as many bytes with the same
/// free memory, or for more bytes with less of it.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The time of the search; `None` if ranges or pieces have changed.
    pub(super) moment: Option<Moment>,
    /// Free memory, if the search needed it.
    pub(super) holes: Holes,
    pub(super) bytes: u64,
    /// The number of ranges searched, and the oldest result: the range, and its first piece used.
    pub(super) ranges: usize,
    pub(super) oldest: Option<(usize, usize)>,
    /// Whether a range had the bytes free, but the request would use too little of it.
    pub(super) is_spared: bool,
}

impl Search {
    /// Invalidates the result, because ranges or pieces change.
    pub(super) fn forget(&mut self) {
        self.moment = None;
    }

    /// Whether a search of the oldest `ranges` ranges for `bytes` would have the same result.
    pub(super) fn answers(&self, now: Moment, bytes: u64, ranges: usize) -> bool {
        let Some(then) = self.moment else { return false };
        let is_same = then == now && bytes == self.bytes && ranges == self.ranges;
        // Too few bytes were free for a smaller request, and no memory became free.
        let is_less =
            self.oldest.is_none() && !self.is_spared && bytes >= self.bytes && ranges <= self.ranges;
        is_same || is_less && then.is_as_free(now)
    }
}
