//! Whose turn it is to call the driver.

use parking_lot::ReentrantMutex;
use std::sync::Arc;

/// Held during every call that does not wait for work, and from a kernel's first argument to its launch. By the
/// standard only the arguments of one kernel are not for two threads at once. But two threads that call NVIDIA's
/// driver (580) for one context at times crash it, lose an event for which one waits, or have it refuse memory
/// that there is. So a queue for whose work a call waits is flushed before, in its turn.
pub(super) type Calls = Arc<ReentrantMutex<()>>;
