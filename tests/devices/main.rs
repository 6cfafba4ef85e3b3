//! The pool's promises on every device that is there, whichever backend opens it. What a device cannot do is
//! skipped by its capabilities, and said; nothing here asks which backend it is.
#![cfg(feature = "host")]

mod there;

mod backends;
mod bounds;
mod compaction;
mod hostile;
mod kept_queue;
mod order;
mod out_of_memory;
mod storm;
mod touch;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The bound of a driver's memory beyond a pool's: dropped memory, as documented, and memory for staging and
/// kernels.
const DROPPED: u64 = 32 * MIB;
const STAGING: u64 = 8 * MIB;
