//! The limit and the budget: whether a miss may ask the source, and what must be released or waited for first.

use crate::heap::accounts::Admission;
use crate::heap::block::Block;
use crate::heap::core::Life;
use crate::heap::depot::Depot;
use crate::heap::queue_position::Position;
use crate::heap::share::{Share, beyond};
use crate::source::Key;

/// The outcome of a miss's request for permission.
#[derive(Debug)]
#[must_use]
pub(crate) enum Permit {
    /// Drop the blocks without the lock, report `surplus` bytes as freed, then ask the device.
    Granted { evicted: Vec<Box<Block>>, surplus: u64 },
    /// Wait until memory is freed, then ask again.
    Wait,
    /// The limit does not allow it.
    Refused,
    /// It fits only in bytes that are reserved for earlier requests, which wait.
    ReservedForWaiter,
    /// The program has closed the pool.
    Closed,
}

impl Depot {
    /// Whether a miss of `class` bytes cannot be reserved at once, because memory must be released or awaited first,
    /// requests wait, or the pool is closed. `share`: that of the requesting child, if any.
    #[inline]
    pub(crate) fn is_short_of(&self, class: u64, share: Option<&Share>) -> bool {
        self.queue.awaits_release()
            || self.is_guarded()
            || self.accounts.admission(beyond(share, class)) != Admission::Evict(0)
    }

    /// Whether `class` bytes are reserved for requests with a deadline that are earlier than the one at `position`.
    #[inline]
    pub(crate) fn is_reserved_for_waiter(&self, class: u64, position: &Position<'_>) -> bool {
        let (before, beyond) = (self.queue.reserved_before(position.number()), position.beyond(class));
        before > 0 && beyond > 0 && self.is_over_limit_with(beyond.saturating_add(before))
    }

    /// Whether `class` bytes exceed the limit even if this depot and those with the same caps release all idle memory.
    pub(crate) fn is_over_limit_with(&self, class: u64) -> bool {
        self.accounts.is_over_limit_with(class)
    }

    /// Whether a block is idle for a miss of `key` that would have to release memory: one was freed since its search.
    pub(crate) fn has_idle_instead(&mut self, key: Key, position: &Position<'_>) -> bool {
        self.life != Life::Closed
            && !self.is_reserved_for_waiter(key.class, position)
            && self.accounts.admission(position.beyond(key.class)) != Admission::Evict(0)
            && !self.has_nothing_for(&position.keys(self, key))
    }

    /// Decides whether a miss of `class` bytes may ask the device, and evicts what it must release first.
    /// With `may_wait`, earlier requests that wait for memory that is being released come first.
    pub(crate) fn permit(&mut self, class: u64, position: &Position<'_>, may_wait: bool) -> Permit {
        if self.life == Life::Closed {
            return Permit::Closed;
        }
        if self.is_reserved_for_waiter(class, position) {
            return Permit::ReservedForWaiter;
        }
        let beyond = position.beyond(class);
        let before = if may_wait { self.queue.released_before(position.number()) } else { 0 };
        let admission = self.accounts.admission(beyond);
        let is_behind = before > 0 && beyond > 0 && admission != Admission::Full;
        if is_behind && !self.accounts.admits(beyond.saturating_add(before)) {
            return Permit::Wait;
        }
        match admission {
            Admission::Wait => Permit::Wait,
            Admission::Full => Permit::Refused,
            Admission::Evict(bytes) => {
                let evicted = self.evict(bytes);
                if !evicted.is_empty() {
                    self.counters.rungs.evict += 1;
                }
                let bytes = evicted.iter().map(|block| block.key.class).sum();
                let surplus = self.accounts.reserve(class, bytes);
                self.accounts.charge(position.share(), class);
                Permit::Granted { evicted, surplus }
            }
        }
    }
}
