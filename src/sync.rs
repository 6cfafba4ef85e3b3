//! What threads meet at. A model checker (`--cfg model`) puts its own in the place of the system's.

#[cfg(not(model))]
use std::hint;

#[cfg(model)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};
#[cfg(not(model))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

/// For how many looks at a lock a thread stays awake, each after a pause twice as long as the last, up to a number of turns.
#[cfg(not(model))]
const LOOKS: u32 = 40;
#[cfg(not(model))]
const LONGEST_PAUSE: u32 = 64;

/// Locks what is held for some tens of nanoseconds at a time. To sleep and be woken takes a hundred times as long, so it is
/// waited for awake at first; and only looked at, because who tries to take it takes its line from who has it.
#[cfg(not(model))]
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if let Some(guard) = mutex.try_lock() {
        return guard;
    }
    let mut pause = 1;
    for _ in 0..LOOKS {
        for _ in 0..pause {
            hint::spin_loop();
        }
        if !mutex.is_locked()
            && let Some(guard) = mutex.try_lock()
        {
            return guard;
        }
        pause = LONGEST_PAUSE.min(2 * pause);
    }
    mutex.lock()
}

#[cfg(model)]
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(model)]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(not(model))]
pub(crate) use std::sync::atomic::AtomicU64;

/// What outlives a pool, and so a model's run: no model follows it.
pub(crate) use parking_lot::Mutex as GlobalMutex;
pub(crate) use std::sync::atomic::AtomicU64 as GlobalU64;

/// loom's primitives, as parking_lot calls them.
#[cfg(model)]
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
