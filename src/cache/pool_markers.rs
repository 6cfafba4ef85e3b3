//! Markers of a pool's idle blocks: recorded when large blocks are freed and when idle blocks are asked for,
//! polled when no idle block is ready.

use crate::arena::DeviceArena;
use crate::cache::block::Block;
use crate::cache::core::PoolCore;
use crate::cache::depot::{Accept, Depot, Taken};
use crate::cache::magazine;
use crate::cache::magazine::thread_cache::ThreadCache;
use crate::source::Key;
use crate::streams::markers::{Markers, UNMARKED};
use crate::streams::order::{Freed, Order};
use crate::streams::ticks::Ticks;
use crate::streams::uses::Streams;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::{Backend, Stream, StreamId, fork};

/// The order of a pool.
struct OfPool<'a, B>(&'a PoolCore, PhantomData<B>);

impl<B: Backend> Order<B> for OfPool<'_, B> {
    fn device(&self) -> &B {
        &self.0.supply::<B>().device
    }

    fn with_markers<T>(&self, act: impl FnOnce(&mut Markers<B>, &mut Ticks) -> T) -> T {
        let depot = &mut *self.0.depot();
        let acted = act(&mut self.0.supply::<B>().markers.lock(), &mut depot.ticks);
        depot.accounts.in_flight = depot.ticks.in_flight();
        acted
    }
}

impl Depot {
    /// Returns whether the free of a block records markers. If not, counts its bytes until its stream gets one.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_or_mark(&mut self, block: &Block) -> bool {
        let Some(user) = block.sole_user() else { return true };
        let unmarked = self.ticks.unmarked(user) + block.key.class;
        let is_due = unmarked > (self.accounts.now.out + self.accounts.in_flight) / UNMARKED;
        if !is_due {
            self.ticks.freed_unmarked(user, block.key.class);
        }
        is_due
    }
}

impl PoolCore {
    /// Records markers on the streams that used a block, which is about to be idle. Returns the tick of its
    /// free, 0 if no stream got a marker.
    pub(crate) fn record_markers<B: Backend>(&self, users: Streams<B::Stream>) -> u64 {
        let mut depot = self.depot();
        let bytes = match &*users {
            [user] => depot.ticks.take_unmarked(user.id()),
            _ => 0,
        };
        let tick = depot.ticks.begin();
        depot.ticks.count_marker();
        self.marks.store(depot.ticks.are_markers_wanted(), Relaxed);
        drop(depot);
        let is_marked = self.order::<B>().freed(&Freed { users, tick, bytes });
        if is_marked { tick } else { 0 }
    }

    pub(super) fn order<B: Backend>(&self) -> impl Order<B> {
        OfPool(self, PhantomData)
    }

    /// Updates the bytes in flight, here and in the arena, from the device.
    pub(crate) fn poll_in_flight<B: Backend>(&self) {
        if fork::is_child() {
            return;
        }
        // Without markers nothing is in flight.
        if self.depot().accounts.in_flight > 0 {
            self.order::<B>().poll();
        }
        self.supply::<B>().arena().map(DeviceArena::in_flight);
    }

    /// Makes the next frees record markers, because a request found only memory of busy streams.
    pub(crate) fn want_markers(&self) {
        self.depot().ticks.want_markers();
        self.marks.store(true, Relaxed);
    }

    /// Takes an idle block whose work is complete or, unless `is_captured`, before the request's stream. Before that,
    /// polls markers if a poll is due, and asks streams of which nothing is known whether they are idle. Each of the
    /// latter that is not gets a marker.
    pub(crate) fn take_done<B: Backend>(
        &self,
        key: Key,
        requested: u64,
        stream: StreamId,
        is_captured: bool,
    ) -> Taken {
        // Dropped after the lock is released: one of these may be the last handle.
        let idle;
        let mut depot = self.depot();
        let keys = depot.keys_for(key);
        let (users, is_due) = self.inspect(key, |cache| {
            let markers = &mut *self.supply::<B>().markers.lock();
            let users = depot.unmarked_users(&keys, cache, markers, stream);
            (users, markers.note_request())
        });
        if is_due || !users.is_empty() {
            let tick = depot.ticks.begin();
            drop(depot);
            let order = self.order::<B>();
            if is_due {
                order.poll();
            }
            idle = order.ask(Freed { users, tick, bytes: 0 });
            depot = self.depot();
            idle.iter().for_each(|user| depot.ticks.done(user.id(), tick));
            depot.accounts.in_flight = depot.ticks.in_flight();
            self.marks.store(depot.ticks.are_markers_wanted(), Relaxed);
        }
        let accept = Accept::Done { is_captured };
        self.inspect(key, |cache| depot.take(&keys, requested, stream, cache, accept))
    }

    /// Calls `act` with this thread's cache, if it takes blocks of a class.
    fn inspect<T>(&self, key: Key, act: impl FnOnce(Option<&ThreadCache>) -> T) -> T {
        if self.has_magazine_for(key) { magazine::inspect(self, act) } else { act(None) }
    }
}
