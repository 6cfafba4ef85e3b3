//! Room within limit and budget, for a miss or a share: idle memory is released, and memory in transit and other
//! threads' magazines are waited for, until the request has a [permit](crate::heap::request::permit).

use crate::error::{Error, Shortage};
use crate::heap::ledger::Asked;
use crate::heap::magazine::left_blocks;
use crate::heap::request::{NoRoom, Position, Request, Reservation};
use crate::heap::store::is_releasing;
use crate::heap::{Awaited, BackendState, Depot, DepotGuard, Life, NoShare, PoolCore, Recall, magazine};
use crate::streams::Need;
use crate::sync::Instant;
use std::sync::Arc;
use std::time::Duration;
use vrampool_backend::Backend;

/// Longest wait of a request without memory for threads that keep idle memory and make no call.
const PATIENCE: Duration = Duration::from_millis(100);

impl<B: Backend> Request<'_, B> {
    /// Reserves the bytes of the request within limit and budget, and releases idle memory as they require. With
    /// `takes_idle`, fails with [`NoRoom::Idle`] while an idle block serves it. Fails with [`NoRoom::Refused`] where
    /// memory may not be released or waited for, and if the pool is closed or asleep.
    pub(super) fn make_room(&self, takes_idle: bool) -> Result<Reservation, NoRoom> {
        let &Request { pool, key, requested, position, .. } = self;
        let (class, is_of_arena) = (key.class, !self.supply().asks_driver(key));
        let (mut recalled, mut others_help) = (false, true);
        let mut depot = pool.depot();
        let outcome = loop {
            if let Err(closed) = depot.check_open() {
                break Err(NoRoom::Refused(closed));
            }
            if is_of_arena
                && depot.life == Life::Asleep
                && let BackendState::Arena(state) = &depot.backend_state
            {
                let live_bytes = state.used();
                break Err(NoRoom::Refused(Error::Asleep { requested_bytes: requested, live_bytes }));
            }
            if takes_idle && depot.has_idle_instead(key, position) {
                break Err(NoRoom::Idle);
            }
            if !recalled && depot.is_short_of(class) {
                recalled = true;
                drop(depot);
                self.allow_release().map_err(NoRoom::Refused)?;
                depot = recall_for(pool, class);
                continue;
            }
            // A destructor must not wait: the missing memory may be the memory being dropped.
            let may_wait = !is_releasing() && !position.is_over();
            match depot.permit(class, position, may_wait) {
                Err(NoRoom::Wait) if may_wait => {
                    if depot.queue.awaited(position.number()) != Awaited::Release {
                        depot.counters.rungs.wait += 1;
                        position.set(&mut depot, class, Awaited::Release);
                    }
                    depot = position.sleep(depot, None);
                }
                Err(NoRoom::Limit) if others_help && depot.accounts.lacking(class).is_some() => {
                    drop(depot);
                    others_help = pool.relieve(class);
                    depot = pool.depot();
                }
                Err(NoRoom::Limit) if may_wait && depot.accounts.may_fit_without_magazines(class) => {
                    // If recalled threads return nothing, this condition is true only once.
                    depot = position.wait_for_magazines(depot, |depot| depot.accounts.admits(class));
                }
                answer => break answer,
            }
        };
        let bytes = if outcome.is_ok() { 0 } else { class };
        let did_wait = position.end_wait(&mut depot, bytes);
        drop(depot);
        if did_wait {
            // Another waiting request may be first now.
            pool.notify_freed();
        }
        let (evicted, surplus) = outcome?;
        // From here on, even after a panic, the reservation is committed or cancelled.
        let reservation = Reservation::new(Arc::clone(pool), class);
        pool.release_counted(evicted, surplus);
        Ok(reservation)
    }
}

impl Position<'_> {
    /// Recalls magazines and waits until other threads have returned them or `enough` holds. Each thread
    /// returns them at its next call. A thread that makes no call is waited for [once](PATIENCE); no wait is longer
    /// than the time of the request.
    pub(in crate::heap) fn wait_for_magazines(
        &self,
        mut depot: DepotGuard,
        enough: impl Fn(&Depot) -> bool,
    ) -> DepotGuard {
        if depot.accounts.awaited() == 0 || enough(&depot) {
            return depot;
        }
        depot.counters.rungs.wait += 1;
        let (position, until) = (Position::new(self.pool), Instant::now() + PATIENCE);
        position.set(&mut depot, 0, Awaited::Change);
        while depot.accounts.awaited() > 0 && !enough(&depot) {
            if self.is_over() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || cfg!(model) {
                depot.accounts.stop_waiting();
                break;
            }
            // Recall again after each notification: a thread that returned its magazines may have new ones.
            self.pool.recall(&mut depot, Recall::Memory);
            depot = position.sleep(depot, self.time_left().into_iter().chain([left]).min());
        }
        position.leave(&mut depot);
        depot
    }

    /// Whether a request of `bytes` would get memory that earlier requests wait for.
    pub(crate) fn is_behind_waiter(&self, bytes: u64) -> bool {
        let class = self.pool.class_of(bytes);
        class.is_some_and(|class| {
            let depot = self.pool.depot();
            !depot.refuses() && depot.is_reserved_for_waiter(class, self)
        })
    }
}

/// Recalls what a miss of `class` bytes may need: of this thread, of ended threads, of the other pools of the tree,
/// and of other threads. Returns the locked depot.
fn recall_for(pool: &PoolCore, class: u64) -> DepotGuard {
    magazine::leave(pool);
    left_blocks::free();
    pool.relieve(class);
    let mut depot = pool.depot();
    if depot.accounts.is_over_limit_with(class) && depot.accounts.leased > 0 {
        pool.recall(&mut depot, Recall::Memory);
    } else if depot.accounts.is_overleased() {
        pool.recall(&mut depot, Recall::Slots);
    }
    depot
}

/// Sets the share in the accounts. Returns the one before.
pub(crate) fn reserve_share<B: Backend>(pool: &PoolCore, bytes: u64) -> Result<u64, Error> {
    let refuse = |reason: &str| Err(Error::configuration("share", bytes.to_string(), reason));
    if pool.parent.is_none() {
        return refuse("the pool is no child of another one; make it by `Pool::child`");
    }
    let position = Position::new(pool);
    loop {
        let mut depot = pool.depot();
        let before = depot.accounts.share;
        if bytes > depot.accounts.caps.limit {
            return refuse("the child's limit is lower; raise it first");
        }
        if bytes > before {
            depot.check_open()?;
        }
        let NoShare { height, limit, lacking, is_in_transit, unused } = match depot.accounts.set_share(bytes)
        {
            Ok(()) => {
                position.leave(&mut depot);
                return Ok(before);
            }
            Err(lack) => lack,
        };
        if is_in_transit && !is_releasing() {
            position.set(&mut depot, 0, Awaited::Change);
            drop(position.sleep(depot, None));
            continue;
        }
        drop(depot);
        if pool.trim_others(height, lacking, Asked { class: 0, share: Some(bytes) }) == 0 {
            let counted = pool.depot().accounts.charged_together();
            let need = Need { requested: bytes, class: bytes.saturating_sub(before.max(counted)).max(1) };
            let mut error = position.lack::<B>(need, Shortage::Limit(limit), Some(height));
            error.unused_share_bytes += unused;
            position.count_out_of_memory(&error, false);
            return Err(error.into());
        }
    }
}
