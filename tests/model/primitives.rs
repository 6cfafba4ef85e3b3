//! loom's primitives, under the names of `src/sync`, which has them in place of the system's.

use std::ops::{Deref, DerefMut};

#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

/// Always full, except during a wait.
pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

#[derive(Debug)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().ok())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("a model has no poisoned locks"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("a model has no poisoned locks"),
        }
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    /// A model has no time to wait for, except for ever.
    pub(crate) fn wait<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Option<std::time::Duration>,
    ) -> MutexGuard<'a, T> {
        if time.is_none_or(|time| time == std::time::Duration::MAX) {
            guard.0 = guard.0.take().and_then(|held| self.0.wait(held).ok());
        }
        guard
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
