//! What the limits of a [tree](crate::heap::ledger) allow a pool. Numbers only.

use crate::heap::ledger::accounts::positive;
use crate::heap::ledger::{Bounds, Level, Sum, Waiting};
use crate::heap::{Accounts, Admission, NoShare};
use std::mem;

/// Divisor of the limit for the slots of all magazines together. Idle memory in a magazine serves one thread
/// only, so a request that fits in the rest is never refused because of magazines.
const MAGAZINES_OF_LIMIT: u64 = 8;

/// Divisor of the bytes that the limit leaves beside live memory: the closer the limit, the fewer bytes are
/// out of reach. Magazines are recalled when they have twice as much.
const MAGAZINES_OF_REST: u64 = 4;

/// The bytes of a node, and their excess over its limit.
struct Room {
    limit: u64,
    over: u64,
    sum: Sum,
    /// Whether more counts in the node than before.
    grows: bool,
}

impl Accounts {
    /// Returns the pool's own part of its node.
    pub(crate) fn own(&self) -> Sum {
        let Self { leased, freeing, .. } = *self;
        Sum { charged: self.charged(), idle: self.evictable(), leased, freeing, shares: 0 }
    }

    /// The bytes that count against limits. Blocks of an arena are as large as their classes, or larger.
    fn charged(&self) -> u64 {
        self.now.charged.saturating_sub(self.detached)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { limit: self.caps.limit, share: self.share, is_private: self.is_private }
    }

    /// Returns the idle bytes in the depot that may be released.
    fn evictable(&self) -> u64 {
        if self.is_private { 0 } else { self.now.cached }
    }

    #[inline(always)]
    fn levels(&self) -> impl Iterator<Item = Level> {
        let pool = Level { bounds: self.bounds(), beside: self.below };
        [pool].into_iter().chain(self.above.iter().copied())
    }

    /// The nodes from the pool's to the root, as if the pool's own part of `before` bytes became another one.
    #[inline(always)]
    fn rooms(&self, mut before: u64, own: Sum) -> impl Iterator<Item = Room> {
        let mut counted = own;
        self.levels().map(move |Level { bounds, beside }| {
            let sum = counted.plus(beside);
            // A sum of charged bytes does not overflow; a sum with a request's bytes may.
            let charged = u128::from(counted.charged) + u128::from(beside.charged);
            let over = charged.saturating_sub(bounds.limit.into());
            let grows = counted.charged > before;
            before = before.saturating_add(beside.charged).max(bounds.share);
            counted = bounds.counted(sum);
            Room { limit: bounds.limit, over: u64::try_from(over).unwrap_or(u64::MAX), sum, grows }
        })
    }

    /// As [`rooms`](Self::rooms), with `class` bytes more; `None` if no limit allows as much. A node that counts no
    /// more than before, because they are within a share, refuses them nothing, even if others exceed its limit.
    #[inline(always)]
    fn rooms_with(&self, class: u64) -> Option<impl Iterator<Item = Room>> {
        let own = self.own();
        let rooms = self.rooms(own.charged, Sum { charged: own.charged.checked_add(class)?, ..own });
        Some(rooms.map(|room| Room { over: if room.grows { room.over } else { 0 }, ..room }))
    }

    /// Whether a miss of `class` bytes has to release or await nothing.
    #[inline]
    pub(crate) fn admits_at_once(&self, class: u64) -> bool {
        let fits = |room: Room| room.over == 0 && room.sum.charged <= self.caps.budget;
        self.rooms_with(class).is_some_and(|mut rooms| rooms.all(fits))
            || self.admission(class) == Admission::Evict(0)
    }

    /// Returns the condition for a miss of `class` bytes.
    #[inline(never)]
    pub(crate) fn admission(&self, class: u64) -> Admission {
        let Some(rooms) = self.rooms_with(class) else { return Admission::Full };
        let (own, mut most, mut waits, mut all) = (self.evictable(), 0, false, Sum::default());
        for Room { over, sum, .. } in rooms {
            if over > own {
                if over > own.saturating_add(sum.freeing) {
                    return Admission::Full;
                }
                waits = true;
            }
            (most, all) = (over.max(most), sum);
        }
        let over_budget = all.charged.saturating_sub(self.caps.budget);
        if waits { Admission::Wait } else { Admission::Evict(most.max(over_budget.min(all.idle))) }
    }

