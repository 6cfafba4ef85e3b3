//! The progress of copies.

use crate::error::Error;
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
        let _reporting = Reporting(REPORTS.replace(true));
        (self.on_progress)(SleepProgress { copied_bytes: copied, total_bytes: self.total.max(copied) });
    }
}

thread_local! {
    static REPORTS: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread is in a callback for progress. Locks are held during the call, so that a sleep or a wake
/// within it fails with [`Error::Busy`].
#[must_use]
pub fn is_reporting() -> bool {
    REPORTS.get()
}

/// # Errors
/// [`Error::Busy`] in a callback for progress.
pub(super) fn check() -> Result<(), Error> {
    if is_reporting() { Err(Error::Busy) } else { Ok(()) }
}

/// A call of a callback, also when it panics; with the value before.
struct Reporting(bool);

impl Drop for Reporting {
    fn drop(&mut self) {
        REPORTS.set(self.0);
    }
}
