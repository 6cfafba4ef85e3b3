//! Idle memory, kept for reuse: buckets by size class under one lock, and each thread's magazines above them.
//!
//! * `size_class`: what a request rounds up to; `buckets` and `depot`: idle blocks, and the lock around them
//!   (`depot_lock`);
//! * `magazine`: what each thread keeps to itself; `magazine_exchange`: blocks and slots between a thread and
//!   the depot; `orphans`: what threads that ended left;
//! * `accounts` and `caps`: bytes, and what bounds them; `reservation`: bytes counted before the source
//!   delivers them; `retry_queue`: who asks a device that refused, in order;
//! * `release`: the free path; `reclaim` and `evict`: idle memory back to the source; `counts` and
//!   `stats`: what a pool tells;
//! * `hook_calls` and `recorded`: both paths with hooks or a recorder;
//! * `block`: one block's record; `recycle`: records kept for further blocks; `core`: what a pool's handles,
//!   buffers and blocks share.

pub(crate) mod accounts;
pub(crate) mod block;
pub(crate) mod buckets;
pub(crate) mod caps;
pub(crate) mod core;
pub(crate) mod counts;
pub(crate) mod depot;
pub(crate) mod depot_lock;
pub(crate) mod evict;
pub(crate) mod hook_calls;
pub(crate) mod magazine;
pub(crate) mod magazine_exchange;
pub(crate) mod oom_rung;
pub(crate) mod orphans;
pub(crate) mod reclaim;
pub(crate) mod recorded;
pub(crate) mod recycle;
pub(crate) mod release;
pub(crate) mod reservation;
pub(crate) mod retry_queue;
pub(crate) mod served_by;
pub(crate) mod size_class;
pub(crate) mod stats;
