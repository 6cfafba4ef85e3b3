//! A thread's own idle blocks: hits without a lock, a shared line, or a reference count.
//!
//! ```text
//!  thread-local        rack of pool 0                      depot of pool 0 (one lock)
//!  ┌──────────┐        ┌──────────────────────┐            ┌────────────────────────┐
//!  │ slot 0 ──┼───────▶│ list of 4 KiB  ▣▣▢   │  refill ◀──│ bucket of 4 KiB  ▣▣▣▣  │
//!  │ slot 1   │        │ list of 64 KiB ▣▢    │──▶ spill   │   slots leased: 3      │
//!  │ …        │        │ …                    │            │ bucket of 64 KiB …     │
//!  └──────────┘        └──────────────────────┘            └────────────────────────┘
//!                       ▣ idle block   ▢ slot that a block may come back to
//! ```
//!
//! A *rack* is one thread's magazines for one pool, with a *list* for each class, a linked list through the
//! blocks' records. A list holds at most as many blocks as it has *slots*, and slots are leased from the
//! depot, where they count against the caps as idle blocks do, filled or not: so the caps hold at every
//! instant, and a hit need not look at them.
//!
//! The block that came back [last](crate::cache::magazine::hot), of whichever pool, is not in its list but at
//! hand: mostly it is what is wanted next.
//!
//! A rack is valid for one *epoch* of its pool. A trim, a close, or a lack of slots for a thread that has
//! none starts a new epoch, and each thread returns its blocks at its next request of a small class or free.
//! A request that finds no memory waits a moment for that. What a thread keeps that makes no call meanwhile
//! is out of reach: to take it, each hit would have to be a lock's or an atomic operation's. It is an eighth
//! of the limit at most in all threads, and less where that is near.
//! A thread that makes no more calls keeps at most [`Builder::magazine_bytes`](crate::Builder) until it
//! ends; of a closed pool, until its next visit to any pool's depot for such a class or with a free. A
//! thread frees nothing when it ends: its blocks move to the depot, and
//! [another thread](crate::cache::orphans) frees those of closed pools.

pub(crate) mod class_table;
pub(crate) mod counters;
pub(crate) mod hot;
pub(crate) mod rack;

use crate::cache::block::Block;
use crate::cache::core::{CLOSED, PoolCore};
use crate::cache::depot::Depot;
use crate::cache::magazine::class_table::NO_LIST;
use crate::cache::magazine::rack::{NEVER, Rack};
use crate::cache::recorded::Records;
use std::cell::{Cell, OnceCell};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use vrampool_backend::{StreamId, fork};

/// Pools that can have magazines at a time, and one number for pools that have none. So many that a `u8`
/// needs no check.
#[cfg(not(model))]
pub(crate) const SLOTS: usize = 256;
#[cfg(model)]
pub(crate) const SLOTS: usize = 4;

/// The number of pools without magazines: no thread has a rack there.
pub(crate) const NO_SLOT: u8 = (SLOTS - 1) as u8;

/// What a thread keeps.
struct Local {
    racks: [OnceCell<Box<Rack>>; SLOTS],
    /// How many pools had been closed when it last looked for racks of closed ones.
    closed: Cell<u64>,
}

#[cfg(not(model))]
thread_local! {
    static LOCAL: Local = const { Local::new() };
}

#[cfg(model)]
loom::thread_local! {
    static LOCAL: Local = Local::new();
}

/// The newest block of this thread's magazine for `requested` bytes, if it needs no wait for `stream`. No
/// block may mean many things: ask the depot.
#[inline(always)]
pub(crate) fn take(pool: &PoolCore, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    let list = pool.class_table.of_request(requested)?;
    hot::take(pool, list, requested, stream)
}

/// As [`take`], where [the hot block](crate::cache::magazine::hot) is out, or of another list.
#[inline(never)]
pub(crate) fn take_from_list(
    pool: &PoolCore,
    list: u8,
    requested: u64,
    stream: StreamId,
) -> Option<Box<Block>> {
    let taken = LOCAL.try_with(|local| local.rack(pool)?.pop(list, requested, stream));
    taken.ok().flatten()
}

