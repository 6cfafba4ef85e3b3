//! Callbacks for allocated and freed blocks.

use std::fmt;

/// The block passed to a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepAllocation<'a> {
    /// Its tag.
    pub tag: &'a str,
    /// Requested bytes.
    pub bytes: u64,
    /// Its device address, if the device has addresses. A block that is freed asleep may have none.
    pub address: Option<u64>,
}

pub(super) type Callback = Box<dyn Fn(&SleepAllocation<'_>) + Send + Sync>;

/// All registered callbacks.
#[derive(Default)]
pub(super) struct Callbacks {
    pub(super) on_malloc: Vec<Callback>,
    pub(super) on_free: Vec<Callback>,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { on_malloc, on_free } = self;
        f.debug_struct("Callbacks")
            .field("on_malloc", &on_malloc.len())
            .field("on_free", &on_free.len())
            .finish()
    }
}
