//! Blocks that a child of a pool keeps for itself, until it is dropped.

use crate::error::Error;
use crate::heap::core::{Block, ChildBlocks, PoolCore};
use std::mem;
use vrampool_backend::{Backend, StreamId};

/// Memory of a child, rounded to classes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChildFigures {
    pub(crate) live_buffers: u64,
    pub(crate) live_bytes: u64,
    pub(crate) idle_buffers: u64,
    pub(crate) idle_bytes: u64,
}

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
        let blocks = &mut self.0.lock();
        blocks.live_buffers += 1;
        blocks.live_bytes += class;
    }

    /// Adds a freed block to the idle blocks of its child. Returns the block if its child was dropped, or it has none.
    pub(super) fn keep(mut block: Box<Block>) -> Option<Box<Block>> {
        let Some((home, class)) = block.home.take() else { return Some(block) };
        block.leave_home(class);
        let mut blocks = home.0.lock();
        blocks.live_buffers -= 1;
        blocks.live_bytes -= block.key.class;
        if blocks.is_closed {
            return Some(block);
        }
        blocks.idle.push(block);
        None
    }

    pub(crate) fn figures(&self) -> ChildFigures {
        let blocks = self.0.lock();
        ChildFigures {
            live_buffers: blocks.live_buffers,
            live_bytes: blocks.live_bytes,
            idle_buffers: blocks.idle.len() as u64,
            idle_bytes: blocks.idle.iter().map(|block| block.key.class).sum(),
        }
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
