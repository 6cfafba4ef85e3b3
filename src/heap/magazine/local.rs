//! The thread caches of one thread, by pool. A table maps a caller's numbers for a pool and a stream to them, so idle
//! blocks are found without a handle of either.

use crate::heap::magazine::ThreadCache;
use crate::heap::magazine::class_table::NO_BIN;
use crate::heap::magazine::slots::SLOTS;
use crate::heap::{Block, DROPPED, Depot, NEVER, PoolCore};
use crate::sync::driver_threads;
use crate::sync::thread_slot::{Leave, ThreadSlot};
use std::cell::{Cell, OnceCell, RefCell};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use vrampool_backend::{StreamId, fork};

/// The caches of one thread, by pool.
#[repr(C)]
struct Local {
    /// Number of pools that were dropped when it last searched for thread caches of dropped pools.
    dropped: Cell<u64>,
    caches: [OnceCell<Box<ThreadCache>>; SLOTS],
}

/// The state of one thread. The first caches share a line with the borrow flag.
#[repr(C)]
struct Kept {
    /// Borrowed exclusively at the thread's end only.
    local: RefCell<Local>,
    /// Entries for callers' numbers, each at the place of its numbers.
    known: [KnownPlace; ENTRIES],
}

#[cfg(not(model))]
thread_local! {
    static KEPT: ThreadSlot<Kept> = const { ThreadSlot::new(Kept::new()) };
    static END: ThreadEnd = const { ThreadEnd };
}

#[cfg(model)]
loom::thread_local! {
    static KEPT: ThreadSlot<Kept> = ThreadSlot::new(Kept::new());
    static END: ThreadEnd = ThreadEnd;
}

/// Empties the thread's caches at its end. Joining a pool registers its destructor.
struct ThreadEnd;

/// A caller's numbers for a pool and a stream.
#[cfg_attr(model, allow(unreachable_pub, reason = "a model has no callers by numbers"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The pool.
    pub pool: u64,
    /// The stream, of the pool's device.
    pub stream: u64,
    /// The caller's epoch: it changes before `pool` or `stream` means something else.
    pub epoch: u64,
}

/// The slot that serves requests with these numbers.
#[derive(Debug, Clone, Copy)]
struct KnownPool {
    numbers: Numbers,
    /// The slot of the thread cache.
    slot: u8,
    /// The epoch of the thread cache; no other pool is ever in it.
    epoch: u64,
    stream: StreamId,
}

/// Number of entries of a thread: a power of two.
#[cfg(not(model))]
const ENTRIES: usize = 16;
#[cfg(model)]
const ENTRIES: usize = 1;

/// On one cache line.
#[repr(align(64))]
struct KnownPlace(Cell<Option<KnownPool>>);

/// Takes the newest block of this thread's magazine for `requested` bytes, if it needs no wait for `stream`.
/// `None` does not mean a miss: ask the depot.
#[inline(always)]
pub(crate) fn take(pool: &PoolCore, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    let bin = pool.class_table.of_request(requested)?;
    take_of_bin(pool, bin, requested, stream)
}

/// As [`take`], of a bin.
#[inline(never)]
fn take_of_bin(pool: &PoolCore, bin: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    let taken = KEPT.try_with(|kept| kept.local.try_borrow().ok()?.cache(pool)?.pop(bin, requested, stream));
    taken.ok().flatten()
}

/// As [`take`], of the pool and for the stream that this thread [knows](know) by these numbers.
#[inline(always)]
pub(crate) fn take_known(numbers: Numbers, requested: u64) -> Option<Box<Block>> {
    with_known(numbers, |cache, pool, stream| {
        let bin = pool.class_table.of_request(requested)?;
        cache.pop(bin, requested, stream)
    })
}

/// Calls `act` with the thread cache, the pool and the stream that this thread [knows](know) by these numbers.
#[inline(always)]
pub(crate) fn with_known<T>(
    numbers: Numbers,
    act: impl FnOnce(&ThreadCache, &PoolCore, StreamId) -> Option<T>,
) -> Option<T> {
    let acted = KEPT.try_with(|kept| {
        let local = kept.local.try_borrow().ok()?;
        let known = kept.known(numbers).get().filter(|known| known.numbers == numbers)?;
        let KnownPool { slot, epoch, stream, .. } = known;
        let cache = local.caches[usize::from(slot) % SLOTS].get()?;
        let pool = cache.pool.try_borrow().ok()?;
        // Relaxed: as in `cache`. An epoch is of one pool, and in this one the thread joined it.
        let pool = pool.as_ref().filter(|pool| pool.epoch.load(Relaxed) == epoch)?;
        act(cache, pool, stream)
    });
    acted.ok().flatten()
}

