//! Order between streams, the streams that use a block, and operations that a capture forbids.
//!
//! * `ticks`: the order of frees and markers, and how far streams are known to have advanced; `happens_before`: which
//!   stream waited for which;
//! * `markers`: events that were recorded when memory was freed; `policy`: when they are due, and when new memory
//!   spares a wait;
//! * `order`: waits between streams; `uses`: the users of bytes; `last_use`: what a block knows of them without a lock.

pub(crate) mod happens_before;
pub(crate) mod last_use;
pub(crate) mod markers;
pub(crate) mod order;
pub(crate) mod policy;
#[cfg(all(test, feature = "host"))]
mod tests;
pub(crate) mod ticks;
pub(crate) mod uses;
