//! Returns idle memory to the source: on close, on trim, to stay within a cap, or without device memory.

use crate::error::Error;
use crate::heap::core::{CLOSED, CLOSED_EPOCH, DepotGuard, PoolCore, Recall, next_epoch};
use crate::heap::depot::Depot;
use crate::heap::magazine;
use crate::heap::magazine::slots;
use crate::heap::permit::Permit;
use crate::heap::queue_position::Position;
use crate::heap::reclaim_thread;
use crate::heap::release::is_releasing;
use crate::heap::request_queue::Awaited;
use crate::heap::reservation::{NoRoom, Reservation};
use crate::source::Key;
use crate::sync::Instant;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;
use vrampool_backend::StreamId;

/// Longest wait of a request without memory for threads that keep idle memory and make no call.
const PATIENCE: Duration = Duration::from_millis(100);

impl PoolCore {
    /// Closes the pool after its last handle: releases idle memory, and keeps none from now on.
    pub(crate) fn close(&self) {
        magazine::leave(self);
        let mut depot = self.depot();
        let (idle, records) = depot.close();
        let magazines = depot.await_magazines();
        self.epoch.store(CLOSED_EPOCH, Relaxed);
        drop(depot);
        if self.has_magazines() {
            slots::release(self.slot);
        }
        // Release: pairs with the acquire load of a thread that looks for caches of closed pools. That thread
        // then also sees this pool's epoch as closed.
        CLOSED.fetch_add(1, Release);
        drop(records);
        self.release_blocks(idle);
        reclaim_thread::add(magazines);
        reclaim_thread::free();
    }

    /// Begins a new epoch: every thread gives up its magazines at its next call of the pool.
    pub(crate) fn recall(&self, depot: &mut Depot, what: Recall) {
        if depot.is_closed() {
            return;
        }
        let epoch = next_epoch();
        if what == Recall::Memory {
            depot.threads.trimmed = epoch;
        }
        self.epoch.store(epoch, Relaxed);
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
        reclaim_thread::free();
        self.release_blocks(idle)
    }

    /// Applies a cap on idle memory that was lowered: releases idle memory beyond `cached_bytes`. What threads have in
    /// magazines follows at their next call, or when they end.
    pub(crate) fn apply_lower_cap(&self, cached_bytes: u64) {
        self.trim_to(cached_bytes);
        let magazines = self.depot().await_magazines();
        reclaim_thread::add(magazines);
    }

