//! The byte accounts of one pool. Numbers only: no lock, no device.
//!
//! ```text
//! held = out + cached ≤ taken from the device ≤ charged = held + in transit
//! charged ≤ limit, cached ≤ max_cached, always
//! ```
//!
//! *In transit* are bytes that are reserved for a pending allocation of the device, or that were evicted and
//! are not released yet. They stay charged meanwhile, so `charged` is an upper bound, and `held` a lower
//! bound, of the bytes taken from the device. The limit bounds the first; the second is reported.

use crate::cache::caps::Caps;

/// The part of the limit that all threads' magazines may have together: what is idle in one of a running
/// thread serves no other, so a request that fits within the rest is never refused for it.
const MAGAZINES_OF_LIMIT: u64 = 8;

/// The part that they may have of what the limit leaves beside live memory: the closer that is, the fewer
/// bytes are out of reach. They are called back when they have twice as much.
const MAGAZINES_OF_REST: u64 = 4;

/// Bytes by where they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// Out of the depot: with borrowers, or idle in a magazine.
    pub(crate) out: u64,
    /// Idle in the depot.
    pub(crate) cached: u64,
    /// All that counts against limit and budget.
    pub(crate) charged: u64,
}

impl Bytes {
    /// Live and idle.
    #[inline]
    pub(crate) fn held(&self) -> u64 {
        self.out + self.cached
    }
}

/// The most bytes there ever were: with borrowers, as far as threads have [told](Accounts::tell); cached with
/// all that magazines had slots for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    pub(crate) requested: u64,
    pub(crate) live: u64,
    pub(crate) cached: u64,
    pub(crate) held: u64,
}

/// Bytes with borrowers. Each wraps: one thread may tell what it took back before another tells what it lent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lent {
    /// What they asked for.
    pub(crate) requested: u64,
    /// What they got.
    pub(crate) live: u64,
}

/// What a miss has to do before it may ask the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Give at least this much idle memory back first; 0 = none.
    Evict(u64),
    /// Wait: another thread is giving back enough.
    Wait,
    /// There will be none.
    Full,
}

#[derive(Debug)]
pub(crate) struct Accounts {
    pub(crate) caps: Caps,
    pub(crate) now: Bytes,
    pub(crate) peak: Peak,
    /// Bytes asked for by borrowers, as far as threads have told. Apart from what they got: a return changes
    /// one and then the other, and if the next loan took both at once it would wait until both had reached
    /// the cache.
    pub(crate) requested: u64,
    /// Bytes of the slots that threads' magazines have, filled or not. They count as cached.
    pub(crate) leased: u64,
    /// The part of these whose threads did not give them back in time when they were called back.
    unanswered: u64,
    /// The highest end of a block in an arena of fixed size.
    pub(crate) peak_end: u64,
    /// Bytes taken from the device in all.
    pub(crate) allocated: u64,
    /// Bytes that borrowers got, as far as threads have told.
    live: u64,
    /// The part of what is in transit that will come back to the device.
    freeing: u64,
    /// What came back to the device in all.
    freed: u64,
}

impl Accounts {
    pub(crate) fn new(caps: Caps) -> Self {
        Self {
            caps,
            now: Bytes::default(),
            peak: Peak::default(),
            requested: 0,
            live: 0,
            leased: 0,
            unanswered: 0,
            peak_end: 0,
            allocated: 0,
            freeing: 0,
            freed: 0,
        }
    }

    /// Whether the cap on idle bytes lets a released block of `class` stay.
    #[inline]
    pub(crate) fn may_cache(&self, class: u64) -> bool {
        (self.now.cached + self.leased).saturating_add(class) <= self.caps.max_cached_bytes
    }

    /// Whether one more may stay in a bucket of so many idle blocks and slots leased from it.
    #[inline]
    pub(crate) fn bucket_may_keep(&self, kept: u64) -> bool {
        kept < self.caps.max_buffers_per_bucket
    }

    /// What a miss of `class` bytes has to do first.
    #[inline]
    pub(crate) fn admission(&self, class: u64) -> Admission {
        let Some(needed) = self.now.charged.checked_add(class) else { return Admission::Full };
        let over_limit = needed.saturating_sub(self.caps.limit);
        if over_limit > self.now.cached {
            let all = self.now.cached.saturating_add(self.freeing);
            return if over_limit <= all { Admission::Wait } else { Admission::Full };
        }
        let over_budget = needed.saturating_sub(self.caps.budget);
        Admission::Evict(over_limit.max(over_budget.min(self.now.cached)))
    }

    /// Idle memory left its bucket for good and is about to be given back.
    pub(crate) fn evict(&mut self, bytes: u64) {
        self.now.cached -= bytes;
        self.freeing += bytes;
    }

    /// Reserves `class` bytes for a miss, of which up to `evicted` are its own evictions that are not given
    /// back yet: it takes their place, so nobody else can take it in between. Answers how much of them comes
    /// back to the device.
    pub(crate) fn reserve(&mut self, class: u64, evicted: u64) -> u64 {
        let replaced = class.min(evicted);
        self.freeing -= replaced;
        self.now.charged += class - replaced;
        evicted - replaced
    }

    /// Memory that was evicted or dropped is with the device again.
    pub(crate) fn freed(&mut self, bytes: u64) {
        self.freeing -= bytes;
        self.freed = self.freed.wrapping_add(bytes);
        self.now.charged -= bytes;
    }

    /// The device did not deliver reserved bytes.
    pub(crate) fn cancel(&mut self, class: u64) {
        self.now.charged -= class;
    }