/// As [`take`], where [the hot block](crate::cache::magazine::hot) is of this list, and may be a new peak.
#[inline(never)]
pub(crate) fn take_hot(pool: &PoolCore, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    let taken = LOCAL.try_with(|local| local.rack(pool)?.pop_hot(requested, stream));
    taken.ok().flatten()
}

/// As [`take`], where classes share lists.
pub(crate) fn take_class(
    pool: &PoolCore,
    class: u64,
    requested: u64,
    stream: StreamId,
) -> Option<Box<Block>> {
    let list = pool.class_table.of_class(class)?;
    with_local(|local| {
        let rack = local?.rack(pool)?;
        if rack.tally.list(list).class() != class {
            return None;
        }
        rack.flush_hot();
        rack.pop(list, requested, stream)
    })
}

/// Puts a block in this thread's magazine for its class. Answers one that it has no room for.
#[inline(always)]
pub(crate) fn put(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    match hot::put(list, block) {
        None => None,
        Some(block) => put_anew(list, block),
    }
}

/// As [`put`], of a block that is not [the hot one](hot::put).
#[inline(never)]
fn put_anew(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    match list {
        // No magazine takes it, or it does not say which, so that it comes by here.
        NO_LIST => Records::put(block),
        list => put_in_list(list, block),
    }
}

/// A function of its own: the registers that it needs are not for others to save.
#[inline(never)]
fn put_in_list(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    let mut block = Some(block);
    // Gone, in the destructor of another thread-local variable: it has no magazines any more.
    let _ = LOCAL.try_with(|local| {
        block = block.take().and_then(|block| match local.rack(&block.pool) {
            Some(rack) => rack.push(list, block),
            None => Some(block),
        });
    });
    block
}

/// Has the rack that [the hot block](crate::cache::magazine::hot) is of take it back, whatever its pool.
pub(crate) fn flush_hot() {
    with_local(|local| {
        let rack =
            local.zip(hot::slot()).and_then(|(local, slot)| local.racks[usize::from(slot) % SLOTS].get());
        rack.into_iter().for_each(|rack| rack.flush_hot());
    });
}

/// As [`put`], where classes share lists.
pub(crate) fn put_in_shared_list(block: Box<Block>) -> Option<Box<Block>> {
    with_local(|local| {
        let list = block.pool.class_table.of_class(block.key.class);
        match (local.and_then(|local| local.rack(&block.pool)), list) {
            (Some(rack), Some(list)) if rack.tally.list(list).class() == block.key.class => {
                rack.push_in_shared_list(list, block)
            }
            _ => Some(block),
        }
    })
}

/// Tells the depot of `pool` what this thread lent from its magazines. Answers whether that is all that they
/// have to do with it: they are of its present epoch, and none is of a pool that is closed.
#[inline]
pub(crate) fn settle(pool: &PoolCore, depot: &mut Depot) -> bool {
    let settled = LOCAL.try_with(|local| {
        let rack = local.rack(pool);
        if let Some(rack) = rack {
            depot.settle(rack);
        }
        (rack.is_some() || !pool.has_magazines()) && local.closed.get() == CLOSED.load(Relaxed)
    });
    settled.unwrap_or(true)
}

/// Does something with this thread's rack for `pool`, fresh in its present epoch; without one where there is
/// none: the pool is closed or has no magazines, or the thread is ending.
pub(crate) fn visit<T>(pool: &Arc<PoolCore>, visit: impl FnOnce(Option<&Rack>) -> T) -> T {
    with_local(|local| visit(local.and_then(|local| local.join(pool))))
}

/// As [`visit`], but only with a rack that is there and of the present epoch.
pub(crate) fn inspect<T>(pool: &PoolCore, act: impl FnOnce(Option<&Rack>) -> T) -> T {
    with_local(|local| act(local.and_then(|local| local.rack(pool))))
}

