//! Caps that hold for several pools together.

use crate::heap::accounts::Accounts;
use crate::heap::caps::Shared;

impl Accounts {
    /// Returns the bytes charged to the caps, and the unused shares of children.
    pub(crate) fn charged_together(&self) -> u64 {
        self.now.charged + self.unused_shares + self.others.charged
    }

    /// Returns the live bytes of other pools with the same caps.
    pub(crate) fn live_beside(&self) -> u64 {
        let idle = self.others.idle_charged + self.others.leased + self.others.unused_shares;
        self.others.charged.saturating_sub(idle)
    }

    /// Whether children have shares of the caps.
    pub(crate) fn has_shares(&self) -> bool {
        self.shares + self.others.shares > 0
    }

    /// Returns the idle bytes of other pools that a miss of `class` bytes must release first, in addition to all idle
    /// bytes of this pool.
    pub(crate) fn lacking(&self, class: u64) -> u64 {
        let Some(needed) = self.charged_with(class) else { return 0 };
        let own = self.now.cached + self.awaited();
        let of_others = self.others.idle_charged + self.others.leased;
        let in_transit = self.freeing + self.others.freeing;
        if needed.saturating_sub(self.caps.limit) > own + of_others + in_transit {
            // It is refused.
            return 0;
        }
        let over = needed.saturating_sub(self.caps.limit.min(self.caps.budget));
        over.saturating_sub(own).min(of_others)
    }

    /// Returns the bytes by which `class` bytes exceed the limit if all idle memory in depots is released.
    pub(crate) fn short_of_limit(&self, class: u64) -> u64 {
        let idle = self.now.cached + self.idle_of_others();
        self.charged_with(class)
            .map_or(u64::MAX, |needed| needed.saturating_sub(self.caps.limit).saturating_sub(idle))
    }

    /// Whether `class` bytes exceed the limit even if all idle memory in depots is released.
    pub(crate) fn is_over_limit_with(&self, class: u64) -> bool {
        self.short_of_limit(class) > 0
    }

    /// Returns the idle bytes of other pools' depots that count against the limit.
    #[inline]
    pub(super) fn idle_of_others(&self) -> u64 {
        self.others.idle_charged
    }

    /// Returns idle bytes, and those of magazines' slots.
    #[inline]
    pub(crate) fn idle(&self) -> u64 {
        self.now.cached + self.leased
    }

    /// Returns what this pool has of its caps.
    pub(crate) fn shared(&self) -> Shared {
        let (idle, leased) = (self.idle(), self.leased);
        let (charged, idle_charged) = (self.now.charged + self.unused_shares, self.now.cached);
        let Self { freeing, shares, unused_shares, .. } = *self;
        Shared { idle, leased, charged, idle_charged, freeing, shares, unused_shares }
    }
}
