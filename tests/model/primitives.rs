//! loom's primitives, under the names of `src/sync`, which has them in place of the system's.

pub(crate) use loom::sync::MutexGuard;

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

/// Of the number of notices.
#[derive(Debug)]
pub(crate) struct Condvar(Mutex<u64>, loom::sync::Condvar);

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
        Self(Mutex::new(0), loom::sync::Condvar::new())
    }

    /// A model has no time to wait for, except for ever.
    pub(crate) fn wait<G>(&self, guard: G, lock: impl FnOnce() -> G, time: Option<std::time::Duration>) -> G {
        if time.is_some_and(|time| time != std::time::Duration::MAX) {
            return guard;
        }
        let mut notices = self.0.lock();
        let known = *notices;
        drop(guard);
        while *notices == known {
            notices = self.1.wait(notices).expect("a model has no poisoned locks");
        }
        drop(notices);
        lock()
    }

    pub(crate) fn notify_all(&self) {
        *self.0.lock() += 1;
        self.1.notify_all();
    }
}
