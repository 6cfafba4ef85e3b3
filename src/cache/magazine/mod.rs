//! Idle blocks of one thread: hits without a lock, a shared cache line, or a reference count.
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
//! A *rack* is one thread's magazines for one pool. It has a *list* for each class, linked through the
//! blocks' records. A list holds at most as many blocks as it has *slots*. Slots are leased from the depot,
//! where they count against the caps like idle blocks, filled or not. So the caps hold at every instant, and
//! a hit need not check them.
//!
//! The [most recently freed](crate::cache::magazine::hot) block of any pool is kept outside its list, where
//! the next request of its class finds it faster.
//!
//! A rack is valid for one *epoch* of its pool. A trim, a close, or a lack of slots for another thread starts
//! a new epoch. Each thread then returns its blocks at its next request of a small class or free. A request
//! that finds no memory waits a moment for that.
//!
//! Blocks of a thread that makes no call are out of reach: to take them, each hit would need a lock or an
//! atomic operation. They are at most an eighth of the limit in all threads, and less when the limit is near.
//! Such a thread keeps at most [`PoolBuilder::magazine_bytes`](crate::PoolBuilder) until it ends. It keeps blocks of
//! a closed pool until it next visits any pool's depot for a small class or a free.
//!
//! A thread frees nothing when it ends: its blocks move to the depot, and [another
//! thread](crate::cache::orphans) frees those of closed pools.

pub(crate) mod class_table;
pub(crate) mod counters;
pub(crate) mod hot;
pub(crate) mod rack;
pub(crate) mod slots;

use crate::cache::block::Block;
use crate::cache::core::{CLOSED, NEVER, PoolCore};
use crate::cache::depot::Depot;
use crate::cache::magazine::class_table::NO_LIST;
use crate::cache::magazine::hot::{Given, HotBlock, Peek};
use crate::cache::magazine::rack::Rack;
use crate::cache::magazine::slots::SLOTS;
use crate::cache::pool_recorder::PoolRecorder;
use crate::sync::thread_slot::Leave;
use std::cell::{Cell, OnceCell, RefCell};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use vrampool_backend::{StreamId, fork};

/// The racks of one thread.
struct Local {
    racks: [OnceCell<Box<Rack>>; SLOTS],
    /// Number of pools that were closed when it last searched for racks of closed pools.
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

/// Takes the newest block of this thread's magazine for `requested` bytes, if it needs no wait for `stream`.
/// `None` does not mean a miss: ask the depot.
#[inline(always)]
pub(crate) fn take(pool: &PoolCore, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    let list = pool.class_table.of_request(requested)?;
    take_of_list(pool, list, requested, stream)
}

/// Takes a block of `list`: the hot block if it is of this list and idle, else from the list. `None` does not
/// mean a miss: ask the depot.
#[inline(never)]
fn take_of_list(pool: &PoolCore, list: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    match hot::peek(pool, list, requested, stream) {
        Peek::Lent(block) => block,
        Peek::Unproven => take_hot(pool, requested, stream),
        Peek::Elsewhere => take_from_list(pool, list, requested, stream),
    }
}

/// As [`take`], if [the hot block](crate::cache::magazine::hot) is out or of another list.
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

/// As [`take`], if [the hot block](crate::cache::magazine::hot) is of this list and may set a new peak.
#[inline(never)]
pub(crate) fn take_hot(pool: &PoolCore, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    let taken = LOCAL.try_with(|local| local.rack(pool)?.pop_hot(requested, stream));
    taken.ok().flatten()
}

/// As [`take`], for classes that share lists.
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

/// Puts a block in this thread's magazine for its class. Returns the block if there is no room.
#[inline(always)]
pub(crate) fn put(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    match hot::put(list, block) {
        None => None,
        Some(block) => put_anew(list, block),
    }
}

/// As [`put`], for a block that is not [the hot one](hot::put).
#[inline(never)]
fn put_anew(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    match list {
        // Either no magazine takes it, or its list is hidden so that the release passes through the recorder.
        NO_LIST => PoolRecorder::put(block),
        list => put_in_list(list, block),
    }
}

/// A separate function, so that callers need not save the registers that it uses.
#[inline(never)]
fn put_in_list(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    let mut block = Some(block);
    // In the destructor of another thread-local variable the racks may already be destroyed.
    let _ = LOCAL.try_with(|local| {
        block = block.take().and_then(|block| match local.rack(&block.pool) {
            Some(rack) => rack.push(list, block),
            None => Some(block),
        });
    });
    block
}

/// Returns [the hot block](crate::cache::magazine::hot) to its rack, whatever its pool.
pub(crate) fn flush_hot() {
    with_local(|local| {
        let rack =
            local.zip(hot::slot()).and_then(|(local, slot)| local.racks[usize::from(slot) % SLOTS].get());
        rack.into_iter().for_each(|rack| rack.flush_hot());
    });
}

/// Returns the content of a destroyed slot of [the hot block](crate::cache::magazine::hot) to its rack.
pub(crate) fn take_back_hot(epoch: u64, slot: u8, given: Given) {
    let mut given = Some(given);
    let _ = LOCAL.try_with(|local| {
        let rack = local.racks[usize::from(slot) % SLOTS].get().filter(|rack| rack.epoch.get() == epoch);
        if let Some((rack, given)) = rack.zip(given.take_if(|_| rack.is_some())) {
            rack.take_back(given);
        }
    });
    // A rack takes the hot block back before it leaves, so this is a forked child, which frees nothing.
    mem::forget(given);
}

/// If the slot is destroyed before the racks, they take its content back.
impl Leave for RefCell<HotBlock> {
    fn leave(&mut self) {
        let hot = self.get_mut();
        let (epoch, slot) = (hot.epoch, hot.slot);
        if let Some(given) = hot.give_up() {
            take_back_hot(epoch, slot, given);
        }
    }
}

impl Rack {
    /// Keeps a returned block if the hot block is of another pool, or absent.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_hot(&self, list: u8, block: Option<Box<Block>>) {
        flush_hot();
        let Some(block) = block else { return };
        match self.hot_tally.take() {
            None => self.stack(list, block),
            Some(tally) => {
                if let Some(given) = hot::begin(self.epoch.get(), list, tally, block) {
                    self.take_back(given);
                }
            }
        }
    }
}

