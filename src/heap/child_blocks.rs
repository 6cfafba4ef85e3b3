//! Blocks that a child of a pool keeps for itself, until it is dropped or its limit requires their release.
//!
//! ```text
//! live + idle + reserved + in transit ≤ limit, unless the limit was lowered
//! ```

use crate::error::Error;
use crate::heap::core::{Block, ChildBlocks, ChildState, PoolCore};
use crate::heap::release::{is_releasing, release_each, without_waits};
use crate::heap::share::Share;
use crate::streams::order::Need;
use parking_lot::MutexGuard;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::{Backend, StreamId};

/// Memory of a child, rounded to classes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChildFigures {
    pub(crate) live_buffers: u64,
    pub(crate) live_bytes: u64,
    /// The part of `live_bytes` that callers requested.
    pub(crate) live_requested: u64,
    pub(crate) idle_buffers: u64,
    pub(crate) idle_bytes: u64,
    /// The bytes that count against the limit.
    pub(crate) charged: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) share: u64,
}

impl ChildFigures {
    /// Adds those of another child. The sum has a limit if both have.
    pub(crate) fn add(&mut self, more: &Self) {
        self.live_buffers += more.live_buffers;
        self.live_bytes += more.live_bytes;
        self.live_requested += more.live_requested;
        self.idle_buffers += more.idle_buffers;
        self.idle_bytes += more.idle_bytes;
        self.charged += more.charged;
        self.limit = self.limit.zip(more.limit).map(|(one, other)| one.saturating_add(other));
        self.share += more.share;
    }
}

/// The outcome of a search for memory within the limit of a child.
#[derive(Debug)]
#[must_use]
pub(crate) enum Room<'a> {
    /// A block became idle meanwhile.
    Idle(Box<Block>),
    Reserved(ChildReservation<'a>),
    /// The limit does not allow it.
    Full(ChildFigures),
}

/// The request for which idle memory of a child is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The child's: also within its share.
    Own,
    /// Another one of the pool's.
    Others,
    /// None: the pool is closed.
    Nobodys,
}

/// Bytes of a child that are reserved for a pending request. Dropping it uncommitted, also by a panic, cancels them.
#[derive(Debug)]
#[must_use]
pub(crate) struct ChildReservation<'a> {
    child: &'a ChildBlocks,
    reserved: u64,
    in_transit: u64,
    /// Whether a larger block may serve the request.
    pub(crate) may_borrow: bool,
}

impl ChildState {
    /// Takes the newest idle block that was allocated for a class, preferably one that needs no wait for `stream`, and
    /// counts it as live.
    fn take(&mut self, Need { requested, class }: Need, stream: StreamId) -> Option<Box<Block>> {
        let newest = |such: &dyn Fn(&Block) -> bool| {
            self.idle.iter().rposition(|block| block.requested == class && such(block))
        };
        let at = newest(&|block| block.is_ready_on(stream)).or_else(|| newest(&|_| true))?;
        let block = self.idle.remove(at);
        self.count(block.key.class, requested);
        Some(block)
    }

    fn count(&mut self, class: u64, requested: u64) {
        self.live_buffers += 1;
        self.live_bytes += class;
        self.live_requested += requested;
    }

    fn idle_bytes(&self) -> u64 {
        self.idle.iter().map(|block| block.key.class).sum()
    }

    /// Returns the bytes that count against the limit.
    fn charged(&self) -> u64 {
        self.live_bytes + self.idle_bytes() + self.reserved + self.in_transit
    }

    /// Returns the bytes by which `class` more exceed the limit.
    fn over(&self, class: u64) -> u64 {
        self.limit.map_or(0, |limit| self.charged().saturating_add(class).saturating_sub(limit))
    }

    /// Returns the idle bytes that may be released.
    fn evictable(&self) -> u64 {
        if self.may_have_graphs { 0 } else { self.idle_bytes() }
    }

    /// Reserves `class` bytes, and takes out the oldest idle blocks, of `over` bytes at least, to be released first.
    /// Returns these blocks, and the bytes by which they exceed `class`, which are in transit.
    fn reserve(&mut self, class: u64, over: u64) -> (Vec<Box<Block>>, u64) {
        let mut evicted = 0;
        let enough = self.idle.iter().take_while(|block| {
            let is_needed = evicted < over;
            evicted += if is_needed { block.key.class } else { 0 };
            is_needed
        });
        let enough = enough.count();
        let in_transit = evicted.saturating_sub(class);
        self.reserved += class;
        self.in_transit += in_transit;
        (self.idle.drain(..enough).collect(), in_transit)
    }

