//! The progress of copies.

use std::cell::Cell;

/// The progress of the copies of a sleep or a wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepProgress {
    /// Bytes that are copied.
    pub copied_bytes: u64,
    /// Bytes that will be copied in all. Fewer are copied if blocks are freed meanwhile.
    pub total_bytes: u64,
}

impl SleepProgress {
    /// Returns this progress as a part of a longer one: after `before` bytes, of `total` in all.
    #[must_use]
    pub fn within(self, before: u64, total: u64) -> Self {
        Self { copied_bytes: before + self.copied_bytes, total_bytes: total.max(before + self.total_bytes) }
    }
}

/// A function that is called after each piece, on the thread of the sleep or the wake.
pub(super) type OnProgress<'a> = &'a dyn Fn(SleepProgress);

/// Adds up the pieces of all arenas of a call.
pub(super) struct Progress<'a> {
    copied: Cell<u64>,
    total: u64,
    on_progress: OnProgress<'a>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(total: u64, on_progress: OnProgress<'a>) -> Self {
        Self { copied: Cell::new(0), total, on_progress }
    }

    /// Counts a piece.
    pub(super) fn add(&self, bytes: u64) {
        let copied = self.copied.get() + bytes;
        self.copied.set(copied);
        (self.on_progress)(SleepProgress { copied_bytes: copied, total_bytes: self.total.max(copied) });
    }
}
