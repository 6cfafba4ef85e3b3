//! A request's position in the [queue](crate::heap::request::queue) of its pool.

use crate::heap::request::{Number, Position};
use crate::heap::store::is_releasing;
use crate::heap::{Awaited, Depot, DepotGuard, PoolCore, Queue, Recall};
use crate::sync::Instant;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

/// Time that a driver call may take beyond the deadline of its request before the request ends without it. A request
/// whose time is shorter begins calls for as long.
pub(crate) const GRACE: Duration = Duration::from_millis(2);

impl<'a> Position<'a> {
    pub(crate) fn new(pool: &'a PoolCore) -> Self {
        Self { pool, has_deadline: false, number: OnceCell::new(), until: None, is_of_other: false }
    }

    /// Creates the position of a request that waits until a deadline, or without bound for `None`.
    pub(crate) fn with_deadline(pool: &'a PoolCore, until: Option<Instant>) -> Self {
        let mut position = Self::new(pool);
        (position.has_deadline, position.until) = (true, until);
        position
    }

    /// Whether the request begins no further call of the driver, and no wait.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns the remaining time.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// The position of another thread's request with a deadline, which has this number.
    pub(crate) fn of_other(pool: &'a PoolCore, until: Instant, number: Number) -> Self {
        let mut position = Self::with_deadline(pool, Some(until));
        (position.number, position.is_of_other) = (OnceCell::from(number), true);
        position
    }

    /// The number, also for a thread that serves the request.
    pub(super) fn number_cell(&self) -> &Number {
        self.number.get_or_init(|| Arc::new(AtomicU64::new(Queue::LAST)))
    }

    /// Leaves the queue for a thread whose call of the driver outlasts the time of the request.
    pub(crate) fn abandon(&self) {
        self.leave(&mut self.pool.depot());
        self.pool.notify_freed();
    }

    /// Returns its number; [`Queue::LAST`] if it is not queued.
    pub(crate) fn number(&self) -> u64 {
        self.number.get().map_or(Queue::LAST, |number| number.load(Relaxed))
    }

    /// Sets what the request waits for, of `bytes`. Queues it behind all others if it is not queued.
    pub(crate) fn set(&self, depot: &mut Depot, bytes: u64, awaited: Awaited) {
        if self.number() == Queue::LAST {
            if self.is_over() {
                return;
            }
            if self.has_deadline && depot.queue.deadlines == 0 {
                // Each thread returns its magazines at its next call.
                self.pool.recall(depot, Recall::Slots);
            }
            self.number_cell().store(depot.queue.add(self.has_deadline), Relaxed);
        }
        depot.queue.set(self.number(), bytes, awaited);
    }

    /// Unlocks the depot until the request can go on or its time is over, for at most `time` if it is set.
    pub(crate) fn sleep(&self, depot: DepotGuard, time: Option<Duration>) -> DepotGuard {
        let time = time.into_iter().chain(self.time_left()).min();
        match depot.queue.waker(self.number()) {
            Some(waker) => self.pool.lock.sleep(depot, &waker, time),
            None => depot,
        }
    }

    /// Begins to ask a device that refused memory, after earlier requests that do. Not in a destructor, which must
    /// not wait: the missing memory may be the memory being dropped.
    pub(crate) fn ask_again(&self) {
        if !is_releasing() {
            self.set(&mut self.pool.depot(), 0, Awaited::Device);
        }
    }

    /// Waits until earlier requests have finished that ask a device that refused memory, or its time is over.
    pub(crate) fn wait_for_device(&self) {
        self.ask_again();
        let mut depot = self.pool.depot();
        if depot.queue.awaited(self.number()) != Awaited::Device {
            return;
        }
        if !depot.queue.is_first_at_device(self.number()) {
            depot.counters.rungs.wait += 1;
        }
        while !depot.queue.is_first_at_device(self.number()) && !self.is_over() {
            depot = self.sleep(depot, None);
        }
    }

    /// Ends a wait under the lock. Returns whether others may go on because of that.
    pub(crate) fn end_wait(&self, depot: &mut Depot, bytes: u64) -> bool {
        let did_wait = depot.queue.awaited(self.number()) != Awaited::Nothing;
        if did_wait {
            depot.queue.set(self.number(), bytes, Awaited::Nothing);
        }
        did_wait
    }

    /// Ends an attempt: a request that is served leaves the queue, and so does one without a deadline. Others keep
    /// their position, and wait for `bytes`.
    pub(crate) fn end_attempt(&self, is_served: bool, bytes: u64) {
        if self.number() == Queue::LAST {
            return;
        }
        let mut depot = self.pool.depot();
        if is_served || !self.has_deadline {
            self.leave(&mut depot);
        } else {
            self.end_wait(&mut depot, bytes);
        }
        drop(depot);
        self.pool.notify_freed();
    }

    /// Leaves the queue under the lock.
    pub(crate) fn leave(&self, depot: &mut Depot) {
        let Some(number) = self.number.get() else { return };
        if let Some(waited) = depot.queue.remove(number.swap(Queue::LAST, Relaxed)) {
            depot.counters.waits.add(waited);
        }
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        // After a panic hooks of the request run before that thread leaves the queue, and may use the pool.
        if (!self.is_of_other || thread::panicking()) && self.number() != Queue::LAST {
            self.abandon();
        }
    }
}
