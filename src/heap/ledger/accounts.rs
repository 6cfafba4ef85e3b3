//! The byte accounts of one pool. Numbers only: no lock, no device.
//!
//! ```text
//! held = out + cached ≤ taken from the device ≤ charged = held + in transit
//! charged ≤ limit, cached ≤ max_cached, unless a cap was lowered
//! ```
//!
//! Bytes *in transit* are reserved for a pending allocation of the device, or evicted and not released yet.
//! They stay charged meanwhile. So `charged` is an upper bound, and `held` a lower bound, of the bytes taken
//! from the device. The limit bounds `charged`; `held` is reported.

use crate::environment::UNLIMITED;
use crate::heap::ledger::caps::Caps;
use crate::heap::stats::Peaks;
use crate::heap::{Accounts, Admission, Bytes, Delta};
use crate::streams::Overlap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Bytes {
    #[inline]
    pub(crate) fn held(&self) -> u64 {
        self.out + self.cached
    }
}

impl Accounts {
    pub(crate) fn new(caps: Caps, in_flight: Arc<AtomicU64>) -> Self {
        Self { caps, in_flight, ..Self::default() }
    }

    /// Whether the cap on idle bytes allows a released block of `class` to stay.
    #[inline]
    pub(crate) fn may_cache(&self, class: u64) -> bool {
        (self.idle() + self.others_idle).saturating_add(class) <= self.caps.max_cached_bytes
    }

    /// Whether a bucket with `kept` idle blocks and leased slots may keep one more.
    #[inline]
    pub(crate) fn bucket_may_keep(&self, kept: u64) -> bool {
        kept < self.caps.max_buffers_per_bucket
    }

    /// Whether a miss of `class` bytes may ask the device, once its pool has released what it must.
    pub(crate) fn admits(&self, class: u64) -> bool {
        matches!(self.admission(class), Admission::Evict(_))
    }

    /// Whether new memory of `class` bytes may [spare a wait](Overlap::allows).
    pub(crate) fn overlaps_with(&self, class: u64) -> bool {
        let live = self.peak.live_bytes.max(positive(self.live).saturating_add(class));
        // The reservation checks the budget while idle memory can be released.
        let (bound, refused_at) = (self.caps.overlap, self.overlap_refused_at);
        let overlap = Overlap { bound, within: UNLIMITED, refused_at };
        overlap.allows(self.now.charged, self.now.held().saturating_add(class), live, live)
    }

    /// Counts idle memory that left its bucket and is about to be released.
    pub(crate) fn evict(&mut self, bytes: u64) {
        self.now.cached -= bytes;
        self.freeing += bytes;
    }

    /// Reserves `class` bytes for a miss that evicted `evicted` bytes. These are still charged, so only the excess of
    /// `class` is added, and no other request can take them. Returns the evicted bytes that return to the device.
    pub(crate) fn reserve(&mut self, class: u64, evicted: u64) -> u64 {
        let replaced = class.min(evicted);
        self.freeing -= replaced;
        self.now.charged += class - replaced;
        evicted - replaced
    }

    /// Counts evicted or dropped memory as returned to the device.
    pub(crate) fn freed(&mut self, bytes: u64) {
        self.changes += 1;
        self.freeing -= bytes;
        self.freed = self.freed.wrapping_add(bytes);
        self.now.charged -= bytes;
    }

    /// Cancels reserved bytes that the device did not deliver.
    pub(crate) fn cancel(&mut self, class: u64) {
        self.changes += 1;
        self.now.charged -= class;
    }

    /// Counts reserved bytes that the device delivered.
    #[inline]
    pub(crate) fn allocated(&mut self, class: u64, requested: u64) {
        self.allocated = self.allocated.saturating_add(class);
        self.now.out += class;
        self.peak.held_bytes = self.peak.held_bytes.max(self.now.held());
        self.note_cached();
        self.make_live(class, requested);
    }

    /// Counts `class` bytes that a source delivered without a reservation.
    #[inline]
    pub(crate) fn taken(&mut self, class: u64, requested: u64) {
        self.now.charged += class;
        self.allocated(class, requested);
    }

