//! Bytes and their limits: of one pool in `accounts`, whose settings are `caps`; of a pool and its children in `tree`,
//! which decides by numbers (`admission`) and has the sums of all its pools under one lock (`pool_tree`).
//!
//! These are bytes of classes, which decide under the pool's lock what to evict before a request asks the source. A pool's
//! [supply](crate::heap::store::supply::Supply) also has a [`Ledger`](vrampool_backend::spi::Ledger), a tree of the same
//! limits and shares: it counts what the source takes from the device, such as whole pages of an arena.

pub(crate) mod accounts;
pub(crate) mod admission;
pub(crate) mod caps;
pub(crate) mod pool_tree;
pub(crate) mod tree;