    /// The device delivered reserved bytes.
    #[inline]
    pub(crate) fn allocated(&mut self, class: u64, requested: u64) {
        self.allocated = self.allocated.saturating_add(class);
        self.now.out += class;
        self.peak.held = self.peak.held.max(self.now.held());
        self.note_cached();
        self.lend(class, requested);
    }

    /// A source without a reservation gave `class` bytes at once.
    #[inline]
    pub(crate) fn taken(&mut self, class: u64, requested: u64) {
        self.now.charged += class;
        self.allocated(class, requested);
    }

    /// An idle block leaves its bucket.
    pub(crate) fn reused(&mut self, class: u64) {
        self.now.cached -= class;
        self.now.out += class;
    }

    /// A borrower gets a block.
    #[inline]
    pub(crate) fn lend(&mut self, class: u64, requested: u64) {
        self.live = self.live.wrapping_add(class);
        self.requested = self.requested.wrapping_add(requested);
        self.note_lent(self.requested, self.live);
    }

    /// A borrower gave a block back.
    pub(crate) fn returned(&mut self, class: u64, requested: u64) {
        self.live = self.live.wrapping_sub(class);
        self.requested = self.requested.wrapping_sub(requested);
    }

    /// A thread lent so many more bytes from its magazines since it last told, and in between at most so many
    /// more.
    pub(crate) fn tell(&mut self, more: Lent, at_most: Lent) {
        self.note_lent(self.requested.wrapping_add(at_most.requested), self.live.wrapping_add(at_most.live));
        self.requested = self.requested.wrapping_add(more.requested);
        self.live = self.live.wrapping_add(more.live);
    }

    #[inline]
    fn note_lent(&mut self, requested: u64, live: u64) {
        self.peak.live = self.peak.live.max(positive(live));
        self.peak.requested = self.peak.requested.max(positive(requested));
    }

    /// A block is kept in its bucket.
    pub(crate) fn cached(&mut self, class: u64) {
        self.now.out -= class;
        self.now.cached += class;
        self.note_cached();
    }

    /// Magazines keep at most what they have slots for, and at most what is out.
    #[inline]
    fn note_cached(&mut self) {
        self.peak.cached = self.peak.cached.max(self.most_cached());
    }

    #[inline]
    fn most_cached(&self) -> u64 {
        self.now.cached + self.leased.min(self.now.out)
    }

    /// A block is about to be given to the device.
    pub(crate) fn dropped(&mut self, class: u64) {
        self.now.out -= class;
        self.freeing += class;
    }

    /// How many more slots of `class` may be leased from a bucket that has `kept` idle blocks and slots
    /// already.
    pub(crate) fn leasable(&self, class: u64, kept: u64) -> u64 {
        let cacheable = self.caps.max_cached_bytes.saturating_sub(self.now.cached + self.leased);
        let most = (self.caps.limit / MAGAZINES_OF_LIMIT).min(self.rest() / MAGAZINES_OF_REST);
        let bytes = cacheable.min(most.saturating_sub(self.leased));
        self.caps.max_buffers_per_bucket.saturating_sub(kept).min(bytes / class)
    }

    /// What the limit leaves beside live memory, as far as threads have told.
    fn rest(&self) -> u64 {
        self.caps.limit.saturating_sub(positive(self.live))
    }

    /// Whether magazines have much more than they would get now: live memory grew since.
    pub(crate) fn is_overleased(&self) -> bool {
        self.leased > self.rest() / MAGAZINES_OF_REST * 2
    }

    /// Whether `class` bytes may fit within the limit once magazines are given back that were called back,
    /// by threads that have answered so far.
    pub(crate) fn may_fit_without_magazines(&self, class: u64) -> bool {
        let there = self.now.cached.saturating_add(self.freeing).saturating_add(self.awaited());
        let needed = self.now.charged.saturating_add(class);
        needed.saturating_sub(self.caps.limit) <= there
    }

    /// Bytes of slots whose threads may give them back.
    pub(crate) fn awaited(&self) -> u64 {
        self.leased - self.unanswered
    }

    /// Threads that have slots now did not give them back in time. They are not waited for again.
    pub(crate) fn give_up_waiting(&mut self) {
        self.unanswered = self.leased;
    }

    pub(crate) fn lease(&mut self, bytes: u64) {
        self.leased += bytes;
        self.note_cached();
    }

    pub(crate) fn unlease(&mut self, bytes: u64) {
        self.leased -= bytes;
        self.unanswered = self.unanswered.min(self.leased);
    }

    /// What will have come back in all once everything that is on its way now has.
    pub(crate) fn freed_when_quiet(&self) -> u64 {
        self.freed.wrapping_add(self.freeing)
    }

    /// Whether as much has come back in all.
    pub(crate) fn has_freed(&self, bytes: u64) -> bool {
        self.freeing == 0 || bytes.wrapping_sub(self.freed) as i64 <= 0
    }

    /// Starts the peaks anew from now; `end` is the end of the highest block in an arena of fixed size.
    pub(crate) fn reset_peaks(&mut self, end: u64) {
        self.peak_end = end;
        self.peak = Peak {
            requested: positive(self.requested),
            live: positive(self.live),
            cached: self.most_cached(),
            held: self.now.held(),
        };
    }
}

/// A sum of which parts may be told later than they were made.
#[inline]
pub(crate) fn positive(wrapping: u64) -> u64 {
    (wrapping as i64).max(0) as u64
}

#[cfg(test)]
mod tests;
