//! loom's primitives, under the names of `src/sync`, which has them in place of the system's.

pub(crate) use loom::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

/// Of one request at a time.
#[derive(Debug)]
pub(crate) struct Condvar {
    /// Number of waiting threads. It changes under the lock that they release.
    waiting: AtomicU64,
    notice: loom::sync::Notify,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a model has no poisoned locks")
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self { waiting: AtomicU64::new(0), notice: loom::sync::Notify::new() }
    }

    /// A model has no time to wait for, except for ever.
    pub(crate) fn wait<G>(&self, guard: G, lock: impl FnOnce() -> G, time: Option<Duration>) -> G {
        if time.is_some_and(|time| time != Duration::MAX) {
            return guard;
        }
        self.waiting.fetch_add(1, Relaxed);
        drop(guard);
        // A notice that comes before is kept.
        self.notice.wait();
        let guard = lock();
        self.waiting.fetch_sub(1, Relaxed);
        guard
    }

    pub(crate) fn notify_all(&self) {
        if self.waiting.load(Relaxed) > 0 {
            self.notice.notify();
        }
    }
}