    /// Counts an idle block that leaves its bucket.
    pub(crate) fn reused(&mut self, class: u64) {
        self.now.cached -= class;
        self.now.out += class;
    }

    /// Counts a block that goes to a borrower.
    #[inline]
    pub(crate) fn make_live(&mut self, class: u64, requested: u64) {
        self.live = self.live.wrapping_add(class);
        self.requested = self.requested.wrapping_add(requested);
        self.note_peak(self.requested, self.live);
    }

    /// Counts a block that a borrower returned.
    pub(crate) fn returned(&mut self, class: u64, requested: u64) {
        self.live = self.live.wrapping_sub(class);
        self.requested = self.requested.wrapping_sub(requested);
    }

    /// Adds the bytes that a thread served from its magazines; `at_most` is the highest sum in between.
    pub(crate) fn add(&mut self, more: Delta, at_most: Delta) {
        self.note_peak(self.requested.wrapping_add(at_most.requested), self.live.wrapping_add(at_most.live));
        self.requested = self.requested.wrapping_add(more.requested);
        self.live = self.live.wrapping_add(more.live);
    }

    #[inline]
    fn note_peak(&mut self, requested: u64, live: u64) {
        self.peak.live_bytes = self.peak.live_bytes.max(positive(live));
        self.expected = self.expected.max(positive(live));
        self.peak.requested_bytes = self.peak.requested_bytes.max(positive(requested));
        self.peak.needed_bytes = self.peak.needed_bytes.max(self.needed(live));
    }

    /// Notes the highest bytes needed, live and in flight.
    #[inline]
    pub(crate) fn note_needed(&mut self) {
        self.peak.needed_bytes = self.peak.needed_bytes.max(self.needed(self.live));
    }

    #[inline]
    fn needed(&self, live: u64) -> u64 {
        positive(live).saturating_add(self.in_flight())
    }

    /// Returns the bytes in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a block that enters its bucket.
    pub(crate) fn cached(&mut self, class: u64) {
        self.changes += 1;
        self.now.out -= class;
        self.now.cached += class;
        self.note_cached();
    }

    /// Magazines keep at most the bytes of their slots, and at most what is out.
    #[inline]
    fn note_cached(&mut self) {
        self.peak.idle_bytes = self.peak.idle_bytes.max(self.most_cached());
    }

    #[inline]
    fn most_cached(&self) -> u64 {
        self.now.cached + self.leased.min(self.now.out)
    }

    /// Counts a block that is about to be released to the device.
    pub(crate) fn dropped(&mut self, class: u64) {
        self.now.out -= class;
        self.freeing += class;
    }

    /// Returns idle bytes, and those of magazines' slots.
    #[inline]
    pub(crate) fn idle(&self) -> u64 {
        self.now.cached + self.leased
    }

    /// Returns the bytes of slots whose threads may still return them.
    pub(crate) fn awaited(&self) -> u64 {
        self.leased - self.unanswered
    }

    /// Stops waiting for threads that did not return their slots in time. They are not waited for again.
    pub(crate) fn stop_waiting(&mut self) {
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

    /// Returns the total of returned bytes once all memory now in transit has returned.
    pub(crate) fn freed_when_quiet(&self) -> u64 {
        self.freed.wrapping_add(self.freeing)
    }

    /// Whether that total has been reached.
    pub(crate) fn has_freed(&self, bytes: u64) -> bool {
        self.freeing == 0 || bytes.wrapping_sub(self.freed) as i64 <= 0
    }

    /// Restarts the peaks; `end` is the end of the highest block in an arena of fixed size.
    pub(crate) fn reset_peaks(&mut self, end: u64) {
        self.peak_end = end;
        self.peak = Peaks {
            requested_bytes: positive(self.requested),
            live_bytes: positive(self.live),
            idle_bytes: self.most_cached(),
            held_bytes: self.now.held(),
            needed_bytes: self.needed(self.live),
            ..Peaks::default()
        };
    }
}

/// Returns a wrapping sum as 0 while it is negative, because threads report parts of it with a delay.
#[inline]
pub(crate) fn positive(wrapping: u64) -> u64 {
    (wrapping as i64).max(0) as u64
}

#[cfg(test)]
mod tests;
