//! For vrampool's own crates: no release keeps any of it as it is.

/// For the C ABI, whose blocks are behind such a lock too.
pub use crate::sync::{Mutex as BriefLock, MutexGuard as BriefLockGuard};