/// As [`put`], for classes that share lists.
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

/// Settles this thread's loans with the depot of `pool`. Returns whether nothing else is due: its rack is of
/// the current epoch, and it has no racks of closed pools.
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

/// Calls `visit` with this thread's rack for `pool`, joined to its current epoch. The rack is `None` if the
/// pool is closed or has no magazines, or the thread is ending.
pub(crate) fn visit<T>(pool: &Arc<PoolCore>, visit: impl FnOnce(Option<&Rack>) -> T) -> T {
    with_local(|local| visit(local.and_then(|local| local.join(pool))))
}

/// As [`visit`], but only with an existing rack of the current epoch.
pub(crate) fn inspect<T>(pool: &PoolCore, act: impl FnOnce(Option<&Rack>) -> T) -> T {
    with_local(|local| act(local.and_then(|local| local.rack(pool))))
}

/// As [`visit`], with a block that returns to its pool.
pub(crate) fn visit_with<T>(block: Box<Block>, visit: impl FnOnce(Option<&Rack>, Box<Block>) -> T) -> T {
    with_local(|local| {
        let rack = local.and_then(|local| local.join(&block.pool));
        visit(rack, block)
    })
}

/// Returns this thread's blocks and slots to the depot of `pool`.
pub(crate) fn leave(pool: &PoolCore) {
    with_local(|local| {
        if let Some(rack) = local.and_then(|local| local.racks[usize::from(pool.slot) % SLOTS].get()) {
            rack.leave();
        }
    });
}

/// Calls `act` with this thread's racks, or with `None` after their destruction at the thread's end.
fn with_local<T>(act: impl FnOnce(Option<&Local>) -> T) -> T {
    let mut act = Some(act);
    let acted = LOCAL.try_with(|local| act.take().map(|act| act(Some(local))));
    match (acted, act) {
        (Ok(Some(answer)), _) => answer,
        (_, Some(act)) => act(None),
        (_, None) => unreachable!("it acted and answered"),
    }
}

/// Does the work of a thread's end. In a model, joins do not wait for the destruction of thread-local
/// variables, so threads call this themselves.
#[cfg(all(test, model))]
pub(crate) fn end_thread() {
    with_local(|local| local.into_iter().for_each(Local::leave_all));
    crate::cache::orphans::free();
}

impl Local {
    const fn new() -> Self {
        Self { racks: [const { OnceCell::new() }; SLOTS], closed: Cell::new(0) }
    }

    /// Returns the rack for `pool`, if it is of the pool's current epoch.
    #[inline(always)]
    fn rack(&self, pool: &PoolCore) -> Option<&Rack> {
        let rack = self.racks[usize::from(pool.slot) % SLOTS].get()?;
        // Relaxed: a recall takes effect at some later call, and no data is published with the epoch.
        (rack.epoch.get() == pool.epoch.load(Relaxed)).then_some(rack)
    }

    /// Leaves all racks. Frees nothing, because a driver's thread-local variables may be destroyed.
    fn leave_all(&self) {
        self.racks.iter().filter_map(OnceCell::get).for_each(|rack| rack.leave_at_end());
    }

    /// Returns the rack for `pool` in its current epoch, after leaving old epochs and closed pools.
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
        // Acquire: pairs with the release of a pool's closing. The search is not repeated, so each counted
        // pool must be seen as closed.
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
            // A destructor that ran in `leave` may have joined already.
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
            // Depots may be locked by threads that do not exist in the child.
            return self.racks.iter_mut().for_each(|rack| mem::forget(rack.take()));
        }
        self.leave_all();
    }
}
