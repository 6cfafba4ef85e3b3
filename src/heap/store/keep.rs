//! Decides whether a returned block stays idle, in a magazine or its bucket, or is released.

use crate::heap::magazine::ThreadCache;
use crate::heap::{BackendState, Block, Depot, PoolCore};
use crate::source::Key;
use crate::streams::FreedIn;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;

impl Depot {
    /// Keeps a returned block of a class that may be kept and that no magazine takes. Returns it if the caps
    /// have no room for it.
    #[inline(always)]
    pub(crate) fn keep(&mut self, mut block: Box<Block>) -> Option<Box<Block>> {
        self.end_loan(&mut block);
        let class = block.key.class;
        if self.keeps_nothing() || !self.accounts.may_cache(class) {
            return Some(block);
        }
        let bucket = self.buckets.of(&block.key);
        if !self.accounts.bucket_may_keep(bucket.kept()) {
            return Some(block);
        }
        note_idle(&block, &mut self.backend_state);
        self.accounts.returned(class, block.requested);
        self.accounts.cached(class);
        bucket.idle.push_back(block);
        self.counters.live_buffers -= 1;
        None
    }

    /// Puts a returned block in this thread's `cache` or its bucket. Returns a block that is not kept: the
    /// caller [recycles](Self::recycle) it, or drops it without the lock and then reports it as freed.
    #[inline]
    pub(crate) fn put(&mut self, mut block: Box<Block>, cache: Option<&ThreadCache>) -> Option<Box<Block>> {
        self.end_loan(&mut block);
        if let Some(cache) = cache {
            self.apply_delta(cache);
        }
        let unplaced = match cache {
            Some(cache) if !self.keeps_nothing() && self.accounts.caps.magazines_take(block.key.class) => {
                self.keep_in_bin(block, cache)
            }
            _ => Some(block),
        };
        let block = unplaced?;
        let class = block.key.class;
        self.accounts.returned(class, block.requested);
        if self.keeps_nothing() || !self.accounts.caps.cache(class) {
            return Some(self.surplus(block, false));
        }
        if !self.accounts.may_cache(class) {
            self.buckets.of(&block.key).has_overflowed = true;
            self.counters.released.by_byte_cap += 1;
            let with_others = self.accounts.leased > cache.map_or(0, |cache| cache.leased.get());
            return Some(self.surplus(block, with_others));
        }
        let bucket = self.buckets.of(&block.key);
        if !self.accounts.bucket_may_keep(bucket.kept()) {
            bucket.has_overflowed = true;
            self.counters.released.by_bucket_cap += 1;
            let with_others = bucket.leased > cache.map_or(0, |cache| cache.slots_of(class));
            return Some(self.surplus(block, with_others));
        }
        self.store(block);
        None
    }

    /// Whether the caps, as they are now, have room for one more idle block.
    pub(crate) fn has_room_for(&mut self, block: &Block) -> bool {
        let kept = self.buckets.of(&block.key).kept();
        !self.keeps_nothing()
            && self.accounts.may_cache(block.key.class)
            && self.accounts.bucket_may_keep(kept)
    }

    /// Counts a block that goes to the source; `with_others`: magazines of other threads have slots.
    #[inline]
    fn surplus(&mut self, block: Box<Block>, with_others: bool) -> Box<Block> {
        self.threads.without_slot += u64::from(with_others);
        self.counters.live_buffers -= 1;
        self.accounts.dropped(block.key.class);
        block
    }
}

/// An idle block that is out of its bucket for a call of the device, and becomes the newest one there.
pub(crate) struct Borrowed(Option<Box<Block>>);

impl Borrowed {
    /// Takes the oldest idle block out of a bucket.
    pub(crate) fn oldest(pool: &PoolCore, key: Key) -> Option<Self> {
        let mut depot = pool.depot();
        let block = depot.buckets.find(&key)?.idle.pop_front()?;
        depot.count_taken(&block);
        Some(Self(Some(block)))
    }

    /// The block, which does not return to its bucket.
    pub(crate) fn keep(mut self) -> Option<Box<Block>> {
        self.0.take()
    }
}

impl Deref for Borrowed {
    type Target = Block;

    fn deref(&self) -> &Block {
        match &self.0 {
            Some(block) => block,
            None => unreachable!("it has the block until it is dropped"),
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(block) = self.0.take() else { return };
        let lock = block.pool.lock;
        let mut depot = lock.lock();
        if depot.has_room_for(&block) {
            depot.store(block);
            drop(depot);
            lock.notify_freed();
        } else {
            depot.discard(&block);
            drop(depot);
            PoolCore::release_surplus(block);
        }
    }
}

/// Records the tick in which a block becomes idle. A block with markers is in flight, the bytes of others count until
/// their stream gets a marker.
#[inline]
pub(in crate::heap) fn note_idle(block: &Block, backend_state: &mut BackendState) {
    let marked = block.last_use.freed();
    block.last_use.note_idle(backend_state.ticks().now());
    // Relaxed: a thread that does not see it frees as if there were one stream.
    if marked > 0 || block.pool.marks.load(Relaxed) {
        note_freed(block, marked, backend_state);
    }
}

#[cold]
#[inline(never)]
fn note_freed(block: &Block, marked: u64, backend_state: &mut BackendState) {
    let (user, class) = (block.last_user(backend_state), block.key.class);
    let ticks = backend_state.ticks_mut();
    match marked {
        0 if ticks.are_markers_wanted() => ticks.freed_unmarked(user, FreedIn::Bucket, class),
        0 => {}
        tick => ticks.freed(user, FreedIn::Bucket, tick, class),
    }
}
