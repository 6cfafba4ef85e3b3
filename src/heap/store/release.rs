//! The free path of a buffer: to this thread's magazine, to the depot, or to the source.

use crate::heap::magazine;
use crate::heap::magazine::class_table::NO_BIN;
use crate::heap::magazine::left_blocks;
use crate::heap::{Block, Depot, DepotGuard, LockedDepot, PoolCore, Recall};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::spi::{Occasion, Ticket};
use vrampool_backend::{HookCalls, HookEvent};

thread_local! {
    /// Whether this thread is releasing memory, or calls hooks of a request that asks the device: a destructor or hook
    /// that allocates must not wait for itself.
    static RELEASING: Cell<bool> = const { Cell::new(false) };
}

impl PoolCore {
    /// Releases the block of a dropped buffer.
    #[inline]
    pub(crate) fn release(block: Box<Block>) {
        if let Some(block) = magazine::put(block.bin, block) {
            Self::release_to_depot(block);
        }
    }

    /// Releases a block to this thread's magazine, or a large one to the depot, if it is kept there as it is.
    /// Returns it otherwise.
    #[inline]
    pub(crate) fn release_ready(block: Box<Block>) -> Option<Box<Block>> {
        match block.bin {
            NO_BIN => Self::keep_ready(block),
            bin => magazine::put(bin, block).and_then(Self::keep_ready),
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_ready(block: Box<Block>) -> Option<Box<Block>> {
        let pool = &block.pool;
        let may_call = || !pool.caps.cache(block.key.class) || pool.marks.load(Relaxed);
        if pool.is_observed() || !pool.has_magazine_for(block.key) && may_call() {
            return Some(block);
        }
        Self::release_directly(block, false)
    }

    /// Releases a block to this thread's magazine, if its class shares a bin there. If no magazine takes it: to the
    /// depot, with `may_mark` after it got markers that are due, or to an arena if it is never kept. Returns it if that
    /// takes more than bookkeeping.
    #[inline(always)]
    fn release_directly(block: Box<Block>, may_mark: bool) -> Option<Box<Block>> {
        if block.pool.has_magazine_for(block.key) {
            let shares_bin = !block.pool.class_table.are_unshared;
            return if shares_bin { magazine::put_in_shared_bin(block) } else { Some(block) };
        }
        match block.pool.caps.cache(block.key.class) {
            true => Self::release_cached(block, may_mark),
            false => {
                let depot = block.pool.lock.lock();
                Self::put(block, depot, Depot::recycle_live)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn release_to_depot(block: Box<Block>) {
        match block.pool.is_observed() {
            true => Self::release_observed(block),
            false => Self::release_unobserved(block),
        }
    }

    /// Releases the block of a pool with hooks, which know of the free before another thread can get
    /// the block.
    #[cold]
    #[inline(never)]
    fn release_observed(mut block: Box<Block>) {
        let Some(ticket) = block.part.ticket().take() else { return Self::release_unobserved(block) };
        if !block.pool.hooks.need(HookCalls::AFTER_FREE) {
            block.pool.hooks.before(Occasion::Free, &free_event(&block.pool, &block, ticket));
            return Self::release_unobserved(block);
        }
        // The block takes its own handle along.
        let pool = Arc::clone(&block.pool);
        let announced = pool.hooks.announce(Occasion::Free, free_event(&pool, &block, ticket));
        Self::release_unobserved(block);
        drop(announced);
    }

    /// Not cold, as its caller is, so that it is compiled for speed.
    #[inline(never)]
    fn release_unobserved(block: Box<Block>) {
        let Some(block) = Self::release_directly(block, true) else { return };
        let lock = block.pool.lock;
        let surplus = magazine::visit_with(block, |cache, block| {
            let mut depot = lock.lock();
            let surplus = depot.put(block, cache);
            let Some(surplus) = surplus else {
                drop(depot);
                lock.notify_freed();
                return None;
            };
            if depot.lacks_slots() {
                surplus.pool.recall(&mut depot, Recall::Slots);
            }
            let surplus = depot.recycle(surplus);
            drop(depot);
            if surplus.is_none() {
                lock.notify_freed();
            }
            surplus
        });
        if let Some(block) = surplus {
            Self::release_surplus(block);
        }
    }

    /// Releases the memory of a block that is not kept.
    pub(in crate::heap) fn release_surplus(mut block: Box<Block>) {
        let dropped = block.pool.is_dropped().then(|| Arc::clone(&block.pool));
        let mut report = ReleaseReport::new(block.pool.lock, 1, block.key.class);
        report.waits = block.part.release_memory();
        report.record = Some(block);
        drop(report);
        if let Some(pool) = dropped.filter(|pool| pool.is_unused()) {
            // Another thread waits for work that used the memory.
            left_blocks::add(pool, Vec::new());
        }
    }

    /// Keeps a block of a class that may be kept, but not in magazines. Returns it if that takes more than the
    /// depot.
    #[inline(always)]
    fn release_cached(mut block: Box<Block>, may_mark: bool) -> Option<Box<Block>> {
        let lock = block.pool.lock;
        let mut depot = lock.lock();
        // Relaxed: a thread that does not see it frees as if there were one stream.
        if may_mark && block.pool.marks.load(Relaxed) && depot.is_marker_due(&block) {
            drop(depot);
            block.mark();
            depot = lock.lock();
        }
        Self::put(block, depot, Depot::keep)
    }

    /// Puts a block into the depot by `put`. Returns it if that takes more than the depot.
    #[inline(always)]
    fn put(
        block: Box<Block>,
        mut depot: DepotGuard,
        put: impl FnOnce(&mut Depot, Box<Block>) -> Option<Box<Block>>,
    ) -> Option<Box<Block>> {
        if !magazine::apply_delta(&block.pool, &mut depot) {
            return Some(block);
        }
        let lock = block.pool.lock;
        let surplus = put(&mut depot, block);
        drop(depot);
        if surplus.is_none() {
            lock.notify_freed();
        }
        surplus
    }

    /// Drops blocks that left their buckets. Returns their bytes.
    pub(crate) fn release_blocks(&self, blocks: Vec<Box<Block>>) -> u64 {
        let bytes = blocks.iter().map(|block| block.key.class).sum();
        self.release_counted(blocks, bytes);
        bytes
    }

    /// Drops blocks without any lock, because a destructor may call the pool. `freed` bytes of them return to
    /// the device for good.
    pub(crate) fn release_counted(&self, mut blocks: Vec<Box<Block>>, freed: u64) {
        if !blocks.is_empty() {
            let mut report = ReleaseReport::new(self.lock, blocks.len() as u64, freed);
            report.waits = blocks.iter_mut().map(|block| block.part.release_memory()).sum();
            drop(blocks);
        }
    }
}

fn free_event<'a>(pool: &'a PoolCore, block: &Block, ticket: Ticket) -> HookEvent<'a> {
    let mut event = pool.event(ticket, block.requested, block.key.class, block.last_use.writer());
    event.address = block.address();
    event
}

/// Reports memory as released once its destructors ran, also when one panics.
struct ReleaseReport {
    /// Of a pool that lives until the report is dropped.
    lock: &'static LockedDepot,
    count: u64,
    freed: u64,
    was: bool,
    /// Waits between streams.
    waits: u64,
    /// A record whose memory was released.
    record: Option<Box<Block>>,
}

impl ReleaseReport {
    fn new(lock: &'static LockedDepot, count: u64, freed: u64) -> Self {
        Self { lock, count, freed, was: RELEASING.replace(true), waits: 0, record: None }
    }
}

impl Drop for ReleaseReport {
    fn drop(&mut self) {
        RELEASING.set(self.was);
        let mut depot = self.lock.lock();
        depot.counters.source.frees += self.count;
        depot.counters.stream_waits += self.waits;
        depot.accounts.freed(self.freed);
        let surplus = self.record.take().and_then(|record| depot.keep_record(record));
        drop(depot);
        self.lock.notify_freed();
        // It may have the last handle of the pool.
        drop(surplus);
    }
}

pub(crate) fn is_releasing() -> bool {
    RELEASING.get()
}

/// Calls hooks of a request for which others wait. A request that a hook makes is refused instead of waiting.
pub(crate) fn without_waits<T>(call: impl FnOnce() -> T) -> T {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            RELEASING.set(self.0);
        }
    }
    let _reset = Reset(RELEASING.replace(true));
    call()
}
