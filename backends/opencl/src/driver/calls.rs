//! Serializes calls of the driver.

use parking_lot::ReentrantMutex;
use std::sync::Arc;

/// Held during every call that does not wait for work, and from a kernel's first argument to its launch. By the
/// standard only the arguments of one kernel must not be set by two threads at once. But two threads that call
/// NVIDIA's driver (580) for one context at times crash it, lose an event that is awaited, or get an error for
/// memory that is available. So a call that waits for a queue's work flushes the queue first, under the lock.
pub(super) type Calls = Arc<ReentrantMutex<()>>;
