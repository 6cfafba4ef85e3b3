//! Functions of the user's that are called with blocks.

use std::fmt;

/// A block, as callbacks are told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepAllocation<'a> {
    /// What it was allocated under.
    pub tag: &'a str,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Where it is on the device, where the device has addresses; a block that is freed asleep may have none.
    pub address: Option<u64>,
}

pub(super) type Callback = Box<dyn Fn(&SleepAllocation<'_>) + Send + Sync>;

/// Who is told of blocks.
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
