//! Records of blocks whose memory went back to an arena, kept for further blocks of it.
//!
//! A miss that an arena serves, and the drop that gives the block back, are numbers alone as long as the arena is not busy
//! and nobody has to wait for another stream. Then the depot does both at once under its lock, with a record that is there
//! already. It promises nothing in between: accounts change when the arena has answered, and nobody sees them before.
//! Otherwise, and the first time, the usual way is taken.

use crate::block::Block;
use crate::buckets::Key;
use crate::depot::{Depot, Released};
use crate::device_arena::DeviceArena;
use vrampool_backend::Backend;

/// How many are kept.
const MOST: usize = 64;

/// What a request found at the depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// An idle block.
    Idle,
    /// A block of the arena, ready.
    Fresh,
}

impl Depot {
    /// Serves a miss of `key` that was counted from the arena, if nothing has to be given back for it. Streams that are `gone`
    /// for that are to be dropped without any lock.
    #[inline]
    pub(crate) fn serve<B: Backend>(
        &mut self,
        arena: &DeviceArena<B>,
        key: Key,
        requested: u64,
        stream: &B::Stream,
        gone: &mut [Option<B::Stream>; 2],
    ) -> Option<Box<Block>> {
        if arena.kind() != key.kind || self.is_short_of(key.class) {
            return None;
        }
        let mut block = self.spares.pop()?;
        let Some((reserved, replaced)) = block.refill(arena, key, requested, stream) else {
            self.spares.push(block);
            return None;
        };
        *gone = replaced;
        let _nothing_was_evicted = self.budget.promise(key.class, 0);
        self.promise_kept(key.class, requested, reserved);
        Some(block)
    }

    /// Gives the memory of a block that is not cached back to the arena, if that can be done here.
    pub(crate) fn recycle(&mut self, released: Released) -> Released {
        let Released::Returned(mut block) = released else { return released };
        if self.spares.len() >= MOST || self.is_closed() || !block.empty() {
            return Released::Returned(block);
        }
        self.counters.source_frees += 1;
        self.budget.freed(block.key.class);
        self.spares.push(block);
        Released::Recycled
    }

    /// The source kept its promise of `class` bytes; it has had to reserve `reserved` bytes, if it reserves ahead.
    pub(crate) fn promise_kept(&mut self, class: u64, requested: u64, reserved: u64) {
        self.budget.peak_reserved = self.budget.peak_reserved.max(reserved);
        self.budget.allocated(class, requested);
        self.counters.source_allocations += 1;
        self.counters.live_buffers += 1;
    }
}
