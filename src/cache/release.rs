//! The free path of a buffer: to this thread's magazine, to the depot, or to the source.

use crate::cache::block::Block;
use crate::cache::core::{PoolCore, Recall};
use crate::cache::magazine;
use crate::cache::magazine::class_table::NO_LIST;
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// Whether this thread is releasing memory: a destructor that allocates must not wait for itself.
    static GIVING_BACK: Cell<bool> = const { Cell::new(false) };
}

impl PoolCore {
    /// Releases the block of a dropped buffer.
    #[inline]
    pub(crate) fn release(block: Box<Block>) {
        if let Some(block) = magazine::put(block.list, block) {
            Self::release_to_depot(block);
        }
    }

    /// Releases a block to this thread's magazine, or a large one to the depot, if it is kept there as it is.
    /// Returns it otherwise.
    #[inline]
    pub(crate) fn release_ready(block: Box<Block>) -> Option<Box<Block>> {
        match block.list {
            // The list of a recorded pool is hidden, too: its release is noted once.
            NO_LIST => Self::keep_ready(block),
            list => magazine::put(list, block).and_then(Self::keep_ready),
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_ready(block: Box<Block>) -> Option<Box<Block>> {
        if !block.pool.hooks.is_empty() || !block.pool.recorder.is_none() {
            return Some(block);
        }
        if block.pool.has_magazine_for(block.key) {
            let shares_list = !block.pool.class_table.are_unshared();
            return if shares_list { magazine::put_in_shared_list(block) } else { Some(block) };
        }
        if !block.pool.caps.cache(block.key.class) {
            return Some(block);
        }
        let mut depot = block.pool.place.0.lock();
        // A request that waits has to be notified, which the general path does.
        match magazine::settle(&block.pool, &mut depot) && !depot.is_guarded() {
            true => depot.keep(block),
            false => Some(block),
        }
    }

    #[cold]
    #[inline(never)]
    fn release_to_depot(block: Box<Block>) {
        // Pools with hooks have no quick lists.
        if !block.pool.class_table.are_quick() && !block.pool.hooks.is_empty() {
            Self::release_hooked(block);
        } else {
            Self::release_unhooked(block);
        }
    }

    #[inline]
    pub(crate) fn release_unhooked(mut block: Box<Block>) {
        if !block.pool.class_table.are_unshared() && block.pool.has_magazine_for(block.key) {
            match magazine::put_in_shared_list(block) {
                Some(unplaced) => block = unplaced,
                None => return,
            }
        }
        let place = block.pool.place.0;
        if !block.pool.has_magazine_for(block.key) {
            // The depot or the arena usually takes the block, regardless of this thread's magazines.
            let unplaced = match block.pool.caps.cache(block.key.class) {
                true => Self::release_cached(block),
                false => Self::release_to_arena(block),
            };
            match unplaced {
                Some(unplaced) => block = unplaced,
                None => return,
            }
        }
        let unkept = magazine::visit_with(block, |rack, block| {
            let mut depot = place.lock();
            let unkept = depot.put(block, rack);
            let is_awaited = depot.is_guarded();
            let Some(unkept) = unkept else {
                drop(depot);
                if is_awaited {
                    place.notify_freed();
                }
                return None;
            };
            if depot.lacks_slots() {
                unkept.pool.recall(&mut depot, Recall::Slots);
            }
            let unkept = depot.recycle(unkept);
            drop(depot);
            if unkept.is_none() {
                place.notify_freed();
            }
            unkept
        });
        if let Some(block) = unkept {
            let (pool, bytes) = (Arc::clone(&block.pool), block.key.class);
            pool.give_back_counting([block], bytes);
        }
    }

    /// Keeps a block of a class that may be kept, but not in magazines. Returns it if that takes more than the
    /// depot.
    #[inline(always)]
    fn release_cached(block: Box<Block>) -> Option<Box<Block>> {
        let place = block.pool.place.0;
        let mut depot = place.lock();
        if !magazine::settle(&block.pool, &mut depot) {
            return Some(block);
        }
        let unkept = depot.keep(block);
        let is_awaited = depot.is_guarded();
        drop(depot);
        if is_awaited && unkept.is_none() {
            place.notify_freed();
        }
        unkept
    }

    /// Returns a block of a class that is never kept to the arena. Returns it if that takes more than
    /// bookkeeping.
    #[inline(always)]
    fn release_to_arena(block: Box<Block>) -> Option<Box<Block>> {
        let place = block.pool.place.0;
        let mut depot = place.lock();
        if !magazine::settle(&block.pool, &mut depot) {
            return Some(block);
        }
        let (mut errand, mut unkept) = (None, depot.recycle_lent(block));
        if let Some(block) = unkept {
            unkept = depot.recycle_shared(block).map(|left| errand = Some(left)).err();
        }
        drop(depot);
        if unkept.is_none() {
            errand.into_iter().for_each(|errand| errand());
            place.notify_freed();
        }
        unkept
    }

    /// Drops blocks that left their buckets. Returns their bytes.
    pub(crate) fn give_back(&self, blocks: Vec<Box<Block>>) -> u64 {
        let bytes = blocks.iter().map(|block| block.key.class).sum();
        self.give_back_counting(blocks, bytes);
        bytes
    }

    /// Drops blocks without any lock, because a destructor may call the pool. `freed` bytes of them return to
    /// the device for good.
    pub(super) fn give_back_counting(&self, blocks: impl AsRef<[Box<Block>]>, freed: u64) {
        let count = blocks.as_ref().len() as u64;
        if count == 0 {
            return;
        }
        let _report = GiveBack { pool: self, count, freed, was: GIVING_BACK.replace(true) };
        drop(blocks);
    }
}

/// Reports memory as released once its destructors ran, also when one panics.
struct GiveBack<'a> {
    pool: &'a PoolCore,
    count: u64,
    freed: u64,
    was: bool,
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        GIVING_BACK.set(self.was);
        let mut depot = self.pool.depot();
        depot.counters.source_frees += self.count;
        depot.accounts.freed(self.freed);
        drop(depot);
        self.pool.notify_freed();
    }
}

pub(crate) fn is_giving_back() -> bool {
    GIVING_BACK.get()
}
