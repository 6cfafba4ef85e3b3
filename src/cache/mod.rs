//! Idle memory, kept for reuse: buckets by size class under one lock, and each thread's magazines above them.
//!
//! * `size_class`: rounding of requests; `buckets` and `depot`: idle blocks and the lock around them
//!   (`depot_lock`);
//! * `magazine`: idle blocks of each thread; `magazine_exchange`: moves blocks and slots between a thread and
//!   the depot; `orphans`: blocks of ended threads;
//! * `accounts` and `caps`: bytes and their limits; `reservation`: bytes counted before the source delivers
//!   them; `retry_queue`: the order in which requests retry a device that refused them;
//! * `release`: the free path; `keep`: whether the caps let a block stay idle; `reclaim` and `evict`: return
//!   idle memory to the source; `counts`, `stats` and `read_stats`: statistics;
//! * `hook_calls`, `pool_recorder` and `recorded`: both paths with hooks or a recorder;
//! * `block`: the record of one block, and the backend's part (`block_body`); `recycled_records`: records
//!   kept for reuse;
//! * `core`: the types that pools, depots, buckets and blocks are, which refer to each other.

pub(crate) mod accounts;
pub(crate) mod block;
mod block_body;
pub(crate) mod buckets;
pub(crate) mod caps;
pub(crate) mod core;
pub(crate) mod counts;
pub(crate) mod depot;
pub(crate) mod depot_lock;
pub(crate) mod evict;
pub(crate) mod hook_calls;
mod keep;
pub(crate) mod magazine;
pub(crate) mod magazine_exchange;
pub(crate) mod oom_rung;
pub(crate) mod orphans;
pub(crate) mod pool_recorder;
mod read_stats;
pub(crate) mod reclaim;
pub(crate) mod recorded;
pub(crate) mod recycled_records;
pub(crate) mod release;
pub(crate) mod reservation;
pub(crate) mod retry_queue;
pub(crate) mod served_by;
pub(crate) mod size_class;
pub(crate) mod stats;
pub(crate) mod waiters;
