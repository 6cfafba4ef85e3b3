//! A request's position in the [queue](crate::heap::request::queue) of its pool.

use crate::heap::core::{Depot, DepotGuard, PoolCore, Recall};
use crate::heap::request::queue::{Awaited, Queue};
use crate::heap::store::release::is_releasing;
use crate::sync::Instant;
use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Time that a driver call may take beyond the deadline of its request before the request ends without it. A request
/// whose time is shorter begins calls for as long.
pub(crate) const GRACE: Duration = Duration::from_millis(2);

/// The position of a request, which is queued once it waits. Dropping it, also by a panic, lets later requests go on.
/// It must not be dropped under the lock.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    pub(super) pool: &'a PoolCore,
    pub(super) has_deadline: bool,
    /// [`Queue::LAST`] until it is queued.
    number: Cell<u64>,
    awaited: Cell<Awaited>,
    /// The time after which the request begins no further call of the driver, and no wait. `None` if it has no
    /// deadline.
    pub(super) until: Option<Instant>,
    /// Its number, for the thread that it departed from. It changes under the lock.
    shown: Option<Number>,
}

/// The number of a position on another thread.
type Number = Arc<AtomicU64>;

/// A position on its way to another thread. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Departed {
    pool: Arc<PoolCore>,
    number: u64,
    shown: Number,
    awaited: Awaited,
    until: Option<Instant>,
}

impl<'a> Position<'a> {
    pub(crate) fn new(pool: &'a PoolCore) -> Self {
        let (number, awaited) = (Cell::new(Queue::LAST), Cell::new(Awaited::Nothing));
        Self { pool, has_deadline: false, number, awaited, until: None, shown: None }
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

    /// Moves the position to another thread. This one is not queued meanwhile. Also returns the number that it has
    /// there.
    pub(crate) fn depart(&self, pool: &Arc<PoolCore>) -> (Departed, Number) {
        let (number, awaited) = (self.number.replace(Queue::LAST), self.awaited.replace(Awaited::Nothing));
        let shown = Arc::new(AtomicU64::new(number));
        let departed = Departed {
            pool: Arc::clone(pool),
            number,
            shown: Arc::clone(&shown),
            awaited,
            until: self.until,
        };
        (departed, shown)
    }

    /// Leaves the queue for a position whose time is over and that stays on the other thread.
    pub(crate) fn abandon(&self, number: &Number) {
        let mut depot = self.pool.depot();
        self.number.set(number.load(Relaxed));
        self.leave(&mut depot);
        drop(depot);
        self.pool.notify_freed();
    }

    /// Takes its place again.
    pub(crate) fn resume(&self, mut departed: Departed) {
        self.awaited.set(departed.awaited);
        self.number.set(mem::replace(&mut departed.number, Queue::LAST));
    }

    /// Returns its number; [`Queue::LAST`] if it is not queued.
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    pub(crate) fn awaits(&self, awaited: Awaited) -> bool {
        self.awaited.get() == awaited
    }

    /// Sets what the request waits for, of `bytes`. Queues it behind all others if it is not queued.
    pub(crate) fn set(&self, depot: &mut Depot, bytes: u64, awaited: Awaited) {
        if self.number.get() == Queue::LAST {
            if self.is_over() {
                return;
            }
            if self.has_deadline && depot.queue.deadlines == 0 {
                // Each thread returns its magazines at its next call.
                self.pool.recall(depot, Recall::Slots);
            }
            self.number.set(depot.queue.add(self.has_deadline));
            self.shown.iter().for_each(|shown| shown.store(self.number.get(), Relaxed));
        }
        self.awaited.set(awaited);
        depot.queue.set(self.number.get(), bytes, awaited);
    }

    /// Unlocks the depot until the request can go on or its time is over, for at most `time` if it is set.
    pub(crate) fn sleep(&self, mut depot: DepotGuard, time: Option<Duration>) -> DepotGuard {
        let time = time.into_iter().chain(self.time_left()).min();
        if let Some(woken) = depot.queue.sleep(self.number.get()) {
            depot = self.pool.lock.lock.sleep(depot, &woken, time);
            depot.queue.wake(self.number.get());
        }
        depot
    }

    /// Begins to ask a device that refused memory, after earlier requests that do. Not in a destructor, which must
    /// not wait: the missing memory may be the memory being dropped.
    pub(crate) fn ask_again(&self) {
        if !is_releasing() && !self.awaits(Awaited::Device) {
            self.set(&mut self.pool.depot(), 0, Awaited::Device);
        }
    }

    /// Waits until earlier requests have finished that ask a device that refused memory, or its time is over.
    pub(crate) fn wait_for_device(&self) {
        self.ask_again();
        if !self.awaits(Awaited::Device) {
            return;
        }
        let mut depot = self.pool.depot();
        if !depot.queue.is_first_at_device(self.number.get()) {
            depot.counters.rungs.wait += 1;
        }
        while !depot.queue.is_first_at_device(self.number.get()) && !self.is_over() {
            depot = self.sleep(depot, None);
        }
    }

    /// Ends a wait under the lock. Returns whether others may go on because of that.
    pub(crate) fn end_wait(&self, depot: &mut Depot, bytes: u64) -> bool {
        let did_wait = self.awaited.replace(Awaited::Nothing) != Awaited::Nothing;
        if did_wait {
            depot.queue.set(self.number.get(), bytes, Awaited::Nothing);
        }
        did_wait
    }

    /// Ends an attempt: a request that is served leaves the queue, and so does one without a deadline. Others keep
    /// their position, and wait for `bytes`.
    pub(crate) fn end_attempt(&self, is_served: bool, bytes: u64) {
        if self.number.get() == Queue::LAST {
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
        if let Some(waited) = depot.queue.remove(self.number.replace(Queue::LAST)) {
            depot.counters.waits.add(waited);
        }
    }
}

impl Departed {
    /// The position on the other thread.
    pub(crate) fn arrive(mut self, pool: &PoolCore) -> Position<'_> {
        let mut position = Position::with_deadline(pool, self.until);
        position.shown = Some(Arc::clone(&self.shown));
        position.awaited.set(self.awaited);
        position.number.set(mem::replace(&mut self.number, Queue::LAST));
        position
    }
}

impl Drop for Departed {
    fn drop(&mut self) {
        let position = Position::new(&self.pool);
        position.number.set(self.number);
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        if self.number.get() != Queue::LAST {
            self.leave(&mut self.pool.depot());
            self.pool.notify_freed();
        }
    }
}
