//! What a thread remembers of pools, so that a request that an idle block of the thread serves reads one entry:
//! no table of pools, no count, no lock.

use crate::streams::{self, Named};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::Buffer;
use vrampool::any::AnyDevice;
use vrampool::backend::StreamId;
use vrampool::internal::Hits;

/// Where a thread finds idle blocks of a pool for a stream.
#[derive(Debug, Clone, Copy)]
struct Known {
    pool: u64,
    raw: usize,
    id: StreamId,
    /// [`streams::epoch`] and [`changes`] when the pool served a request directly.
    epoch: u64,
    changes: u64,
    hits: Hits,
}

/// How often a pool began to be recorded, or to sleep: what threads remember is wrong then.
static CHANGES: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// A pool begins to be recorded, or to sleep. Relaxed: calls under way may not see that either.
pub(crate) fn forget() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// How many a thread remembers: a power of two.
const KNOWN: usize = 16;

thread_local! {
    // Nothing in it has a destructor, so an access is no more than an address.
    static MEMORY: [Cell<Option<Known>>; KNOWN] = const { [const { Cell::new(None) }; KNOWN] };
}

#[inline(always)]
fn place(pool: u64, raw: usize) -> usize {
    let hash = (raw as u64 ^ pool.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 48) as usize % KNOWN
}

/// Remembers where this thread finds idle blocks of a pool that serves its requests directly, as of `changes`.
pub(crate) fn remember(pool: u64, Named { raw, id, epoch }: Named, changes: u64, hits: Hits) {
    MEMORY.with(|known| known[place(pool, raw)].set(Some(Known { pool, raw, id, epoch, changes, hits })));
}

/// Takes an idle block of this thread, if it remembers where. `None` is no failure.
#[inline(always)]
pub(crate) fn take(pool: u64, raw: usize, bytes: u64) -> Option<(Buffer<AnyDevice>, Named)> {
    let known = MEMORY.with(|known| known[place(pool, raw)].get())?;
    if known.pool != pool || known.raw != raw || known.epoch != streams::epoch() || known.changes != changes()
    {
        return None;
    }
    let Known { id, epoch, .. } = known;
    Some((known.hits.take(bytes, id)?, Named { raw, id, epoch }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Failure, Status};
    use crate::options::Options;
    use crate::pool::CPool;
    use crate::registry;

    #[test]
    fn what_a_thread_remembers_ends_with_a_recording_and_with_the_pool() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=direct").expect("good");
        let handle = registry::add(|handle| CPool::new(handle, options)).expect("a pool");
        let is_hit = || take(handle, 0, 100).is_some();
        let remember = || {
            // Another test of the process may let a stream go at any time, and then this is tried again.
            loop {
                let before = (streams::epoch(), changes());
                let address = registry::with(handle, |pool| pool.allocate(100, 0)).expect("memory");
                assert_eq!(crate::vrampool_free(handle, address as *mut _, std::ptr::null_mut()), Status::OK);
                let was_hit = is_hit();
                if (streams::epoch(), changes()) == before {
                    break was_hit;
                }
            }
        };
        assert!(!is_hit(), "nothing was freed yet");
        assert!(remember());
        let record = |pool: &CPool| pool.recording.start(100);
        registry::with(handle, record).expect("begun");
        assert!(!is_hit() && !remember(), "each request is recorded");
        registry::with(handle, |pool| pool.recording.stop(|_| Ok::<_, Failure>(()))).expect("ended");
        assert!(remember());
        registry::remove(handle).expect("it is there");
        assert!(!is_hit());
    }
}
