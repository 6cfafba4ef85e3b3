//! Returns idle memory to the source: at the last drop, when the pool is closed or asleep, on a trim, to stay within a
//! cap, or if the device lacks memory.

use crate::error::Error;
use crate::heap::magazine::{left_blocks, slots};
use crate::heap::request::Position;
use crate::heap::store::release::is_releasing;
use crate::heap::{Awaited, DROPPED, DROPPED_EPOCH, Depot, Life, PoolCore, Recall, magazine, next_epoch};
use std::iter::successors;
use std::sync::atomic::Ordering::{Relaxed, Release};
use vrampool_backend::{MemoryKind, StreamId, logging};

impl PoolCore {
    /// Ends the pool after its last handle: releases idle memory, and keeps none from now on.
    pub(crate) fn end(&self) {
        magazine::leave(self);
        let mut depot = self.depot();
        // From here on no block is kept.
        depot.life = Life::Dropped;
        let (idle, records) = (depot.evict(u64::MAX), depot.take_records());
        self.epoch.store(DROPPED_EPOCH, Relaxed);
        drop(depot);
        if self.has_magazines() {
            slots::release(self.slot);
        }
        // Release: pairs with the acquire load of a thread that looks for caches of dropped pools. That thread
        // then also sees this pool's epoch as dropped.
        DROPPED.fetch_add(1, Release);
        drop(records);
        self.release_blocks(idle);
        left_blocks::free();
        // An arena of a pool above may be unused from now on.
        let ended = successors(Some(self), |pool| pool.parent.as_deref().filter(|above| above.is_dropped()));
        ended.for_each(|pool| pool.supply.end());
        if self.parent.is_some() {
            // After that of the ledger, which is never more.
            self.depot().accounts.share = 0;
        }
        self.notify_freed();
    }

    /// Whether its last handle was dropped, and all its blocks are idle ones in magazines of threads that have not
    /// visited a pool since.
    pub(crate) fn is_unused(&self) -> bool {
        let depot = self.depot();
        depot.is_dropped() && depot.counters.live_buffers > 0 && depot.memory_now().live == 0
    }

    /// Begins a new epoch: every thread returns its magazines at its next call of the pool.
    pub(crate) fn recall(&self, depot: &mut Depot, what: Recall) {
        if depot.is_dropped() {
            return;
        }
        let epoch = next_epoch();
        if what == Recall::Memory {
            depot.threads.trimmed = epoch;
        }
        self.epoch.store(epoch, Relaxed);
    }

    /// Changes whether the pool refuses requests because its arena is detached, or about to be.
    pub(in crate::heap) fn set_asleep(&self, is_asleep: bool) {
        let mut depot = self.depot();
        match depot.life {
            Life::Open if is_asleep => {
                depot.life = Life::Asleep;
                self.recall(&mut depot, Recall::Memory);
            }
            Life::Asleep if !is_asleep => depot.life = Life::Open,
            _ => {}
        }
        drop(depot);
        self.notify_freed();
    }

    /// Releases idle memory until at most `cached_bytes` are idle. Returns the released bytes.
    pub(crate) fn trim_to(&self, cached_bytes: u64) -> u64 {
        magazine::leave(self);
        let mut depot = self.depot();
        let surplus = depot.accounts.idle().saturating_sub(cached_bytes);
        if surplus > depot.accounts.now.cached {
            self.recall(&mut depot, Recall::Memory);
        }
        let (idle, records) = (depot.evict(surplus), depot.take_records());
        drop(depot);
        drop(records);
        left_blocks::free();
        self.release_blocks(idle)
    }

    /// Releases `bytes` of idle memory for a device without memory. Returns whether any was idle.
    pub(crate) fn evict_idle(&self, bytes: u64) -> bool {
        magazine::leave(self);
        left_blocks::free();
        let mut depot = self.depot();
        if depot.accounts.now.cached == 0 {
            return false;
        }
        depot.counters.rungs.trim += 1;
        let idle = depot.evict(bytes);
        drop(depot);
        self.release_blocks(idle);
        true
    }

