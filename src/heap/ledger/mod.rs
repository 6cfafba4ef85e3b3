//! Bytes and their limits: of one pool in `accounts`, whose settings are `caps`; of a pool and its children in `tree`,
//! which decides by numbers (`admission`) and has its pools under one lock (`pool_tree`).

pub(crate) mod accounts;
pub(crate) mod admission;
pub(crate) mod caps;
pub(crate) mod pool_tree;
pub(crate) mod tree;
