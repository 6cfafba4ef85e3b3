//! Memory that threads left when they ended: of closed pools, and what an arena's reset forgot.
//!
//! A thread's end runs the destructors of its thread-local variables in an order that nobody specifies. A driver may find its own
//! variables gone there, and a panic in such a destructor aborts the process. So the destructor of a thread's magazines frees
//! nothing: blocks of an open pool go to its depot. A closed pool's depot keeps nothing. What is left of such a pool comes here,
//! and is freed by whoever next closes or trims a pool or asks a source for memory, or by a thread of this crate's own, whichever is
//! first.
//!
//! That thread exists only while magazines of closed pools do, and there is at most one. Where it cannot be started, and in a
//! child process, the others do its work.

use crate::cache::block::Block;
use crate::cache::core::Shared;
use crate::sync::{GlobalCondvar, GlobalMutex, GlobalU64};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a thread left of one pool.
struct Left {
    blocks: Vec<Box<Block>>,
    pool: Arc<Shared>,
}

struct Ended {
    left: Vec<Left>,
    /// Magazines of closed pools that threads still have. Below 0 while a pool is being closed.
    magazines: i64,
    has_thread: bool,
}

static ENDED: GlobalMutex<Ended> =
    GlobalMutex::new(Ended { left: Vec::new(), magazines: 0, has_thread: false });

/// Signalled when the thread has something to do.
static CHANGED: GlobalCondvar = GlobalCondvar::new();

/// How much is left: a hint.
static LEFT: GlobalU64 = GlobalU64::new(0);

/// A pool was closed of which other threads have so many magazines.
pub(crate) fn expect(magazines: usize) {
    if magazines == 0 {
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

/// Magazines of a closed pool were given up.
pub(crate) fn gave_up() {
    ENDED.lock().magazines -= 1;
    CHANGED.notify_all();
}

/// A thread that ends leaves this of a pool. No destructor of a block or a pool runs here.
pub(crate) fn leave(pool: Arc<Shared>, blocks: Vec<Box<Block>>, is_closed: bool) {
    let pool = match blocks.is_empty() {
        false => Some(pool),
        // Only the last handle has something to drop.
        true => Arc::into_inner(pool).map(Arc::new),
    };
    let mut ended = ENDED.lock();
    ended.magazines -= i64::from(is_closed);
    if let Some(pool) = pool {
        LEFT.fetch_add(1, Relaxed);
        ended.left.push(Left { blocks, pool });
    }
    drop(ended);
    CHANGED.notify_all();
}

/// Whether threads left something.
pub(crate) fn has_left() -> bool {
    LEFT.load(Relaxed) > 0
}

/// Frees what threads left. To be called without any lock.
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
        pool.give_back(blocks);
    }
}

/// A model runs no threads but its own.
fn start() -> bool {
    if cfg!(model) {
        return false;
    }
    let builder = std::thread::Builder::new().name("vrampool ended".into());
    // A pool may be closed where a thread's own variables are gone, which starting a thread may need.
    catch_unwind(AssertUnwindSafe(|| builder.spawn(run).is_ok())).unwrap_or(false)
}

fn run() {
    let mut ended = ENDED.lock();
    loop {
        let left = mem::take(&mut ended.left);
        if !left.is_empty() {
            drop(ended);
            for left in left {
                // A destructor's panic is printed, and what others left is freed all the same.
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
