//! Locks, condition variables and atomics. A model checker (`--cfg model`) replaces them with its own.
//!
//! The lock of a depot or an arena is held for some tens of nanoseconds at a time, by every request that no
//! magazine serves. It is therefore unlocked with a plain store. A lock whose waiters sleep in the kernel
//! needs a second atomic read-modify-write to unlock. That operation waits until all stores under the lock
//! have reached the cache, which takes a third of such a request. A waiting thread first spins, then yields,
//! then sleeps for short intervals.

pub(crate) mod driver_threads;
#[cfg(model)]
#[path = "../../tests/model/primitives.rs"]
mod modelled;
pub(crate) mod thread_slot;

#[cfg(model)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};
#[cfg(all(test, feature = "host", not(model)))]
pub(crate) use real::ACQUISITIONS;
#[cfg(not(model))]
pub(crate) use real::Condvar;
#[cfg(not(model))]
pub use real::{Mutex, MutexGuard};

#[cfg(model)]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(not(model))]
pub(crate) use std::sync::atomic::AtomicU64;

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
use std::time as clock;
/// A browser's, where the standard library has none.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use web_time as clock;

pub(crate) use clock::Instant;

/// Returns the seconds since 1970; 0 before.
pub(crate) fn unix_seconds() -> u64 {
    clock::SystemTime::now().duration_since(clock::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Primitives of objects that outlive a pool, and so a model's run. Models do not follow them.
pub(crate) use {
    parking_lot::{Condvar as GlobalCondvar, Mutex as GlobalMutex},
    std::sync::atomic::AtomicU64 as GlobalU64,
};

#[cfg(not(model))]
mod real {
    use parking_lot::{Condvar as Sleepers, Mutex as Sleeping};
    use spin::mutex::SpinMutex;
    pub use spin::mutex::SpinMutexGuard as MutexGuard;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;
    use std::{hint, thread};

    /// Number of polls of a lock while spinning, with pauses that double up to `LONGEST_PAUSE`.
    const LOOKS: u32 = 20;
    const LONGEST_PAUSE: u32 = 64;
    /// Number of further polls with a yield in between, in case the holder waits for a core.
    const YIELDS: u32 = 1000;
    /// Sleep between later polls, so that the holder runs whatever the threads' priorities.
    const NAP: Duration = Duration::from_micros(50);

    #[cfg(test)]
    thread_local! {
        /// Number of times that this thread took any lock.
        pub(crate) static ACQUISITIONS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }

    /// A lock for critical sections of some tens of nanoseconds.
    #[derive(Debug)]
    pub struct Mutex<T>(SpinMutex<T>);

    impl<T> Mutex<T> {
        /// Creates an unlocked lock.
        pub const fn new(value: T) -> Self {
            Self(SpinMutex::new(value))
        }

        /// Locks, waiting as long as another thread holds the lock.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.try_lock().unwrap_or_else(|| self.wait())
        }

        #[inline]
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let guard = self.0.try_lock()?;
            #[cfg(test)]
            ACQUISITIONS.set(ACQUISITIONS.get() + 1);
            Some(guard)
        }

        /// Polls without locking, because an attempt to lock takes the cache line from the holder.
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

    /// A condition variable for a [`Mutex`]. The condition is changed under that lock, and notified after the
    /// change.
    #[derive(Debug)]
    pub(crate) struct Condvar {
        /// Number of waiting threads. It changes under the lock that they release, so later holders see it.
        waiting: AtomicU64,
        notices: Sleeping<u64>,
        sleepers: Sleepers,
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self { waiting: AtomicU64::new(0), notices: Sleeping::new(0), sleepers: Sleepers::new() }
        }

        /// Drops `guard`, waits for a notice, for at most `time` if it is set, and takes the lock again by `lock`.
        pub(crate) fn wait<G>(&self, guard: G, lock: impl FnOnce() -> G, time: Option<Duration>) -> G {
            self.waiting.fetch_add(1, Relaxed);
            // Locked before the mutex is unlocked, so any later notice changes the count.
            let mut notices = self.notices.lock();
            let known = *notices;
            drop(guard);
            let is_unchanged = |notices: &mut u64| *notices == known;
            match time {
                Some(time) => drop(self.sleepers.wait_while_for(&mut notices, is_unchanged, time)),
                None => self.sleepers.wait_while(&mut notices, is_unchanged),
            }
            drop(notices);
            let guard = lock();
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
