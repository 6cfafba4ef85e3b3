//! Takes idle blocks out of the depot.

use crate::heap::{Block, Depot};
use vrampool_backend::{MemoryKind, StreamId};

impl Depot {
    /// Takes out at least `bytes` of idle memory, or all. Order: least recently requested classes, then
    /// larger classes, then the oldest release in a class.
    pub(crate) fn evict(&mut self, bytes: u64) -> Vec<Box<Block>> {
        if bytes == 0 || self.keeps_all() {
            return Vec::new();
        }
        // The stamps of buckets whose classes magazines have served, bypassing the depot.
        for counters in &self.threads.counters {
            counters.hit_classes().for_each(|class| self.buckets.note_hit(class));
        }
        let (mut evicted, mut freed) = (Vec::new(), 0);
        for key in self.buckets.stalest() {
            let Some(bucket) = self.buckets.find(&key) else { continue };
            while freed < bytes
                && let Some(block) = bucket.idle.pop_front()
            {
                freed += key.class;
                bucket.has_overflowed = false;
                evicted.push(block);
            }
        }
        self.count_evicted(evicted)
    }

    /// Takes out all idle memory of one kind that needs no wait for `stream`.
    pub(crate) fn evict_ready(&mut self, kind: MemoryKind, stream: StreamId) -> Vec<Box<Block>> {
        let evicted = if self.keeps_all() { Vec::new() } else { self.buckets.take_all_ready(kind, stream) };
        self.count_evicted(evicted)
    }

    /// Whether idle memory is private.
    fn keeps_all(&self) -> bool {
        self.accounts.is_private && !self.is_dropped()
    }

    fn count_evicted(&mut self, evicted: Vec<Box<Block>>) -> Vec<Box<Block>> {
        evicted.iter().for_each(|block| self.note_reused(block));
        self.counters.released.evicted += evicted.len() as u64;
        self.accounts.evict(evicted.iter().map(|block| block.key.class).sum());
        evicted
    }
}
