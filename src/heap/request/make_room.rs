//! Room within limit and budget, for a miss or a share: idle memory is released, and memory in transit and other
//! threads' magazines are waited for, until the request has a [permit](crate::heap::request::permit).

use crate::error::{Error, Shortage};
use crate::heap::core::{BackendState, DepotGuard, Life, PoolCore, Recall};
use crate::heap::ledger::admission::NoShare;
use crate::heap::ledger::pool_tree::Asked;
use crate::heap::magazine;
use crate::heap::magazine::reclaim_thread;
use crate::heap::request::Request;
use crate::heap::request::position::Position;
use crate::heap::request::queue::Awaited;
use crate::heap::request::reservation::{NoRoom, Reservation};
use crate::heap::store::depot::Depot;
use crate::heap::store::release::is_releasing;
use crate::streams::order::Need;
use crate::sync::Instant;
use std::time::Duration;
use vrampool_backend::Backend;

/// Longest wait of a request without memory for threads that keep idle memory and make no call.
const PATIENCE: Duration = Duration::from_millis(100);

impl PoolCore {
    /// Reserves the bytes of `key` within limit and budget, and releases idle memory as they require. With
    /// `takes_idle`, fails with [`NoRoom::Idle`] while an idle block serves `key`.
    ///
    /// `allow_release` is called before memory is released or waited for; its error is [`NoRoom::Refused`].
    pub(super) fn make_room<'a, B: Backend>(
        &'a self,
        request: &Request<'_, B>,
        takes_idle: bool,
        allow_release: impl Fn() -> Result<(), Error>,
    ) -> Result<Reservation<'a>, NoRoom> {
        let &Request { key, position, .. } = request;
        let (class, is_of_arena) = (key.class, !self.supply::<B>().asks_driver(key));
        let (mut recalled, mut others_help) = (false, true);
        let mut depot = self.depot();
        let outcome = loop {
            if let Err(closed) = depot.check_open() {
                break Err(NoRoom::Refused(closed));
            }
            if is_of_arena
                && depot.life == Life::Asleep
                && let BackendState::Arena(state) = &depot.backend_state
            {
                let (requested_bytes, live_bytes) = (request.requested, state.used());
                break Err(NoRoom::Refused(Error::Asleep { requested_bytes, live_bytes }));
            }
            if takes_idle && depot.has_idle_instead(key, position) {
                break Err(NoRoom::Idle);
            }
            if !recalled && depot.is_short_of(class) {
                recalled = true;
                drop(depot);
                allow_release().map_err(NoRoom::Refused)?;
                depot = self.recall_for(class);
                continue;
            }
            // A destructor must not wait: the missing memory may be the memory being dropped.
            let may_wait = !is_releasing() && !position.is_over();
            match depot.permit(class, position, may_wait) {
                Err(NoRoom::Wait) if may_wait => {
                    if !position.awaits(Awaited::Release) {
                        depot.counters.rungs.wait += 1;
                        position.set(&mut depot, class, Awaited::Release);
                    }
                    depot = position.sleep(depot, None);
                }
                Err(NoRoom::Limit) if others_help && depot.accounts.lacking(class).is_some() => {
                    drop(depot);
                    others_help = self.relieve(class);
                    depot = self.depot();
                }
                Err(NoRoom::Limit) if may_wait && depot.accounts.may_fit_without_magazines(class) => {
                    // If recalled threads return nothing, this condition is true only once.
                    depot = self.wait_for_magazines(depot, position, |depot| depot.accounts.admits(class));
                }
                answer => break answer,
            }
        };
        let bytes = if outcome.is_ok() { 0 } else { class };
        let did_wait = position.end_wait(&mut depot, bytes);
        drop(depot);
        if did_wait {
            // Another waiting request may be first now.
            self.notify_freed();
        }
        let (evicted, surplus) = outcome?;
        // From here on, even after a panic, the reservation is committed or cancelled.
        let reservation = Reservation::new(self, class);
        self.release_counted(evicted, surplus);
        Ok(reservation)
    }

    /// Recalls what a miss of `class` bytes may need: of this thread, of ended threads, of the other pools of the tree,
    /// and of other threads. Returns the locked depot.
    fn recall_for(&self, class: u64) -> DepotGuard {
        magazine::leave(self);
        reclaim_thread::free();
        self.relieve(class);
        let mut depot = self.depot();
        if depot.accounts.is_over_limit_with(class) && depot.accounts.leased > 0 {
            self.recall(&mut depot, Recall::Memory);
        } else if depot.accounts.is_overleased() {
            self.recall(&mut depot, Recall::Slots);
        }
        depot
    }

    /// Recalls magazines and waits until other threads have returned them or `enough` holds. Each thread
    /// returns them at its next call. A thread that makes no call is waited for [once](PATIENCE); no wait is longer than
    /// the time of the request at `of`.
    pub(in crate::heap) fn wait_for_magazines(
        &self,
        mut depot: DepotGuard,
        of: &Position<'_>,
        enough: impl Fn(&Depot) -> bool,
    ) -> DepotGuard {
        if depot.accounts.awaited() == 0 || enough(&depot) {
            return depot;
        }
        depot.counters.rungs.wait += 1;
        let (position, until) = (Position::new(self), Instant::now() + PATIENCE);
        position.set(&mut depot, 0, Awaited::Change);
        while depot.accounts.awaited() > 0 && !enough(&depot) {
            if of.is_over() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || cfg!(model) {
                depot.accounts.stop_waiting();
                break;
            }
            // Recall again after each notification: a thread that returned its magazines may have new ones.
            self.recall(&mut depot, Recall::Memory);
            depot = position.sleep(depot, of.time_left().into_iter().chain([left]).min());
        }
        position.leave(&mut depot);
        depot
    }

    /// Sets the share in the accounts. Returns the one before.
    pub(crate) fn reserve_share<B: Backend>(&self, bytes: u64) -> Result<u64, Error> {
        let refuse = |reason: &str| Err(Error::configuration("share", bytes.to_string(), reason));
        if self.parent.is_none() {
            return refuse("the pool is no child of another one; make it by `Pool::child`");
        }
        let position = Position::new(self);
        loop {
            let mut depot = self.depot();
            let before = depot.accounts.share;
            if bytes > depot.accounts.caps.limit {
                return refuse("the child's limit is lower; raise it first");
            }
            if bytes > before {
                depot.check_open()?;
            }
            let NoShare { height, limit, lacking, is_in_transit, unused } =
                match depot.accounts.set_share(bytes) {
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
            if self.trim_others(height, lacking, Asked { class: 0, share: Some(bytes) }) == 0 {
                let counted = self.depot().accounts.charged_together();
                let need = Need { requested: bytes, class: bytes.saturating_sub(before.max(counted)).max(1) };
                let refusing = Some((height, limit));
                let mut error = self.shortage_at::<B>(need, &position, Shortage::Limit(limit), refusing);
                error.unused_share_bytes += unused;
                self.count_out_of_memory(&error, false);
                return Err(error.into());
            }
        }
    }

    /// Whether a request of `bytes` would get memory that earlier requests wait for.
    pub(crate) fn is_reserved_for_waiter(&self, bytes: u64, position: &Position<'_>) -> bool {
        let class = self.class_of(bytes);
        class.is_some_and(|class| {
            let depot = self.depot();
            !depot.refuses() && depot.is_reserved_for_waiter(class, position)
        })
    }
}
