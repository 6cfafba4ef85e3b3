//! loom's primitives, under the names of `src/sync`, which has them in place of the system's.

pub(crate) use loom::sync::MutexGuard;
use std::mem;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

/// Of the threads that wait.
#[derive(Debug)]
pub(crate) struct Condvar(parking_lot::Mutex<Vec<loom::thread::Thread>>);

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
        Self(parking_lot::Mutex::new(Vec::new()))
    }

    /// A model has no time to wait for, except for ever.
    pub(crate) fn wait<G>(&self, guard: G, lock: impl FnOnce() -> G, time: Option<Duration>) -> G {
        if time.is_some_and(|time| time != Duration::MAX) {
            return guard;
        }
        self.0.lock().push(loom::thread::current());
        drop(guard);
        // Returns at once if the notice came before.
        loom::thread::park();
        lock()
    }

    pub(crate) fn notify_all(&self) {
        mem::take(&mut *self.0.lock()).iter().for_each(loom::thread::Thread::unpark);
    }
}
