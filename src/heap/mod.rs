//! The state behind a pool: idle blocks, accounts and the arena under one lock, and each thread's magazines above it.
//!
//! * `size_class`: rounding of requests; `buckets` and `depot`: idle blocks and the lock around them
//!   (`depot_lock`);
//! * `magazine`: idle blocks of each thread; `magazine_exchange`: moves blocks and slots between a thread and
//!   the depot; `reclaim_thread`: frees blocks of ended threads;
//! * `accounts` and `caps`: bytes and their limits; `permit`: whether a miss may ask the source; `make_room`: releases
//!   and waits until it may; `reservation`: bytes counted before the source delivers them; `tree`, `admission`
//!   and `pool_tree`: limits and shares of pools and their children; `request_queue` and
//!   `queue_position`: requests that wait, in order of arrival;
//! * `release`: the free path; `keep`: whether the caps let a block stay idle; `evict`: removes idle blocks from
//!   buckets; `reclaim`: returns them to the source; `counts` and `counting`: counters; `stats`: the definitions of
//!   statistics; `read_stats`: reads them;
//! * `observed`: both paths with hooks;
//! * `block`: the record of one block, and the backend's part (`backend_part`); `recycled_records`: records
//!   kept for reuse;
//! * `pool_markers`: events on the streams that used idle blocks;
//! * `supply`: the source of misses; `pool_core`: the state of a new pool;
//! * `arena`: ranges of device memory, sub-allocated; `space`: their offsets, numbers only;
//! * `core`: the types of pools, depots, buckets and blocks, which refer to each other.

pub(crate) mod accounts;
pub(crate) mod admission;
pub mod arena;
mod backend_part;
pub(crate) mod block;
pub(crate) mod buckets;
pub(crate) mod caps;
pub(crate) mod core;
mod counting;
pub(crate) mod counts;
pub(crate) mod depot;
pub(crate) mod depot_lock;
pub(crate) mod driver_threads;
pub(crate) mod evict;
mod keep;
pub(crate) mod magazine;
pub(crate) mod magazine_exchange;
mod make_room;
mod observed;
pub(crate) mod permit;
mod pool_core;
pub(crate) mod pool_markers;
pub(crate) mod pool_tree;
pub(crate) mod queue_position;
mod read_stats;
pub(crate) mod reclaim;
pub(crate) mod reclaim_thread;
pub(crate) mod recycled_records;
pub(crate) mod release;
pub(crate) mod request_queue;
pub(crate) mod reservation;
pub(crate) mod size_class;
pub mod space;
pub(crate) mod stats;
pub(crate) mod supply;
pub(crate) mod tree;
