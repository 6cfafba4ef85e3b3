//! Requests that the device refused, in the order in which they ask it again. Numbers only.

use std::collections::VecDeque;

/// Requests that found the device out of memory, or came to it while others had, and have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// By number, the first one first.
    open: VecDeque<u64>,
    begun: u64,
}

impl Turns {
    /// One more request, behind all others. Returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.open.push_back(self.begun);
        self.begun
    }

    /// Whether each request before that number has its answer.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        self.open.front().is_none_or(|first| *first >= number)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// That request has its answer. Returns whether others have none.
    pub(crate) fn end(&mut self, number: u64) -> bool {
        self.open.retain(|open| *open != number);
        !self.open.is_empty()
    }
}
