//! Order between streams, the streams that use a block, and operations that a capture forbids.
//!
//! * `ticks`: the order of frees and markers, and how far streams are known to have advanced; `happens_before`: which
//!   stream waited for which;
//! * `markers`: events that were recorded when memory was freed; `policy`: when they are due, and when new memory
//!   spares a wait;
//! * `order`: waits between streams; `uses`: the users of bytes; `last_use`: what a block knows of them without a lock.

mod happens_before;
mod last_use;
mod markers;
mod order;
mod policy;
#[cfg(all(test, feature = "host"))]
mod tests;
mod ticks;
mod uses;

pub(crate) use {
    happens_before::StreamOrder,
    last_use::LastUse,
    markers::Markers,
    order::{Freed, Need, Order, WaitFor, check_device},
    policy::Overlap,
    ticks::{FreedIn, Ticks},
    uses::{Access, AwaitedUsers, Streams, Uses, add, await_also},
};
