//! What threads meet at. A model checker (`--cfg model`) puts its own in the place of the system's.
//!
//! The lock of a depot, and of an arena, is held for some tens of nanoseconds at a time, by every request
//! that no magazine serves. So it is one that is let go with a plain store: a lock whose waiters sleep in the
//! kernel takes a second atomic read-modify-write for that, which waits until all that was written under the
//! lock has reached the cache, and is a third of such a request. Who finds it taken waits awake at first,
//! then lets others run, then sleeps for a moment at a time.

pub(crate) mod fork_arc;
#[cfg(all(test, model))]
pub(crate) mod model;

#[cfg(model)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};
#[cfg(not(model))]
pub(crate) use real::Condvar;
#[cfg(not(model))]
pub use real::{Mutex, MutexGuard};

#[cfg(model)]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(not(model))]
pub(crate) use std::sync::atomic::AtomicU64;

/// The system's clock, or a browser's: the standard library has none there.
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) use std::time::Instant;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use web_time::Instant;

/// What outlives a pool, and so a model's run: no model follows it.
pub(crate) use parking_lot::{Condvar as GlobalCondvar, Mutex as GlobalMutex};
pub(crate) use std::sync::atomic::AtomicU64 as GlobalU64;

#[cfg(not(model))]
mod real {
    use parking_lot::{Condvar as Sleepers, Mutex as Sleeping};
    use spin::mutex::{SpinMutex, SpinMutexGuard};
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;
    use std::{hint, thread};

    /// For how many looks at a lock a thread stays awake, each after a pause twice as long as the last, up to
    /// a number of turns.
    const LOOKS: u32 = 20;
    const LONGEST_PAUSE: u32 = 64;
    /// For how many further looks it lets others run in between: one that has the lock may wait for a core.
    const YIELDS: u32 = 1000;
    /// For how long it sleeps between looks from then on, so that one that has the lock gets to run whatever
    /// their priorities.
    const NAP: Duration = Duration::from_micros(50);

    /// A lock of what is held for some tens of nanoseconds at a time.
    #[derive(Debug)]
    pub struct Mutex<T>(SpinMutex<T>);

    /// Knows its lock, for who waits and lets it go meanwhile.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T> {
        guard: SpinMutexGuard<'a, T>,
        mutex: &'a Mutex<T>,
    }

    impl<T> Mutex<T> {
        /// One that nobody has.
        pub const fn new(value: T) -> Self {
            Self(SpinMutex::new(value))
        }

        /// Waits until nobody has it.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.try_lock().unwrap_or_else(|| self.wait())
        }

        #[inline]
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            Some(MutexGuard { guard: self.0.try_lock()?, mutex: self })
        }

        /// Only looks, because who tries to take a lock takes its line from who has it.
        #[cold]
        fn wait(&self) -> MutexGuard<'_, T> {
            let mut pause = 1;
            for look in 0.. {
                if look < LOOKS {
                    (0..pause).for_each(|_| hint::spin_loop());
                    pause = LONGEST_PAUSE.min(2 * pause);
                } else if look < LOOKS + YIELDS {
                    thread::yield_now();
                } else {
                    thread::sleep(NAP);
                }
                if !self.0.is_locked()
                    && let Some(guard) = self.try_lock()
                {
                    return guard;
                }
            }
            unreachable!("it looks again and again")
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        #[inline]
        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        #[inline]
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    /// What threads wait for that let a [`Mutex`] go meanwhile. Whoever changes what they look at does so
    /// under that lock, and notifies behind it.
    #[derive(Debug)]
    pub(crate) struct Condvar {
        /// Threads that wait. Changed under the lock that they let go, so whoever had it since sees them.
        waiting: AtomicU64,
        notices: Sleeping<u64>,
        sleepers: Sleepers,
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self { waiting: AtomicU64::new(0), notices: Sleeping::new(0), sleepers: Sleepers::new() }
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            let mutex = guard.mutex;
            self.waiting.fetch_add(1, Relaxed);
            // Taken before the lock is let go: a notice from then on is one more.
            let mut notices = self.notices.lock();
            let known = *notices;
            drop(guard);
            self.sleepers.wait_while(&mut notices, |notices| *notices == known);
            drop(notices);
            let guard = mutex.lock();
            self.waiting.fetch_sub(1, Relaxed);
            guard
        }

        /// As [`wait`](Self::wait), for at most so long.
        pub(crate) fn wait_at_most<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            time: Duration,
        ) -> MutexGuard<'a, T> {
            let mutex = guard.mutex;
            self.waiting.fetch_add(1, Relaxed);
            let mut notices = self.notices.lock();
            let known = *notices;
            drop(guard);
            self.sleepers.wait_while_for(&mut notices, |notices| *notices == known, time);
            drop(notices);
            let guard = mutex.lock();
            self.waiting.fetch_sub(1, Relaxed);
            guard
        }

        #[inline]
        pub(crate) fn notify_all(&self) {
            if self.waiting.load(Relaxed) > 0 {
                *self.notices.lock() += 1;
                self.sleepers.notify_all();
            }
        }
    }
}

/// loom's primitives, under the same names.
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

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
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

        pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            guard.0 = guard.0.take().and_then(|held| self.0.wait(held).ok());
            guard
        }

        /// A model has no time to wait for.
        pub(crate) fn wait_at_most<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            _time: std::time::Duration,
        ) -> MutexGuard<'a, T> {
            guard
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