/// As [`visit`], to bring a block back to its pool.
pub(crate) fn visit_with<T>(block: Box<Block>, visit: impl FnOnce(Option<&Rack>, Box<Block>) -> T) -> T {
    with_local(|local| {
        let rack = local.and_then(|local| local.join(&block.pool));
        visit(rack, block)
    })
}

/// Gives this thread's blocks and slots back to the depot of `pool`.
pub(crate) fn leave(pool: &PoolCore) {
    with_local(|local| {
        if let Some(rack) = local.and_then(|local| local.racks[usize::from(pool.slot) % SLOTS].get()) {
            rack.leave();
        }
    });
}

/// Does something with what this thread keeps; with nothing in the destructors of its other thread-local
/// variables, when that may be gone.
fn with_local<T>(act: impl FnOnce(Option<&Local>) -> T) -> T {
    let mut act = Some(act);
    let acted = LOCAL.try_with(|local| act.take().map(|act| act(Some(local))));
    match (acted, act) {
        (Ok(Some(answer)), _) => answer,
        (_, Some(act)) => act(None),
        (_, None) => unreachable!("it acted and answered"),
    }
}

/// What a thread's end does. In a model, whose joins do not wait for thread-local variables to go, threads do
/// it themselves.
#[cfg(all(test, model))]
pub(crate) fn end_thread() {
    with_local(|local| local.into_iter().for_each(Local::leave_all));
    crate::cache::orphans::free();
}

impl Local {
    const fn new() -> Self {
        Self { racks: [const { OnceCell::new() }; SLOTS], closed: Cell::new(0) }
    }

    /// The rack for `pool`, if it is of the pool's present epoch.
    #[inline(always)]
    fn rack(&self, pool: &PoolCore) -> Option<&Rack> {
        let rack = self.racks[usize::from(pool.slot) % SLOTS].get()?;
        // Relaxed: what another epoch is for comes later than any one call; nothing is published with it.
        (rack.epoch.get() == pool.epoch.load(Relaxed)).then_some(rack)
    }

    /// Frees nothing: a driver's thread-local variables may be gone.
    fn leave_all(&self) {
        self.racks.iter().filter_map(OnceCell::get).for_each(|rack| rack.leave_at_end());
    }

    /// The rack for `pool` in its present epoch, after giving back what is there of another epoch or of
    /// closed pools.
    #[inline]
    fn join(&self, pool: &Arc<PoolCore>) -> Option<&Rack> {
        match self.rack(pool) {
            rack if self.closed.get() == CLOSED.load(Relaxed)
                && (rack.is_some() || !pool.has_magazines()) =>
            {
                rack
            }
            _ => self.join_anew(pool),
        }
    }

    #[cold]
    fn join_anew(&self, pool: &Arc<PoolCore>) -> Option<&Rack> {
        // Acquire: pairs with the release of a pool's closing. A look is not repeated: the pools that were
        // counted must be seen to be closed.
        let closed = CLOSED.load(Acquire);
        if self.closed.replace(closed) != closed {
            self.racks.iter().filter_map(OnceCell::get).for_each(|rack| {
                let of = rack.pool.take();
                let is_closed = of.as_ref().is_some_and(|pool| pool.is_closed());
                rack.pool.set(of);
                if is_closed {
                    rack.leave();
                }
            });
        }
        if !pool.has_magazines() || pool.is_closed() {
            return None;
        }
        let rack = self.racks[usize::from(pool.slot) % SLOTS].get_or_init(|| Box::new(Rack::new()));
        if rack.epoch.get() != pool.epoch.load(Relaxed) {
            rack.leave();
            // A destructor that ran in there may have joined on its own account.
            if rack.epoch.get() == NEVER {
                let epoch = pool.depot().enroll(&rack.tally, &pool.epoch)?;
                rack.pool.set(Some(Arc::clone(pool)));
                rack.epoch.set(epoch);
            }
        }
        self.rack(pool)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if fork::is_child() {
            // Depots may be locked by threads that are not here.
            return self.racks.iter_mut().for_each(|rack| mem::forget(rack.take()));
        }
        self.leave_all();
    }
}