    /// Returns the idle bytes of other pools that a miss of `class` bytes must release first, in addition to all idle
    /// bytes of this pool; and the height above the pool's node of the node that contains those pools.
    pub(crate) fn lacking(&self, class: u64) -> Option<(usize, u64)> {
        let (own, help) = (self.own(), self.evictable() + self.awaited());
        let (mut found, root) = (None, self.above.len());
        for (height, Room { over, sum, .. }) in self.rooms_with(class)?.enumerate() {
            let of_others = (sum.idle + sum.leased).saturating_sub(own.idle + own.leased);
            if over > help.saturating_add(of_others).saturating_add(sum.freeing) {
                // It is refused.
                return None;
            }
            let over_budget = if height == root { sum.charged.saturating_sub(self.caps.budget) } else { 0 };
            let lack = over.max(over_budget).saturating_sub(help).min(of_others);
            found = found.or((lack > 0).then_some((height, lack)));
        }
        found
    }

    /// Whether `class` bytes exceed a limit even if all idle memory in depots is released.
    pub(crate) fn is_over_limit_with(&self, class: u64) -> bool {
        self.rooms_with(class).is_none_or(|mut rooms| rooms.any(|room| room.over > room.sum.idle))
    }

    /// Returns the first limit that `class` bytes exceed only because of the needs of earlier requests of `others`, and
    /// the height of its node above the pool's. Memory of the pool that is idle or in transit serves its requests
    /// without more of any limit above that.
    pub(crate) fn reserved_at(
        &self,
        class: u64,
        others: impl Iterator<Item = Waiting> + Clone,
    ) -> Option<(usize, u64)> {
        others.clone().next()?;
        // Its own memory in transit returns to it.
        let mut before = self.charged().saturating_sub(self.now.cached.saturating_add(self.freeing));
        let mut after = before.saturating_add(class);
        self.levels().enumerate().find_map(|(height, Level { bounds, beside })| {
            let reserved = others.clone().filter(|other| other.height == height).map(|other| other.bytes);
            let beside = reserved.fold(beside.in_use(), u64::saturating_add);
            (before, after) = (before.saturating_add(beside), after.saturating_add(beside));
            if after > before && after > bounds.limit {
                return Some((height, bounds.limit));
            }
            (before, after) = (before.max(bounds.share), after.max(bounds.share));
            None
        })
    }

    /// Returns the first limit that `class` bytes exceed even if all idle memory is released, else the one that they
    /// exceed because of what earlier requests need, `before` of the pool and `others`, else the smallest one; and the
    /// height of its node above the pool's.
    pub(crate) fn refusing(
        &self,
        class: u64,
        before: u64,
        others: impl Iterator<Item = Waiting> + Clone,
    ) -> (usize, u64) {
        let rooms = |more| self.rooms_with(more).into_iter().flatten().enumerate();
        let of = |(height, room): (usize, Room)| (height, room.limit);
        let exceeded = |more| rooms(more).find(|(_, room)| room.over > room.sum.idle).map(of);
        let refusing = exceeded(class).or_else(|| exceeded(class.saturating_add(before)));
        let refusing = refusing.or_else(|| self.reserved_at(class, others));
        let refusing = refusing.or_else(|| rooms(class).min_by_key(|(_, room)| room.limit).map(of));
        refusing.unwrap_or((0, self.caps.limit))
    }

    /// Whether `class` bytes may fit once recalled magazines return, of threads that have responded so far.
    pub(crate) fn may_fit_without_magazines(&self, class: u64) -> bool {
        let there = self.evictable().saturating_add(self.freeing).saturating_add(self.awaited());
        self.rooms_with(class).is_some_and(|mut rooms| rooms.all(|room| room.over <= there))
    }

    /// Returns the smallest limit of the nodes from the pool's to the root.
    pub(crate) fn least_limit(&self) -> u64 {
        self.above.iter().map(|level| level.bounds.limit).fold(self.caps.limit, u64::min)
    }