    /// As [`evict_idle`](Self::evict_idle), of all idle memory: also recalls magazines, and waits for memory that
    /// other threads are releasing, as long as the request at `of` waits.
    pub(crate) fn evict_all(&self, of: &Position<'_>) {
        self.depot().counters.rungs.trim += 1;
        self.trim_to(0);
        if !is_releasing() {
            // This may be the missing memory.
            let mut depot = of.wait_for_magazines(self.depot(), |_| false);
            let quiet = depot.accounts.freed_when_quiet();
            if depot.accounts.has_freed(quiet) {
                return;
            }
            depot.counters.rungs.wait += 1;
            let position = Position::new(self);
            position.set(&mut depot, 0, Awaited::Change);
            while !depot.accounts.has_freed(quiet) && !of.is_over() {
                depot = position.sleep(depot, of.time_left());
            }
            position.leave(&mut depot);
        }
    }

    /// Releases idle memory before the source maps more of `kind` for `stream`, so that a pool does not grow
    /// beside idle memory that may serve as well. Returns whether any was released, so that the source can be
    /// asked again.
    ///
    /// * First, idle blocks of the depot that `stream` may use without a wait; then this thread's magazines.
    /// * Blocks that are idle for other streams stay: they would take waits, and blocks of a captured stream
    ///   serve no other stream. Blocks of another kind are not the source's.
    /// * Other threads' magazines are recalled for later requests.
    pub(crate) fn free_for_source(&self, kind: MemoryKind, stream: StreamId) -> bool {
        let mut depot = self.depot();
        let mut idle = depot.evict_ready(kind, stream);
        if idle.is_empty() {
            drop(depot);
            magazine::leave(self);
            depot = self.depot();
            if depot.accounts.leased > 0 {
                self.recall(&mut depot, Recall::Slots);
            }
            idle = depot.evict_ready(kind, stream);
        }
        if idle.is_empty() {
            return false;
        }
        // Records are kept, because these sizes are likely to be requested again.
        let refused = idle.into_iter().filter_map(|block| depot.recycle(block)).collect();
        drop(depot);
        self.notify_freed();
        self.release_blocks(refused);
        true
    }

    /// Refuses requests from now on. A pool without a handle stays one.
    pub(crate) fn close(&self) {
        let mut depot = self.depot();
        if matches!(depot.life, Life::Open | Life::Asleep) {
            depot.life = Life::Closed;
            self.recall(&mut depot, Recall::Memory);
        }
        drop(depot);
        self.notify_freed();
    }

    /// As [`Pool::trim_to`](crate::Pool::trim_to), without its children. Private memory stays.
    pub(crate) fn trim_own_to(&self, idle_bytes: u64) -> Result<u64, Error> {
        let released = self.trim_to(idle_bytes);
        self.supply.release(self.beside_cached(idle_bytes)).map(|()| released)
    }

    /// What is left of `bytes` beside the pool's idle memory.
    pub(crate) fn beside_cached(&self, bytes: u64) -> u64 {
        if bytes > 0 { bytes.saturating_sub(self.cached_bytes()) } else { 0 }
    }

    /// Releases all idle memory of the pool, without its children, for other requests to the device. Returns the bytes
    /// that the pool has no more.
    pub(crate) fn trim_for_device(&self) -> u64 {
        let taken = || self.supply.mapped_bytes().unwrap_or_else(|| self.depot().accounts.now.charged);
        let before = taken();
        self.log_kept(self.trim_own_to(0).map(drop));
        before.saturating_sub(taken())
    }

    /// Logs a failure, for callers that go on without the memory.
    pub(crate) fn log_kept(&self, released: Result<(), Error>) {
        if let Err(error) = released {
            logging::warn!("pool {}: memory is kept that was to be released: {error}", self.name);
        }
    }
}
