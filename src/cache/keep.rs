//! Decides whether a returned block stays idle, in a magazine or its bucket, or is released.

use crate::cache::core::{Block, Depot};
use crate::cache::magazine::rack::Rack;

impl Depot {
    /// Keeps a returned block of a class that may be kept and that no magazine takes. Returns it if the caps
    /// have no room for it.
    #[inline(always)]
    pub(crate) fn keep(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let class = block.key.class;
        let is_kept = !self.keeps_nothing() && block.generation == self.generation;
        if !is_kept || !self.accounts.may_cache(class) {
            return Some(block);
        }
        let bucket = self.buckets.of(&block.key);
        if !self.accounts.bucket_may_keep(bucket.kept()) {
            return Some(block);
        }
        self.accounts.returned(class, block.requested);
        bucket.idle.push_back(block);
        self.counters.live_buffers -= 1;
        self.accounts.cached(class);
        None
    }

    /// Puts a returned block in this thread's `rack` or its bucket. Returns a block that is not kept: the
    /// caller [recycles](Self::recycle) it, or drops it without the lock and then reports it as freed.
    #[inline]
    pub(crate) fn put(&mut self, block: Box<Block>, rack: Option<&Rack>) -> Option<Box<Block>> {
        if let Some(rack) = rack {
            self.settle(rack);
        }
        let is_forgotten = self.is_forgotten(&block);
        let unplaced = match rack {
            Some(rack)
                if !self.keeps_nothing()
                    && !is_forgotten
                    && self.accounts.caps.magazines_take(block.key.class) =>
            {
                self.keep_in_list(block, rack)
            }
            _ => Some(block),
        };
        let block = unplaced?;
        let class = block.key.class;
        self.accounts.returned(class, block.requested);
        if self.keeps_nothing() || is_forgotten {
            self.counters.live_buffers -= 1;
            self.accounts.dropped(class);
            return Some(block);
        }
        if !self.accounts.caps.cache(class) {
            return Some(self.unkept(block, false));
        }
        if !self.accounts.may_cache(class) {
            self.counters.drops_over_bytes += 1;
            let with_others = self.accounts.leased > rack.map_or(0, |rack| rack.leased.get());
            return Some(self.unkept(block, with_others));
        }
        let bucket = self.buckets.of(&block.key);
        if !self.accounts.bucket_may_keep(bucket.kept()) {
            self.counters.drops_over_count += 1;
            let with_others = bucket.leased > rack.map_or(0, |rack| rack.slots_of(class));
            return Some(self.unkept(block, with_others));
        }
        bucket.idle.push_back(block);
        self.counters.live_buffers -= 1;
        self.accounts.cached(class);
        None
    }

    /// Counts a block that goes to the source; `with_others`: magazines of other threads have slots.
    #[inline]
    fn unkept(&mut self, block: Box<Block>, with_others: bool) -> Box<Block> {
        self.without_slot += u64::from(with_others);
        self.counters.live_buffers -= 1;
        self.accounts.dropped(block.key.class);
        block
    }
}
