//! Callbacks for allocated and freed blocks, and for the progress of copies.

use crate::progress::SleepProgress;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// The block passed to a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepAllocation<'a> {
    /// Its tag.
    pub tag: &'a str,
    /// Requested bytes.
    pub bytes: u64,
    /// Its device address, the same asleep and awake; `None` if the device has no addresses.
    pub address: Option<u64>,
}

pub(super) type Callback = Box<dyn Fn(&SleepAllocation<'_>) + Send + Sync>;

/// Makes each of the calls, also after one that panics. Then the first panic goes on, unless this thread already
/// unwinds: a second panic would abort the process.
pub(super) fn call_all(callbacks: &[Callback], allocation: &SleepAllocation<'_>) {
    let mut first = None;
    for callback in callbacks {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(allocation))) {
            first.get_or_insert(panic);
        }
    }
    if let Some(panic) = first
        && !thread::panicking()
    {
        resume_unwind(panic);
    }
}

/// All registered callbacks.
#[derive(Default)]
pub(super) struct Callbacks {
    pub(super) on_malloc: Vec<Callback>,
    pub(super) on_free: Vec<Callback>,
    pub(super) on_progress: Vec<Box<dyn Fn(SleepProgress) + Send + Sync>>,
}

impl Callbacks {
    /// Calls each function for progress.
    pub(super) fn tell(&self, progress: SleepProgress) {
        self.on_progress.iter().for_each(|call| call(progress));
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { on_malloc, on_free, on_progress } = self;
        f.debug_struct("Callbacks")
            .field("on_malloc", &on_malloc.len())
            .field("on_free", &on_free.len())
            .field("on_progress", &on_progress.len())
            .finish()
    }
}
