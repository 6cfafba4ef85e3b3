//! What threads meet at. A model checker (`--cfg loom`) puts its own in the place of the system's.

#[cfg(loom)]
pub(crate) use modelled::{Condvar, Mutex};
#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicU64;

/// What outlives a pool, and so a model's run: no model follows it.
pub(crate) use parking_lot::Mutex as GlobalMutex;
pub(crate) use std::sync::atomic::AtomicU64 as GlobalU64;

/// loom's primitives, as parking_lot calls them.
#[cfg(loom)]
mod modelled {
    use std::ops::{Deref, DerefMut};

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Always full, but for the moment of a wait.
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

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.0 = guard.0.take().and_then(|held| self.0.wait(held).ok());
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
