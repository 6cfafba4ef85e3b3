//! Idle blocks, the lock around them, and where their memory comes from and goes to.
//!
//! * `buckets` and `depot`: idle blocks by class; `depot_lock`: the lock;
//! * `release`: the free path; `keep`: whether the caps let a block stay idle; `evict`: removes idle blocks from
//!   buckets; `reclaim`: returns them to the source;
//! * `supply`: the source of misses.

pub(crate) mod buckets;
pub(crate) mod depot;
pub(crate) mod depot_lock;
pub(crate) mod evict;
pub(crate) mod keep;
pub(crate) mod reclaim;
pub(crate) mod release;
pub(crate) mod supply;
