//! Returns idle memory to the source: on trim, for a request that would exceed a cap, on out-of-memory of
//! the device.

use crate::cache::core::{PoolCore, Recall, next_epoch};
use crate::cache::depot::Depot;
use crate::cache::evict::Permit;
use crate::cache::magazine;
use crate::cache::oom_rung::Rung;
use crate::cache::orphans;
use crate::cache::release::is_giving_back;
use crate::cache::reservation::{NoRoom, Reservation};
use crate::error::Error;
use crate::source::Key;
use crate::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use vrampool_backend::StreamId;

/// For how long a request that finds no memory waits for threads that keep some idle and make no call.
const PATIENCE: Duration = Duration::from_millis(100);

impl PoolCore {
    /// Begins another epoch: every thread gives up its magazines when it next calls the pool.
    pub(crate) fn recall(&self, depot: &mut Depot, what: Recall) {
        if depot.is_closed() {
            return;
        }
        let epoch = next_epoch();
        if what == Recall::Memory {
            depot.trimmed = epoch;
        }
        self.epoch.store(epoch, Relaxed);
    }

    /// Gives idle memory back until at most `cached_bytes` are idle. Answers how many bytes were given back.
    pub(crate) fn trim_to(&self, cached_bytes: u64) -> u64 {
        magazine::leave(self);
        let mut depot = self.depot();
        let surplus =
            depot.accounts.now.cached.saturating_add(depot.accounts.leased).saturating_sub(cached_bytes);
        if surplus > depot.accounts.now.cached {
            self.recall(&mut depot, Recall::Memory);
        }
        let idle = depot.evict(surplus);
        drop(depot);
        orphans::free();
        self.give_back(idle)
    }

    /// The arena forgot its blocks: gives up what is idle. Blocks that are out are not kept when they come
    /// back, and until all of them have there are no magazines, which do not look at a block that comes back.
    /// Returns whether the pool is open.
    pub(crate) fn forget_idle(&self) -> bool {
        let mut depot = self.depot();
        if depot.is_closed() {
            return false;
        }
        self.recall(&mut depot, Recall::Memory);
        let idle = depot.begin_generation();
        self.generation.store(depot.generation, Relaxed);
        drop(depot);
        self.give_back(idle);
        magazine::leave(self);
        true
    }

