//! The order in which requests retry a device that refused them. Numbers only.

use std::collections::VecDeque;

/// Pending requests that found the device out of memory, or arrived while others were waiting for it.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Numbers in order of arrival.
    open: VecDeque<u64>,
    begun: u64,
}

impl Turns {
    /// Appends a request. Returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.open.push_back(self.begun);
        self.begun
    }

    /// Whether each earlier request has finished.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        self.open.front().is_none_or(|first| *first >= number)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Removes a finished request. Returns whether others are pending.
    pub(crate) fn end(&mut self, number: u64) -> bool {
        self.open.retain(|open| *open != number);
        !self.open.is_empty()
    }
}
