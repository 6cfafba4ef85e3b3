//! A request's position in the [queue](crate::heap::request_queue) of its pool.

use crate::heap::core::{Depot, DepotGuard, PoolCore, Recall};
use crate::heap::release::is_releasing;
use crate::heap::request_queue::{Awaited, Queue};
use crate::heap::share::{self, Share};
use crate::source::Key;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// The position of a request, which is queued once it waits. Dropping it, also by a panic, lets those behind it go
/// on. It must not be dropped under the lock.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    pool: &'a PoolCore,
    has_deadline: bool,
    /// [`Queue::LAST`] until it is queued.
    number: Cell<u64>,
    awaited: Cell<Awaited>,
    child: Option<ForChild<'a>>,
}

/// The child whose request it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForChild<'a> {
    pub(crate) share: &'a Arc<Share>,
    /// The class for which the child has room.
    pub(crate) class: u64,
    /// Whether the child has room for a block of a larger class.
    pub(crate) may_borrow: bool,
}

impl<'a> Position<'a> {
    pub(crate) fn new(pool: &'a PoolCore) -> Self {
        let (number, awaited) = (Cell::new(Queue::LAST), Cell::new(Awaited::Nothing));
        Self { pool, has_deadline: false, number, awaited, child: None }
    }

    pub(crate) fn for_child(pool: &'a PoolCore, child: ForChild<'a>) -> Self {
        let mut position = Self::new(pool);
        position.child = Some(child);
        position
    }

    /// The position of a request that waits until a deadline.
    pub(crate) fn with_deadline(pool: &'a PoolCore) -> Self {
        let mut position = Self::new(pool);
        position.has_deadline = true;
        position
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.has_deadline
    }

    /// The class of a child's request.
    pub(crate) fn class(&self) -> Option<u64> {
        self.child.map(|child| child.class)
    }

    /// The share of a child's request.
    #[inline]
    pub(crate) fn share(&self) -> Option<&'a Share> {
        self.child.map(|child| &**child.share)
    }

    /// Returns the part of `class` bytes that needs room within the limit.
    pub(crate) fn beyond(&self, class: u64) -> u64 {
        share::beyond(self.share(), class)
    }

    /// Returns the keys of the blocks that serve it, in order of preference.
    pub(crate) fn keys(&self, depot: &Depot, key: Key) -> SmallVec<[Key; 3]> {
        match self.child {
            Some(ForChild { may_borrow: false, .. }) => SmallVec::from_slice(&[key]),
            _ => depot.keys_for(key),
        }
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
            if self.has_deadline && depot.queue.deadlines() == 0 {
                // Each thread gives up its magazines at its next call.
                self.pool.recall(depot, Recall::Slots);
            }
            let share = self.child.map(|child| child.share);
            self.number.set(depot.queue.add(self.has_deadline, share));
        }
        self.awaited.set(awaited);
        depot.queue.set(self.number.get(), bytes, awaited);
    }

    /// Unlocks the depot until the request can go on, for at most `time` if it is set.
    pub(crate) fn sleep(&self, mut depot: DepotGuard, time: Option<Duration>) -> DepotGuard {
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

    /// Waits until earlier requests have finished that ask a device that refused memory.
    pub(crate) fn wait_for_device(&self) {
        self.ask_again();
        if !self.awaits(Awaited::Device) {
            return;
        }
        let mut depot = self.pool.depot();
        if !depot.queue.is_first_at_device(self.number.get()) {
            depot.counters.rungs.wait += 1;
        }
        while !depot.queue.is_first_at_device(self.number.get()) {
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

impl Drop for Position<'_> {
    fn drop(&mut self) {
        if self.number.get() != Queue::LAST {
            self.leave(&mut self.pool.depot());
            self.pool.notify_freed();
        }
    }
}
