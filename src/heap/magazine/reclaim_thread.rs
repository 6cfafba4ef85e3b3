//! Frees the idle blocks that ended threads left, of dropped or closed pools and beyond caps that were lowered.
//!
//! The destructors of a thread's local variables run in an unspecified order. A driver's own variables may be
//! destroyed before, and a panic in such a destructor aborts the process. Therefore the destructor of a
//! thread's magazines frees nothing. Blocks go to their pool's depot. The depot of a dropped or closed pool keeps
//! nothing, and one whose caps were lowered may have no room, so those blocks are listed here. They are freed by the
//! next call that closes, drops or trims a pool or asks a source for memory, or by a thread of this crate, whichever
//! comes first.
//!
//! At most one such thread exists, and only while there are magazines of dropped or closed pools or from before a cap
//! was lowered. If it cannot be started, and in a child process, the calls above free the blocks.

use crate::heap::{Block, PoolCore};
use crate::sync::{GlobalCondvar, GlobalMutex, GlobalU64};
use std::cell::Cell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::spi::start_thread;

/// Blocks of one pool left by an ended thread.
struct Left {
    blocks: Vec<Box<Block>>,
    pool: Arc<PoolCore>,
}

struct EndedThreads {
    left: Vec<Left>,
    /// Number of awaited magazines that threads still have. Negative while a pool is being dropped.
    magazines: i64,
    has_thread: bool,
}

static ENDED: GlobalMutex<EndedThreads> =
    GlobalMutex::new(EndedThreads { left: Vec::new(), magazines: 0, has_thread: false });

/// Signalled when the thread has work.
static CHANGED: GlobalCondvar = GlobalCondvar::new();

/// Number of entries in [`EndedThreads::left`]: a hint.
static LEFT: GlobalU64 = GlobalU64::new(0);

/// Awaits `magazines` of threads, and starts the thread if it is needed.
pub(crate) fn add(magazines: usize) {
    if magazines == 0 && !has_left() {
        return;
    }
    let mut ended = ENDED.lock();
    ended.magazines += i64::try_from(magazines).unwrap_or(i64::MAX);
    let is_needed = ended.magazines > 0 || !ended.left.is_empty();
    if is_needed && !mem::replace(&mut ended.has_thread, true) {
        drop(ended);
        if !start() {
            ENDED.lock().has_thread = false;
        }
    }
}

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

/// Notes that a thread returned magazines that were awaited.
pub(crate) fn done() {
    ENDED.lock().magazines -= 1;
    CHANGED.notify_all();
}

/// Lists blocks of a pool left by an ending thread, or a dropped pool that has no buffer any more. No destructor of a
/// block or a pool runs here.
pub(crate) fn leave(pool: Arc<PoolCore>, blocks: Vec<Box<Block>>, was_awaited: bool) {
    let pool = match blocks.is_empty() && !pool.is_unused() {
        false => Some(pool),
        // Only the last handle has something to drop.
        true => Arc::into_inner(pool).map(Arc::new),
    };
    let mut ended = ENDED.lock();
    ended.magazines -= i64::from(was_awaited);
    if let Some(pool) = pool {
        LEFT.fetch_add(1, Relaxed);
        ended.left.push(Left { blocks, pool });
    }
    drop(ended);
    CHANGED.notify_all();
}

pub(crate) fn has_left() -> bool {
    LEFT.load(Relaxed) > 0
}

/// Frees all listed blocks. Call it without any lock.
pub(crate) fn free() {
    if has_left() {
        let left = mem::take(&mut ENDED.lock().left);
        left.into_iter().for_each(Left::free);
    }
}

impl Left {
    fn free(self) {
        LEFT.fetch_sub(1, Relaxed);
        let Self { blocks, pool } = self;
        pool.release_blocks(blocks);
        if pool.is_unused() {
            pool.supply.end();
        }
    }
}

/// Starts the thread. Returns whether it runs. A model runs its own threads only.
fn start() -> bool {
    if cfg!(model) {
        return false;
    }
    let builder = std::thread::Builder::new().name("vrampool reclaim".into());
    // A pool may be dropped after a thread's local variables were destroyed, which starting a thread may need.
    let spawn = || start_thread(|| builder.spawn(run)).is_ok();
    catch_unwind(AssertUnwindSafe(spawn)).unwrap_or(false)
}

fn run() {
    let mut ended = ENDED.lock();
    loop {
        let left = mem::take(&mut ended.left);
        if !left.is_empty() {
            drop(ended);
            for left in left {
                // A destructor's panic is printed, and the other blocks are freed.
                let _ = catch_unwind(AssertUnwindSafe(|| left.free()));
            }
            ended = ENDED.lock();
        } else if ended.magazines > 0 {
            CHANGED.wait(&mut ended);
        } else {
            ended.has_thread = false;
            return;
        }
    }
}
