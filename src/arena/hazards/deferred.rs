//! Freed blocks of several streams, which stay live in the engine until those streams complete.

use super::ranges::{Streams, UseMap};
use crate::arena::engine::{Arena, BlockId};
use smallvec::SmallVec;
use std::collections::VecDeque;
use vrampool_backend::Stream;

/// Most deferred blocks: each poll that finds a completed stream visits all of them.
pub(super) const MOST: usize = 256;

#[derive(Debug)]
pub(in crate::arena) struct Deferred<S> {
    /// In the order of the frees.
    pub(super) blocks: VecDeque<Entry<S>>,
}

/// One block, or all blocks of a stitched one.
#[derive(Debug)]
pub(super) struct Entry<S> {
    pub(super) blocks: SmallVec<[BlockId; 1]>,
    /// The writer is last.
    pub(super) users: Streams<S>,
    /// The tick that ended with the free; unique to the entry.
    pub(super) tick: u64,
}

impl<S: Stream> Deferred<S> {
    pub(in crate::arena) fn new() -> Self {
        Self { blocks: VecDeque::new() }
    }

    /// The blocks of each entry, with the streams that may still use them.
    pub(in crate::arena) fn named(&self) -> impl Iterator<Item = (&[BlockId], &Streams<S>)> {
        self.blocks.iter().map(|entry| (&*entry.blocks, &entry.users))
    }

    #[inline]
    pub(in crate::arena) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl<S: Stream> Entry<S> {
    /// Whether all users are complete, except possibly the writer.
    pub(super) fn is_read(&self, uses: &UseMap<S>) -> bool {
        let others = self.users.len().saturating_sub(1);
        self.users.iter().take(others).all(|user| uses.is_done(user.id(), self.tick))
    }

    /// Frees the blocks. The next users of the bytes wait for users that are not known to be complete. The
    /// writer is always recorded as a user, because it is mostly the stream that gets the bytes next.
    pub(super) fn release(self, engine: &mut Arena, uses: &mut UseMap<S>) {
        let (mut left, tick) = (self.users, self.tick);
        if let Some(writer) = left.pop() {
            let (done, open) = left.into_iter().partition(|user| uses.is_done(user.id(), tick));
            left = open;
            left.push(writer);
            uses.keep_dropped(done);
        }
        for &block in &self.blocks {
            let (offset, size) = engine.extent(block);
            engine.release(block);
            uses.put_at(offset..offset + size, left.clone(), tick);
        }
        // None of these is the last handle: the parts have others.
    }
}