/// From now on this thread finds its idle blocks of `pool` for `stream` by these numbers, if it has any and requests of
/// so many bytes are served by [`take`], or are too large for it.
pub(crate) fn know(numbers: Numbers, requested: u64, pool: &PoolCore, stream: StreamId) {
    match pool.class_table.of_request(requested) {
        Some(NO_BIN) => return,
        None if pool.is_observed() => return,
        _ => {}
    }
    let _ = KEPT.try_with(|kept| {
        let local = kept.local.try_borrow().ok()?;
        let epoch = local.cache(pool)?.epoch.get();
        kept.known(numbers).set(Some(KnownPool { numbers, slot: pool.slot, epoch, stream }));
        Some(())
    });
}

/// Removes all entries of this thread.
pub(crate) fn forget_known() {
    let _ = KEPT.try_with(|kept| kept.known.iter().for_each(|place| place.0.set(None)));
}

/// As [`take`], for classes that share bins.
pub(crate) fn take_class(
    pool: &PoolCore,
    class: u64,
    requested: u64,
    stream: StreamId,
) -> Option<Box<Block>> {
    let bin = pool.class_table.of_class(class)?;
    with_local(|local| {
        let cache = local?.cache(pool)?;
        if cache.counters.bin(bin).class() != class {
            return None;
        }
        cache.pop(bin, requested, stream)
    })
}

/// Puts a block in this thread's magazine for its class. Returns the block if there is no room.
#[inline(always)]
pub(crate) fn put(bin: u8, block: Box<Block>) -> Option<Box<Block>> {
    match bin {
        NO_BIN => Some(block),
        bin => put_in_bin(bin, block),
    }
}

/// A separate function, so that callers need not save the registers that it uses.
#[inline(never)]
fn put_in_bin(bin: u8, block: Box<Block>) -> Option<Box<Block>> {
    let mut block = Some(block);
    let _ = KEPT.try_with(|kept| {
        let Ok(local) = kept.local.try_borrow() else { return };
        block = block.take().and_then(|block| match local.cache_in(block.slot, &block.pool) {
            Some(cache) => cache.push(bin, block),
            None => Some(block),
        });
    });
    block
}

/// As [`put`], for classes that share bins.
pub(crate) fn put_in_shared_bin(block: Box<Block>) -> Option<Box<Block>> {
    with_local(|local| {
        let bin = block.pool.class_table.of_class(block.key.class).filter(|_| block.excess == 0);
        match (local.and_then(|local| local.cache(&block.pool)), bin) {
            (Some(cache), Some(bin)) if cache.counters.bin(bin).class() == block.key.class => {
                cache.push(bin, block)
            }
            _ => Some(block),
        }
    })
}

/// Adds this thread's delta to the depot of `pool`. Returns whether nothing else is due: its cache is of the
/// current epoch, and it has no caches of dropped pools.
#[inline]
pub(crate) fn apply_delta(pool: &PoolCore, depot: &mut Depot) -> bool {
    with_local(|local| {
        let Some(local) = local else { return true };
        let cache = local.cache(pool);
        if let Some(cache) = cache {
            depot.apply_delta(cache);
        }
        (cache.is_some() || !pool.has_magazines()) && local.dropped.get() == DROPPED.load(Relaxed)
    })
}

/// Calls `visit` with this thread's cache for `pool`, joined to its current epoch. The cache is `None` if the
/// pool is dropped or has no magazines, or the thread is ending.
pub(crate) fn visit<T>(pool: &Arc<PoolCore>, visit: impl FnOnce(Option<&ThreadCache>) -> T) -> T {
    with_local(|local| visit(local.and_then(|local| local.join(pool))))
}

/// As [`visit`], but only with an existing thread cache of the current epoch.
pub(crate) fn inspect<T>(pool: &PoolCore, act: impl FnOnce(Option<&ThreadCache>) -> T) -> T {
    with_local(|local| act(local.and_then(|local| local.cache(pool))))
}

/// As [`visit`], with a block that returns to its pool.
pub(crate) fn visit_with<T>(
    block: Box<Block>,
    visit: impl FnOnce(Option<&ThreadCache>, Box<Block>) -> T,
) -> T {
    with_local(|local| {
        let cache = local.and_then(|local| local.join(&block.pool));
        visit(cache, block)
    })
}

/// Returns this thread's blocks and slots to the depot of `pool`.
pub(crate) fn leave(pool: &PoolCore) {
    with_local(|local| {
        if let Some(cache) = local.and_then(|local| local.caches[usize::from(pool.slot) % SLOTS].get()) {
            cache.leave();
        }
    });
}

/// Calls `act` with this thread's caches, or with `None` while they are emptied at the thread's end.
#[inline]
fn with_local<T>(act: impl FnOnce(Option<&Local>) -> T) -> T {
    let mut act = Some(act);
    let acted = KEPT.try_with(|kept| act.take().map(|act| act(kept.local.try_borrow().ok().as_deref())));
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
    drop(ThreadEnd);
    crate::heap::magazine::left_blocks::free();
}