    /// Reserves `class` bytes within limit and budget, giving idle memory back where they demand it.
    /// The error is the limit, or what `relief` answers, which is asked before anything is given back or
    /// waited for.
    pub(crate) fn make_room(
        &self,
        class: u64,
        relief: impl Fn() -> Result<(), Error>,
    ) -> Result<Reservation<'_>, NoRoom> {
        let (mut number, mut recalled) = (None, false);
        let mut depot = self.depot();
        let outcome = loop {
            if !recalled && depot.is_short_of(class) {
                recalled = true;
                drop(depot);
                relief().map_err(NoRoom::Relief)?;
                magazine::leave(self);
                orphans::free();
                depot = self.depot();
                if depot.is_over_limit_with(class) && depot.accounts.leased > 0 {
                    self.recall(&mut depot, Recall::Memory);
                } else if depot.accounts.is_overleased() {
                    self.recall(&mut depot, Recall::Slots);
                }
            }
            // In a destructor nobody waits: what is to come back may be what is being dropped.
            let may_wait = !is_giving_back();
            match depot.permit(class, number, may_wait) {
                Permit::Wait if may_wait => {
                    if number.is_none() {
                        depot.count(Rung::Wait);
                        number = Some(depot.begin_wait(class));
                    }
                    depot = self.wait_for_freed(depot);
                }
                Permit::Refused if may_wait && depot.accounts.may_fit_without_magazines(class) => {
                    // Where threads that were called back give nothing, this is true only once.
                    depot = self.wait_for_magazines(depot, |depot| !depot.is_over_limit_with(class));
                }
                permit => break permit,
            }
        };
        let do_others_wait = number.is_some_and(|number| depot.end_wait(number));
        let limit = depot.accounts.caps.limit;
        drop(depot);
        if do_others_wait {
            // Perhaps one of them is first now.
            self.notify_freed();
        }
        match outcome {
            Permit::Granted { evicted, surplus } => {
                // From here on the reservation is committed or cancelled, whatever a destructor or the device
                // does.
                let reservation = Reservation::new(self, class);
                self.give_back_counting(evicted, surplus);
                Ok(reservation)
            }
            Permit::Wait | Permit::Refused => Err(NoRoom::Limit(limit)),
        }
    }

    /// The device has no memory left: gives back `bytes` of idle memory. Returns whether there was any.
    pub(crate) fn relieve(&self, bytes: u64) -> bool {
        magazine::leave(self);
        orphans::free();
        let mut depot = self.depot();
        if depot.accounts.now.cached == 0 {
            return false;
        }
        depot.count(Rung::Trim);
        let idle = depot.evict(bytes);
        drop(depot);
        self.give_back(idle);
        true
    }

    /// As [`relieve`](Self::relieve), of all idle memory: calls magazines back, too, and waits for what other
    /// threads are giving back at this moment.
    pub(crate) fn relieve_wholly(&self) {
        magazine::leave(self);
        orphans::free();
        let mut depot = self.depot();
        if depot.accounts.leased > 0 {
            self.recall(&mut depot, Recall::Memory);
        }
        depot.count(Rung::Trim);
        let idle = depot.evict(u64::MAX);
        drop(depot);
        self.give_back(idle);
        if !is_giving_back() {
            // It may be just what is missing.
            let mut depot = self.wait_for_magazines(self.depot(), |_| false);
            let quiet = depot.accounts.freed_when_quiet();
            if !depot.accounts.has_freed(quiet) {
                depot.count(Rung::Wait);
            }
            while !depot.accounts.has_freed(quiet) {
                depot = self.wait_for_freed(depot);
            }
        }
    }

    /// Calls magazines back and waits until other threads have given them back, which each does at its next
    /// call, or there is `enough`. A thread that makes no call is waited for [once](PATIENCE).
    fn wait_for_magazines(
        &self,
        mut depot: MutexGuard<'static, Depot>,
        enough: impl Fn(&Depot) -> bool,
    ) -> MutexGuard<'static, Depot> {
        let mut until = None;
        while depot.accounts.awaited() > 0 && !enough(&depot) {
            if until.is_none() {
                depot.count(Rung::Wait);
            }
            let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || cfg!(model) {
                depot.accounts.give_up_waiting();
                break;
            }
            // Again after each notice: a thread that gave magazines back may have others by now.
            self.recall(&mut depot, Recall::Memory);
            depot = self.place.0.wait_at_most(depot, left);
        }
        depot
    }

    /// Lets the depot go until memory was freed, a reservation was cancelled, or a request had its answer.
    pub(crate) fn wait_for_freed(&self, depot: MutexGuard<'static, Depot>) -> MutexGuard<'static, Depot> {
        self.place.0.wait(depot)
    }

    /// The source is about to map more for `key` on `stream`: gives it back what is idle there, where that
    /// may serve as well, so that a pool does not grow for what it keeps idle; and what this thread keeps for
    /// itself only when that was not enough. What is idle for other streams stays: it would take waits, and a
    /// captured stream's nobody else gets. So does what is of another kind, which is not the source's.
    /// Magazines of other threads are called back for the next time. Answers whether it gave anything back,
    /// and so is to be asked again.
    pub(crate) fn free_for_source(&self, key: Key, stream: StreamId) -> bool {
        if !self.caps.cache(key.class) {
            // All that is idle is smaller.
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
        // With their records kept: what is idle now is asked for again.
        let refused = idle.into_iter().filter_map(|block| depot.recycle(block)).collect();
        drop(depot);
        self.notify_freed();
        self.give_back(refused);
        true
    }
}