    /// Whether a block may serve a class that is `excess` bytes smaller, so that all blocks that were live at the peak
    /// fit within the limit beside it.
    pub(crate) fn allows(&self, excess: u64) -> bool {
        let expected = Sum { charged: self.expected.saturating_add(excess), ..Sum::default() };
        excess == 0 || self.rooms(0, expected).all(|room| room.over == 0)
    }

    /// Returns the first limit that has no room for `bytes` in place of all memory of the pool, once others have
    /// released what they can, and the height of its node above the pool's.
    pub(crate) fn without_room_for(&self, bytes: u64) -> Option<(usize, u64)> {
        let mut rooms = self.rooms(0, Sum { charged: bytes, ..Sum::default() }).enumerate();
        rooms.find_map(|(height, Room { limit, over, sum, grows })| {
            (grows && over > sum.idle.saturating_add(sum.leased).saturating_add(sum.freeing))
                .then_some((height, limit))
        })
    }

    /// Returns the most bytes that the limits admit in addition to live memory, once all idle memory is released.
    pub(crate) fn room(&self) -> u64 {
        let fits = |bytes: u64| {
            let there = |sum: Sum| sum.idle.saturating_add(sum.leased).saturating_add(sum.freeing);
            self.rooms_with(bytes).is_some_and(|mut rooms| rooms.all(|room| room.over <= there(room.sum)))
        };
        let bits = (0..u64::BITS).rev().map(|bit| 1 << bit);
        bits.fold(0, |most, bit| if fits(most | bit) { most | bit } else { most })
    }

    /// Returns how many more slots of `class` may be leased from a bucket with `kept` idle blocks and slots.
    pub(crate) fn leasable(&self, class: u64, kept: u64) -> u64 {
        let cacheable = self.caps.max_cached_bytes.saturating_sub(self.idle() + self.others_idle);
        let rooms = self.rooms(0, self.own()).zip(self.rests());
        let leasable = |(Room { limit, sum, .. }, rest): (Room, u64)| {
            (limit / MAGAZINES_OF_LIMIT).min(rest / MAGAZINES_OF_REST).saturating_sub(sum.leased)
        };
        let bytes = rooms.map(leasable).fold(cacheable, u64::min);
        self.caps.max_buffers_per_bucket.saturating_sub(kept).min(bytes / class)
    }

    /// Returns the bytes that each limit leaves beside live memory, as far as threads have reported.
    fn rests(&self) -> impl Iterator<Item = u64> {
        let live = Sum { charged: positive(self.live), ..Sum::default() };
        let taken = |sum: Sum| sum.charged.saturating_sub(sum.idle + sum.leased);
        self.rooms(0, live).map(move |room| room.limit.saturating_sub(taken(room.sum)))
    }

    /// Whether magazines have much more than they would get now, because live memory grew.
    pub(crate) fn is_overleased(&self) -> bool {
        self.rests().any(|rest| self.leased > rest / MAGAZINES_OF_REST * 2)
    }

    /// Whether nodes below the pool's have shares.
    pub(crate) fn has_shares_below(&self) -> bool {
        self.below.shares > 0
    }

    /// Returns the bytes charged to the pool's node.
    pub(crate) fn charged_together(&self) -> u64 {
        self.charged() + self.below.charged
    }

    /// Sets the share.
    ///
    /// # Errors
    /// The first node above that has no room for a larger share; the share is then unchanged.
    pub(crate) fn set_share(&mut self, share: u64) -> Result<(), NoShare> {
        let before = mem::replace(&mut self.share, share);
        let lacking = self.rooms(0, self.own()).enumerate().skip(1).find(|(_, room)| room.over > 0);
        let Some((height, Room { limit, over, sum, .. })) = lacking.filter(|_| share > before) else {
            self.changes += 1;
            return Ok(());
        };
        self.share = before;
        let unused = before.saturating_sub(self.charged_together());
        Err(NoShare { height, limit, lacking: over, is_in_transit: over <= sum.freeing, unused })
    }
}