    fn figures(&self, share: &Share) -> ChildFigures {
        ChildFigures {
            live_buffers: self.live_buffers,
            live_bytes: self.live_bytes,
            live_requested: self.live_requested,
            idle_buffers: self.idle.len() as u64,
            idle_bytes: self.idle_bytes(),
            charged: self.charged(),
            limit: self.limit,
            share: share.bytes(),
        }
    }
}

impl ChildBlocks {
    /// Takes an idle block for a class. `may_be_captured`: whether `stream` is captured, or was not asked because that
    /// did [not matter](Self::asks_for_captures).
    pub(crate) fn take(&self, need: Need, stream: StreamId, may_be_captured: bool) -> Option<Box<Block>> {
        let state = &mut self.state.lock();
        let block = state.take(need, stream)?;
        state.may_have_graphs |= may_be_captured;
        Some(block)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ChildState> {
        self.state.lock()
    }

    /// Whether [`take`](Self::take) needs to know if the stream is captured.
    pub(crate) fn asks_for_captures(&self) -> bool {
        let state = self.state.lock();
        (state.limit.is_some() || self.share.bytes() > 0) && !state.may_have_graphs
    }

    /// Takes an idle block, or reserves bytes, within the limit. Idle blocks that do not serve the request are
    /// released, as the limit requires; `allow_release` is called before.
    pub(crate) fn make_room(
        &self,
        need: Need,
        stream: StreamId,
        allow_release: impl Fn() -> Result<(), Error>,
    ) -> Result<Room<'_>, Error> {
        let (mut state, mut is_allowed) = (self.state.lock(), false);
        let over = loop {
            if let Some(block) = state.take(need, stream) {
                return Ok(Room::Idle(block));
            }
            let (over, evictable) = (state.over(need.class), state.evictable());
            if over > evictable {
                // A destructor must not wait: the missing memory may be the memory being dropped.
                if over > evictable.saturating_add(state.in_transit) || is_releasing() {
                    return Ok(Room::Full(state.figures(&self.share)));
                }
                self.released.wait(&mut state);
            } else if over > 0 && !is_allowed {
                drop(state);
                allow_release()?;
                (state, is_allowed) = (self.state.lock(), true);
            } else {
                break over;
            }
        };
        Ok(Room::Reserved(self.reserve(state, need.class, over)))
    }

    /// Changes the limit, and releases the idle memory above it.
    ///
    /// # Errors
    /// The share, if it is larger.
    pub(crate) fn set_limit(&self, limit: Option<u64>) -> Result<(), u64> {
        let mut state = self.state.lock();
        let share = self.share.bytes();
        if limit.is_some_and(|limit| limit < share) {
            return Err(share);
        }
        state.limit = limit;
        let over = state.over(0).min(state.evictable());
        drop(self.reserve(state, 0, over));
        Ok(())
    }

    /// Returns the idle bytes that may be released for a request. Without a limit or a share all memory is kept, because
    /// the child may be for a graph that is captured later.
    pub(crate) fn evictable(&self, whose: Whose) -> u64 {
        let state = self.state.lock();
        let is_tenant = state.limit.is_some() || self.share.bytes() > 0;
        match whose {
            Whose::Nobodys => state.evictable(),
            Whose::Own if is_tenant => state.evictable(),
            Whose::Others if is_tenant => state.evictable().min(self.share.excess()),
            Whose::Own | Whose::Others => 0,
        }
    }

    /// Releases at least `bytes` of what [may be released](Self::evictable), oldest first, or all. Returns the bytes.
    pub(crate) fn evict(&self, bytes: u64, whose: Whose) -> u64 {
        let bytes = bytes.min(self.evictable(whose));
        let state = self.state.lock();
        let idle = state.idle_bytes();
        drop(self.reserve(state, 0, bytes));
        idle.saturating_sub(self.state.lock().idle_bytes())
    }

