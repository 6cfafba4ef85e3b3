//! Markers of a pool's idle blocks: recorded when large blocks are freed and when idle blocks are asked for,
//! polled when no idle block is ready.

use crate::heap::arena::DeviceArena;
use crate::heap::store::Accept;
use crate::heap::{BackendState, Block, Depot, PoolCore, magazine};
use crate::source::Key;
use crate::streams::{Freed, FreedIn, Markers, Order, Streams, Ticks};
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::{Backend, StreamId, fork};

impl<B: Backend> Order<B> for PoolCore {
    fn device(&self) -> &B {
        &self.supply::<B>().device
    }

    fn with_markers<T>(&self, act: impl FnOnce(&mut Markers<B>, &mut Ticks) -> T) -> T {
        let supply = self.supply::<B>();
        // The ticks are those of the depot, and each clock has markers of its own.
        if let Some(arena) = supply.exclusive_arena() {
            return arena.with_markers(act);
        }
        let mut depot = self.depot();
        let BackendState::Order { ticks, markers } = &mut depot.backend_state else {
            unreachable!("a pool without an arena has an order of its own")
        };
        match markers.downcast_mut() {
            Some(markers) => act(markers, ticks),
            None => unreachable!("a pool has the markers of its own backend"),
        }
    }
}

/// Returns the markers and ticks of a locked depot.
pub(super) fn order_in<B: Backend>(backend_state: &BackendState) -> (&Markers<B>, &Ticks) {
    let order = match backend_state {
        BackendState::Order { ticks, markers } => markers.downcast_ref().map(|markers| (markers, ticks)),
        BackendState::Arena(_) => DeviceArena::order_in(backend_state),
    };
    match order {
        Some(order) => order,
        None => unreachable!("a pool serves requests with the order of its backend"),
    }
}

impl Depot {
    /// Whether a request that [accepts](Accept) no idle block may get new memory instead, after its streams were asked
    /// and are busy. The next frees record markers then. Memory beyond the caps would be released at its free, and
    /// allocated again each time.
    pub(crate) fn may_spare_wait(&mut self, key: Key, accept: Accept) -> bool {
        let Accept::Done { is_captured } = accept else { return false };
        self.backend_state.ticks_mut().want_markers();
        !is_captured
            && !self.buckets.of(&key).has_overflowed
            && !self.queue.awaits_device()
            && self.accounts.overlaps_with(key.class)
    }

    /// Whether the free of a block records markers. If not, its bytes count until its stream gets one.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_marker_due(&self, block: &Block) -> bool {
        let ticks = self.backend_state.ticks();
        block.pool.marks.store(ticks.are_markers_wanted(), Relaxed);
        let needed = self.accounts.now.out + self.accounts.in_flight();
        let users = block.user_ids(&self.backend_state);
        let user = if let [user] = *users { Some(user) } else { None };
        ticks.is_marker_due(user, FreedIn::Bucket, block.key.class, needed)
    }
}

/// Records markers on the streams that used a block, which is about to be idle. Returns the tick of its free, 0 if no
/// stream got a marker.
pub(crate) fn record_markers<B: Backend>(pool: &PoolCore, users: Streams<B::Stream>) -> u64 {
    let tick = Order::<B>::with_markers(pool, |_, ticks| {
        ticks.count_marker();
        ticks.begin()
    });
    let freed = Freed { users, tick, bytes: 0, freed_in: FreedIn::Bucket };
    if Order::<B>::freed(pool, &freed) { tick } else { 0 }
}

/// Updates the bytes in flight from the device.
pub(crate) fn poll_in_flight<B: Backend>(pool: &PoolCore) {
    // Without markers nothing is in flight.
    if !fork::is_forked() && pool.depot().accounts.in_flight() > 0 {
        Order::<B>::poll(pool);
    }
}

/// Polls markers if a poll is due, and asks the streams that used idle blocks for a request and have no marker whether
/// they are idle. Those that are busy get a marker.
pub(crate) fn ask_users<B: Backend>(pool: &PoolCore, key: Key, stream: StreamId) {
    let is_due = Order::<B>::with_markers(pool, |markers, _| markers.note_request());
    let (users, tick) = magazine::inspect(pool, |cache| {
        let mut depot = pool.depot();
        (depot.unmarked_users::<B>(key, cache, stream), depot.backend_state.ticks_mut().begin())
    });
    if is_due {
        Order::<B>::poll(pool);
    }
    if !users.is_empty() {
        Order::<B>::ask(pool, users, tick);
    }
}
