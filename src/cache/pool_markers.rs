//! Markers of a pool's idle blocks: recorded when large blocks are freed and when idle blocks are asked for,
//! polled when no idle block is ready.

use crate::arena::DeviceArena;
use crate::cache::block::Block;
use crate::cache::core::PoolCore;
use crate::cache::depot::Depot;
use crate::cache::magazine;
use crate::source::Key;
use crate::streams::markers::{Markers, UNMARKED};
use crate::streams::order::{Freed, Order};
use crate::streams::ticks::Ticks;
use crate::streams::uses::Streams;
use std::marker::PhantomData;
use std::sync::Arc;
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
        depot.ticks.count_marker();
        let bytes = match &*users {
            [user] => depot.ticks.take_unmarked(user.id()),
            _ => 0,
        };
        let tick = depot.ticks.begin();
        let are_wanted = depot.ticks.are_markers_wanted();
        if !are_wanted {
            depot.ticks.forget_unmarked();
        }
        self.marks.store(are_wanted, Relaxed);
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

    /// Asks the device how far the streams are that used idle blocks of a class: polls their markers, and asks
    /// streams without one whether they are idle. Records a marker on each of the latter that is not.
    pub(crate) fn ask_users<B: Backend>(self: &Arc<Self>, key: Key, stream: StreamId) {
        let order = self.order::<B>();
        let is_due = order.with_markers(|markers, _| {
            markers.pass();
            markers.is_due()
        });
        if is_due {
            order.poll();
        }
        let unmarked = |depot: &mut Depot, cache: Option<&_>| {
            let markers = self.supply::<B>().markers.lock();
            let done = depot.ticks.reach(stream);
            let mut users = Streams::new();
            for key in depot.keys_for(key) {
                let is_unmarked = |user: StreamId, tick| {
                    user != stream && !done.covers(user, tick) && markers.covering(user, tick).is_none()
                };
                depot.add_unmarked_users::<B>(key, cache, is_unmarked, &mut users);
            }
            users
        };
        let (users, tick) = magazine::inspect(self, |cache| {
            let mut depot = self.depot();
            self.marks.store(depot.ticks.are_markers_wanted(), Relaxed);
            let users = unmarked(&mut depot, cache);
            (users, depot.ticks.begin())
        });
        order.ask(Freed { users, tick, bytes: 0 });
    }
}
