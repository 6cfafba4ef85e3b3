//! The state behind a pool: idle blocks, accounts and the arena under one lock, and each thread's magazines above it.
//!
//! * `request`: the way of a request past the magazines, and the queue of those that wait;
//! * `size_class`: rounding of requests; `magazine`: idle blocks of each thread; `store`: those of a pool, under its
//!   lock, frees, and the source of misses; `block`: the record of one block;
//! * `ledger`: bytes, limits and shares of pools and their children; `stats`: statistics;
//! * `pool_order`: the order of a pool's streams, by events on those that used idle blocks;
//! * `arena`: ranges of device memory, sub-allocated; `space`: their offsets, numbers only;
//! * `core`: the types of pools, depots, buckets and blocks, which refer to each other; `pool_core`: a new pool, its lock
//!   and its classes.

pub mod arena;
pub(crate) mod block;
pub(crate) mod core;
pub(crate) mod ledger;
pub(crate) mod magazine;
mod pool_core;
pub(crate) mod pool_order;
pub(crate) mod request;
pub(crate) mod size_class;
pub mod space;
pub(crate) mod stats;
pub(crate) mod store;