    /// Reserves the bytes of `key` within limit and budget, releasing idle memory as they require; with `takes_idle`,
    /// not while an idle block serves `key`.
    ///
    /// `allow_release` is called before memory is released or waited for. The error is the limit, or the error of
    /// `allow_release`.
    pub(crate) fn make_room<'a>(
        &'a self,
        key: Key,
        (position, takes_idle): (&Position<'a>, bool),
        allow_release: impl Fn() -> Result<(), Error>,
    ) -> Result<Reservation<'a>, NoRoom> {
        let class = key.class;
        let (mut recalled, mut others_help) = (false, true);
        let mut depot = self.depot();
        let outcome = loop {
            if takes_idle && depot.has_idle_instead(key, position) {
                break None;
            }
            if !recalled && depot.is_short_of(class, position.share()) {
                recalled = true;
                drop(depot);
                allow_release().map_err(NoRoom::Forbidden)?;
                depot = self.recall_for(position.beyond(class));
            }
            // A destructor must not wait: the missing memory may be the memory being dropped.
            let may_wait = !is_releasing();
            let beyond = position.beyond(class);
            match depot.permit(class, position, may_wait) {
                Permit::Wait if may_wait => {
                    if !position.awaits(Awaited::Release) {
                        depot.counters.rungs.wait += 1;
                        position.set(&mut depot, class, Awaited::Release);
                    }
                    depot = position.sleep(depot, None);
                }
                Permit::Refused if others_help && depot.accounts.lacking(beyond) > 0 => {
                    drop(depot);
                    others_help = self.relieve(beyond);
                    depot = self.depot();
                }
                Permit::Refused if may_wait && depot.accounts.may_fit_without_magazines(beyond) => {
                    // If recalled threads return nothing, this condition is true only once.
                    depot =
                        self.wait_for_magazines(depot, |depot| depot.accounts.admits(position.beyond(class)));
                }
                permit => break Some(permit),
            }
        };
        let bytes = if matches!(outcome, Some(Permit::Granted { .. })) { 0 } else { class };
        let did_wait = position.end_wait(&mut depot, bytes);
        let limit = depot.accounts.caps.limit;
        drop(depot);
        if did_wait {
            // Another waiting request may be first now.
            self.notify_freed();
        }
        match outcome {
            Some(Permit::Granted { evicted, surplus }) => {
                // From here on, even after a panic, the reservation is committed or cancelled.
                let reservation = Reservation::new(self, class, position.share());
                self.release_counted(evicted, surplus);
                Ok(reservation)
            }
            Some(Permit::Wait | Permit::Refused | Permit::ReservedForWaiter) => Err(NoRoom::Limit(limit)),
            Some(Permit::Closed) => Err(NoRoom::Closed),
            None => Err(NoRoom::Idle),
        }
    }

    /// Recalls what a miss of `class` bytes may need: of this thread, of ended threads, of pools with the same caps,
    /// and of other threads. Returns the locked depot.
    fn recall_for(&self, class: u64) -> DepotGuard {
        magazine::leave(self);
        reclaim_thread::free();
        self.relieve(class);
        let mut depot = self.depot();
        if depot.is_over_limit_with(class) && depot.accounts.leased > 0 {
            self.recall(&mut depot, Recall::Memory);
        } else if depot.accounts.is_overleased() {
            self.recall(&mut depot, Recall::Slots);
        }
        depot
    }

    /// Releases `bytes` of idle memory for a device without memory. Returns whether any was idle.
    pub(crate) fn evict_idle(&self, bytes: u64) -> bool {
        magazine::leave(self);
        reclaim_thread::free();
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
    /// other threads are releasing.
    pub(crate) fn evict_all(&self) {
        magazine::leave(self);
        reclaim_thread::free();
        let mut depot = self.depot();
        if depot.accounts.leased > 0 {
            self.recall(&mut depot, Recall::Memory);
        }
        depot.counters.rungs.trim += 1;
        let idle = depot.evict(u64::MAX);
        drop(depot);
        self.release_blocks(idle);
        if !is_releasing() {
            // This may be the missing memory.
            let mut depot = self.wait_for_magazines(self.depot(), |_| false);
            let quiet = depot.accounts.freed_when_quiet();
            if depot.accounts.has_freed(quiet) {
                return;
            }
            depot.counters.rungs.wait += 1;
            let position = Position::new(self);
            position.set(&mut depot, 0, Awaited::Change);
            while !depot.accounts.has_freed(quiet) {
                depot = position.sleep(depot, None);
            }
            position.leave(&mut depot);
        }
    }

    /// Recalls magazines and waits until other threads have returned them or `enough` holds. Each thread
    /// returns them at its next call. A thread that makes no call is waited for [once](PATIENCE).
    fn wait_for_magazines(&self, mut depot: DepotGuard, enough: impl Fn(&Depot) -> bool) -> DepotGuard {
        if depot.accounts.awaited() == 0 || enough(&depot) {
            return depot;
        }
        depot.counters.rungs.wait += 1;
        let (position, until) = (Position::new(self), Instant::now() + PATIENCE);
        position.set(&mut depot, 0, Awaited::Change);
        while depot.accounts.awaited() > 0 && !enough(&depot) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || cfg!(model) {
                depot.accounts.give_up_waiting();
                break;
            }
            // Recall again after each notification: a thread that returned its magazines may have new ones.
            self.recall(&mut depot, Recall::Memory);
            depot = position.sleep(depot, Some(left));
        }
        position.leave(&mut depot);
        depot
    }

    /// Releases idle memory before the source maps more for `key` on `stream`, so that a pool does not grow
    /// beside idle memory that may serve as well. Returns whether any was released, so that the source can be
    /// asked again.
    ///
    /// * First, idle blocks of the depot that `stream` may use without a wait; then this thread's magazines.
    /// * Blocks that are idle for other streams stay: they would take waits, and blocks of a captured stream
    ///   serve no other stream. Blocks of another kind are not the source's.
    /// * Other threads' magazines are recalled for later requests.
    pub(crate) fn free_for_source(&self, key: Key, stream: StreamId) -> bool {
        if !self.caps.cache(key.class) {
            // All idle blocks are smaller.
            return false;
        }
        let mut depot = self.depot();
        let mut idle = depot.evict_ready(key.kind, stream);
        if idle.is_empty() {
            drop(depot);
            magazine::leave(self);
            depot = self.depot();
            if depot.accounts.leased > 0 {
                self.recall(&mut depot, Recall::Slots);
            }
            idle = depot.evict_ready(key.kind, stream);
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
}
