//! Identities of clients and arrays.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The group of clients without a group name.
pub const DEFAULT_GROUP: &str = "default";

/// Identifies a client for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClientId(pub(crate) u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.0)
    }
}

/// Identifies a requested array for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrayId(pub(crate) u64);

impl ArrayId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only distinctness matters.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
