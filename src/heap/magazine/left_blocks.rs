//! Idle blocks of dropped or closed pools, and beyond caps that were lowered, that a thread left because it ended or
//! must not wait for their release.
//!
//! The destructors of a thread's local variables run in an unspecified order. A driver's own variables may be
//! destroyed before, and a panic in such a destructor aborts the process. Therefore the destructor of a
//! thread's magazines frees nothing. Blocks go to their pool's depot. The depot of a dropped or closed pool keeps
//! nothing, and one whose caps were lowered may have no room, so those blocks are listed here. They are freed by a
//! [thread](crate::sync::driver_threads) of this crate, or by the next call that closes, drops or trims a pool or asks
//! a source for memory, whichever comes first. If no thread can be started, those calls alone free them.

use crate::heap::{Block, PoolCore};
use crate::sync::{GlobalMutex, GlobalU64, driver_threads};
use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Blocks of one pool left by an ended thread.
struct LeftBlocks {
    blocks: Vec<Box<Block>>,
    pool: Arc<PoolCore>,
}

static LISTED: GlobalMutex<Vec<LeftBlocks>> = GlobalMutex::new(Vec::new());

/// Number of entries that are listed, or being freed: a hint.
static COUNT: GlobalU64 = GlobalU64::new(0);

thread_local! {
    /// Whether this thread lists blocks instead of freeing them.
    static DEFERS: Cell<bool> = const { Cell::new(false) };
}

/// Until it is dropped, this thread lists blocks that leave its magazines for good, because to free them may take
/// longer than it may wait.
pub(crate) struct Deferral(bool);

pub(crate) fn defer() -> Deferral {
    Deferral(DEFERS.replace(true))
}

impl Drop for Deferral {
    fn drop(&mut self) {
        DEFERS.set(self.0);
    }
}

pub(crate) fn is_deferring() -> bool {
    DEFERS.get()
}

/// Lists blocks of a pool left by an ending thread, or a dropped pool that has no buffer any more. No destructor of a
/// block or a pool runs here.
pub(crate) fn add(pool: Arc<PoolCore>, blocks: Vec<Box<Block>>) {
    let pool = match blocks.is_empty() && !pool.is_unused() {
        false => Some(pool),
        // Only the last handle has something to drop.
        true => Arc::into_inner(pool).map(Arc::new),
    };
    let Some(pool) = pool else { return };
    COUNT.fetch_add(1, Relaxed);
    let mut listed = LISTED.lock();
    listed.push(LeftBlocks { blocks, pool });
    if listed.len() == 1 {
        drop(listed);
        driver_threads::add(Box::new(free));
    }
}

pub(crate) fn are_any() -> bool {
    COUNT.load(Relaxed) > 0
}

/// Frees all listed blocks. Call it without any lock.
pub(crate) fn free() {
    if are_any() {
        let listed = mem::take(&mut *LISTED.lock());
        listed.into_iter().for_each(LeftBlocks::free);
    }
}

impl LeftBlocks {
    fn free(self) {
        COUNT.fetch_sub(1, Relaxed);
        let Self { blocks, pool } = self;
        pool.release_blocks(blocks);
        if pool.is_unused() {
            pool.supply.end();
        }
    }
}