    /// Reserves `class` bytes, and releases at least `over` idle bytes.
    fn reserve(&self, mut state: MutexGuard<'_, ChildState>, class: u64, over: u64) -> ChildReservation<'_> {
        let (evicted, in_transit) = state.reserve(class, over);
        let may_borrow = state.limit.is_none();
        drop(state);
        let mut reservation = ChildReservation { child: self, reserved: class, in_transit, may_borrow };
        // Hooks of a free must not wait for the bytes in transit.
        release_each(evicted, |block| without_waits(|| PoolCore::release_of_child(block, &self.share)));
        reservation.released();
        reservation
    }

    /// Adds a freed block to the idle blocks of its child. Returns the block if its child was dropped, or it has none.
    pub(super) fn keep(mut block: Box<Block>) -> Option<Box<Block>> {
        let Some((home, class)) = block.home.take() else { return Some(block) };
        let requested = block.requested;
        block.leave_home(class);
        let mut state = home.state.lock();
        state.live_buffers -= 1;
        state.live_bytes -= block.key.class;
        state.live_requested -= requested;
        if state.is_dropped {
            return Some(block);
        }
        let class = block.key.class;
        if !home.is_awaited(&state, &block) {
            state.idle.push(block);
            return None;
        }
        state.in_transit += class;
        drop(state);
        let mut reservation =
            ChildReservation { child: &home, reserved: 0, in_transit: class, may_borrow: false };
        without_waits(|| PoolCore::release_of_child(block, &home.share));
        reservation.released();
        None
    }

    /// Whether requests of the pool wait for a block that may be released beyond the share.
    fn is_awaited(&self, state: &ChildState, block: &Block) -> bool {
        let lock = block.pool.lock.lock;
        !state.may_have_graphs
            && (state.limit.is_some() || self.share.bytes() > 0)
            && lock.asleep.load(Relaxed) > 0
            && self.share.excess() > 0
            && lock.lock().queue.deadlines() > 0
    }

    pub(crate) fn figures(&self) -> ChildFigures {
        self.state.lock().figures(&self.share)
    }

    /// Records that work on `stream` uses the idle blocks, and counts the `waits`. One block at a time is out of the
    /// list, because the device is called without the lock.
    pub(crate) fn use_on<B: Backend>(&self, stream: &B::Stream, waits: &mut u64) -> Result<(), Error> {
        let mut state = self.state.lock();
        // Only launches of graphs need it.
        state.may_have_graphs = true;
        let count = state.idle.len();
        drop(state);
        for _ in 0..count {
            let Some(used) = Used::next(self) else { break };
            *waits += used.block.as_ref().map_or(Ok(0), |block| block.use_on::<B>(stream))?;
        }
        Ok(())
    }

    /// Returns all blocks to the pool: idle ones now, others when they are dropped.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_dropped = true;
        let idle = mem::take(&mut state.idle);
        drop(state);
        release_each(idle, PoolCore::release);
    }
}

/// An idle block that is out of the list for a call of the device. It counts as reserved meanwhile.
struct Used<'a> {
    child: &'a ChildBlocks,
    block: Option<Box<Block>>,
}

impl<'a> Used<'a> {
    /// The oldest block, which becomes the newest.
    fn next(child: &'a ChildBlocks) -> Option<Self> {
        let mut state = child.state.lock();
        let block = (!state.idle.is_empty()).then(|| state.idle.remove(0))?;
        state.reserved += block.key.class;
        Some(Self { child, block: Some(block) })
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let mut state = self.child.state.lock();
        state.reserved -= block.key.class;
        if !state.is_dropped {
            return state.idle.push(block);
        }
        drop(state);
        PoolCore::release(block);
    }
}

impl ChildReservation<'_> {
    /// Counts a block of `class` bytes, which serves the request, as live.
    pub(crate) fn commit(mut self, class: u64, requested: u64) {
        let mut state = self.child.state.lock();
        state.count(class, requested);
        state.reserved -= mem::take(&mut self.reserved);
    }

    /// Counts the evicted memory as released.
    fn released(&mut self) {
        let in_transit = mem::take(&mut self.in_transit);
        if in_transit > 0 {
            self.child.state.lock().in_transit -= in_transit;
            self.child.released.notify_all();
        }
    }
}

impl Drop for ChildReservation<'_> {
    fn drop(&mut self) {
        self.released();
        self.child.state.lock().reserved -= self.reserved;
    }
}
