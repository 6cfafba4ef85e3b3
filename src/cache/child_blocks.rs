//! Blocks that a child of a pool keeps for itself, until it is dropped.

use crate::cache::core::{Block, ChildBlocks, PoolCore};
use crate::error::Error;
use std::mem;
use vrampool_backend::{Backend, StreamId};

impl ChildBlocks {
    /// Takes the newest idle block that was allocated for a class, preferably one that needs no wait for `stream`.
    pub(crate) fn take(&self, class: u64, stream: StreamId) -> Option<Box<Block>> {
        let idle = &mut self.0.lock().idle;
        let newest = |such: &dyn Fn(&Block) -> bool| {
            idle.iter().rposition(|block| block.requested == class && such(block))
        };
        let at = newest(&|block| block.is_ready_on(stream)).or_else(|| newest(&|_| true))?;
        Some(idle.remove(at))
    }

    /// Counts a block that is about to be used.
    pub(crate) fn count(&self, class: u64) {
        self.0.lock().live += class;
    }

    /// Adds a freed block to the idle blocks of its child. Returns the block if its child was dropped, or it has none.
    pub(super) fn keep(mut block: Box<Block>) -> Option<Box<Block>> {
        let Some((home, class)) = block.home.take() else { return Some(block) };
        block.leave_home(class);
        let mut blocks = home.0.lock();
        blocks.live -= block.key.class;
        if blocks.is_closed {
            return Some(block);
        }
        blocks.idle.push(block);
        None
    }

    /// Returns bytes in use, and idle bytes.
    pub(crate) fn figures(&self) -> (u64, u64) {
        let blocks = self.0.lock();
        (blocks.live, blocks.idle.iter().map(|block| block.key.class).sum())
    }

    /// Records that work on `stream` uses the idle blocks. Returns the waits.
    pub(crate) fn use_on<B: Backend>(&self, stream: &B::Stream) -> Result<u64, Error> {
        let blocks = self.0.lock();
        blocks.idle.iter().try_fold(0, |waits, block| Ok(waits + block.use_on::<B>(stream)?))
    }

    /// Returns all blocks to the pool: idle ones now, others when they are dropped.
    pub(crate) fn close(&self) {
        let mut blocks = self.0.lock();
        blocks.is_closed = true;
        let idle = mem::take(&mut blocks.idle);
        drop(blocks);
        idle.into_iter().for_each(PoolCore::release);
    }
}