impl Kept {
    const fn new() -> Self {
        let caches = [const { OnceCell::new() }; SLOTS];
        let local = Local { dropped: Cell::new(0), caches };
        Self { local: RefCell::new(local), known: [const { KnownPlace(Cell::new(None)) }; ENTRIES] }
    }

    #[inline(always)]
    fn known(&self, numbers: Numbers) -> &Cell<Option<KnownPool>> {
        let hash = (numbers.stream ^ numbers.pool).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.known[(hash >> 60) as usize % ENTRIES].0
    }
}

impl Local {
    /// Returns the thread cache for `pool`, if it is of the pool's current epoch.
    #[inline(always)]
    fn cache(&self, pool: &PoolCore) -> Option<&ThreadCache> {
        self.cache_in(pool.slot, pool)
    }

    /// As [`cache`](Self::cache), with the pool's slot, which is known sooner than what is in the pool.
    #[inline(always)]
    fn cache_in(&self, slot: u8, pool: &PoolCore) -> Option<&ThreadCache> {
        let cache = self.caches[usize::from(slot) % SLOTS].get()?;
        // Relaxed: a recall takes effect at some later call, and no data is published with the epoch.
        (cache.epoch.get() == pool.epoch.load(Relaxed)).then_some(cache)
    }

    /// Leaves all thread caches. Frees nothing, because a driver's thread-local variables may be destroyed.
    fn end(&mut self) {
        for cache in self.caches.iter_mut().filter_map(OnceCell::take) {
            // Depots may be locked by threads that do not exist in a forked child.
            if fork::is_forked() {
                mem::forget(cache);
            } else {
                cache.leave_at_end();
            }
        }
    }

    /// Returns the thread cache for `pool` in its current epoch, after leaving old epochs and dropped pools.
    #[inline]
    fn join(&self, pool: &Arc<PoolCore>) -> Option<&ThreadCache> {
        match self.cache(pool) {
            cache
                if self.dropped.get() == DROPPED.load(Relaxed)
                    && (cache.is_some() || !pool.has_magazines()) =>
            {
                cache
            }
            _ => self.join_anew(pool),
        }
    }

    #[cold]
    fn join_anew(&self, pool: &Arc<PoolCore>) -> Option<&ThreadCache> {
        // Acquire: pairs with the release in `PoolCore::end`. The search is not repeated, so each counted
        // pool must be seen as dropped.
        let dropped = DROPPED.load(Acquire);
        if self.dropped.replace(dropped) != dropped {
            for cache in self.caches.iter().filter_map(OnceCell::get) {
                let is_dropped = |pool: &Arc<PoolCore>| pool.is_dropped();
                if cache.pool.try_borrow().is_ok_and(|pool| pool.as_ref().is_some_and(is_dropped)) {
                    cache.leave();
                }
            }
        }
        if driver_threads::is_one()
            || !pool.has_magazines()
            || pool.is_dropped()
            || END.try_with(|_| ()).is_err()
        {
            return None;
        }
        let cache = self.caches[usize::from(pool.slot) % SLOTS].get_or_init(|| Box::new(ThreadCache::new()));
        if cache.epoch.get() != pool.epoch.load(Relaxed) {
            cache.leave();
            // A destructor that ran in `leave` may have joined already.
            if cache.epoch.get() == NEVER {
                let epoch = pool.depot().enroll(&cache.counters, &pool.epoch)?;
                cache.pool.replace(Some(Arc::clone(pool)));
                cache.epoch.set(epoch);
            }
        }
        self.cache(pool)
    }
}

impl Leave for Kept {
    fn leave(&mut self) {
        self.local.get_mut().end();
    }
}

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        let _ = KEPT.try_with(|kept| kept.local.try_borrow_mut().map(|mut local| local.end()));
    }
}

#[cfg(all(test, feature = "host", not(model)))]
mod tests {
    use super::{KEPT, Kept};
    use crate::host::HostDevice;
    use crate::sync::thread_slot::KeyedSlot;
    use crate::{Backend, Pool};
    use std::thread;

    thread_local! {
        static KEYED: KeyedSlot<Kept> = const { KeyedSlot(Kept::new()) };
    }

    /// With variables found by keys, the slot may be destroyed before its guard.
    #[test]
    fn a_slot_that_is_destroyed_before_its_guard_loses_nothing() {
        let device = HostDevice::new();
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).build().expect("good settings");
        let ending = thread::spawn({
            let pool = pool.clone();
            move || {
                drop(pool.allocate(1000, &stream).expect("memory"));
                // The variable that is used last is destroyed first.
                KEPT.with(|kept| KEYED.with(|keyed| kept.local.swap(&keyed.0.local)));
            }
        });
        ending.join().expect("no panic");
        let stats = pool.stats();
        assert_eq!((stats.live_buffers, stats.live_bytes, stats.idle_bytes), (0, 0, 1024), "{stats:?}");
        assert_eq!(pool.trim().expect("a trim"), 1024);
    }
}
