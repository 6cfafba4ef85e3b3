//! Statistics of an arena on a device; zero or empty in a forked child, where the lock may be held forever.

use super::detach::Phase;
use super::{Backing, DeviceArena, StateGuard};
use crate::heap::LockedDepot;
use crate::heap::space::block::SpanState;
use crate::heap::space::{Extent, Span, Zone, runs};
use crate::heap::stats::times::MappingCalls;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vrampool_backend::{Backend, Memory, MemoryKind, fork};

impl<B: Backend> DeviceArena<B> {
    /// The arena's device.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.core.device
    }

    /// The kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.core.kind
    }

    /// The unit of block sizes and offsets, bytes.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.locked().map_or(1, |state| state.engine.alignment())
    }

    /// `bytes` rounded up to the alignment; `None` if that overflows 64 bits.
    #[must_use]
    pub fn align_up(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.alignment())
    }

    /// Total bytes; in a growing arena the mapped bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let Some(state) = self.locked() else { return 0 };
        state.backing.as_ref().map_or_else(|| state.engine.capacity(), |backing| backing.mapped)
    }

    /// Bytes of one zone.
    ///
    /// In a growing arena, here and below, `Stable` is the part for small requests, of at most half a
    /// granule, and `Dynamic` is the other part. Unmapped parts count.
    #[must_use]
    pub fn capacity_of(&self, zone: Zone) -> u64 {
        self.locked().map_or(0, |state| state.engine.capacity_of(zone))
    }

    /// The range's address on the device, if the device has addresses.
    #[must_use]
    pub fn base(&self) -> Option<u64> {
        self.locked()?.range.address()
    }

    /// Bytes reserved on the device.
    ///
    /// In a growing arena these are its physical memory, else its range and earlier ones that buffers keep
    /// alive.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.locked().map_or(0, |state| state.reserved_bytes())
    }

    /// The peak of [`reserved_bytes`](Self::reserved_bytes) since it was restarted.
    pub(crate) fn reserved_peak(&self) -> u64 {
        self.locked().map_or(0, |mut state| *state.reserved_peak())
    }

    /// Restarts the peak from the current value.
    pub(crate) fn restart_reserved_peak(&self) {
        let mut state = self.core.state.lock();
        *state.reserved_peak() = state.reserved_bytes();
    }

    /// Bytes of live blocks.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.locked().map_or(0, |state| state.engine.used())
    }

    /// Bytes of live blocks in one zone.
    #[must_use]
    pub fn used_in(&self, zone: Zone) -> u64 {
        self.locked().map_or(0, |state| state.engine.used_in(zone))
    }

    /// The peak of the bytes of live blocks.
    #[must_use]
    pub fn peak_used(&self) -> u64 {
        self.locked().map_or(0, |state| state.peaks.used)
    }

    /// Free bytes of a zone.
    #[must_use]
    pub fn available(&self, zone: Zone) -> u64 {
        self.locked().map_or(0, |state| state.engine.available(zone))
    }

    /// The largest request that a zone can serve now, bytes.
    #[must_use]
    pub fn largest_free_block(&self, zone: Zone) -> u64 {
        self.locked().map_or(0, |state| state.engine.largest_free_block(zone))
    }

    /// Bytes that are reserved and that no live block has, and the largest request that they serve: all of them in a
    /// growing arena, which joins them.
    pub(crate) fn free_memory(&self) -> (u64, u64) {
        let Some(state) = self.locked() else { return (0, 0) };
        let free = |reserved: u64| reserved.saturating_sub(state.engine.used());
        match &state.backing {
            Some(backing) => (free(backing.mapped), free(backing.mapped)),
            None => {
                let largest = [Zone::Dynamic, Zone::Stable].map(|zone| state.engine.largest_free_block(zone));
                (free(state.engine.capacity()), largest.into_iter().max().unwrap_or(0))
            }
        }
    }

    /// The end of the highest live block, bytes: the smallest range that holds the current live blocks. In a
    /// growing arena this is an offset among its addresses; for memory see
    /// [`reserved_bytes`](Self::reserved_bytes).
    #[must_use]
    pub fn highest_end(&self) -> u64 {
        self.locked().map_or(0, |state| state.engine.live_end())
    }

    /// Whether the arena maps memory as needed.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.core.is_growing && !fork::is_forked()
    }

    /// Bytes of addresses: in a growing arena those of its range and of stitched ranges, else the capacity.
    ///
    /// In a growing arena at most eight times the smaller of its limit and the device's memory.
    #[must_use]
    pub fn address_bytes(&self) -> u64 {
        let Some(state) = self.locked() else { return 0 };
        let detached = if let Phase::Detached(of) = &state.phase { of.stitched_bytes() } else { 0 };
        state
            .backing
            .as_ref()
            .map_or_else(|| state.engine.capacity(), |backing| backing.address_bytes() + detached)
    }

    /// Mappings of physical memory in a growing arena; 0 in other arenas, and while detached.
    ///
    /// Each piece counts as often as it is mapped. At most four for each granule of the smaller of the limit
    /// and the device's memory, and 1,024 more.
    #[must_use]
    pub fn mappings(&self) -> u64 {
        self.locked().map_or(0, |state| state.backing.as_ref().map_or(0, Backing::mappings))
    }

    /// Stitched ranges of a growing arena: those in use, those kept for reuse, and those being retired.
    #[must_use]
    pub fn stitched_ranges(&self) -> u64 {
        self.locked().map_or(0, |state| state.backing.as_ref().map_or(0, Backing::stitched_ranges))
    }

    /// Returns the device calls of a growing arena for virtual memory.
    #[must_use]
    pub fn mapping(&self) -> MappingCalls {
        let nanoseconds = self.core.mapping.nanoseconds.load(Ordering::Relaxed);
        let calls = self.core.mapping.calls.load(Ordering::Relaxed);
        MappingCalls { calls, time: Duration::from_nanos(nanoseconds) }
    }

    /// Waits inserted between streams so far.
    #[must_use]
    pub fn stream_waits(&self) -> u64 {
        self.core.stream_waits.load(Ordering::Relaxed)
    }

    /// Returns the part of [`stream_waits`](Self::stream_waits) that was inserted because memory was reused
    /// before another stream's work on it was complete.
    ///
    /// ```
    /// # use vrampool::{Backend, arena::DeviceArena, host::HostDevice};
    /// # let device = HostDevice::new();
    /// let arena = DeviceArena::builder(&device).limit(1 << 20).build()?;
    /// let stream = device.create_stream()?;
    /// drop(arena.allocate(1 << 19, &stream)?);
    /// drop(arena.allocate(1 << 19, &stream)?);
    /// assert_eq!((arena.reuse_waits(), arena.in_flight()), (0, 0)); // one stream alone never waits
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[must_use]
    pub fn reuse_waits(&self) -> u64 {
        self.core.reuse_waits.load(Ordering::Relaxed)
    }

    /// Returns the free bytes that device work still uses, as far as markers show.
    ///
    /// A marker is an event that is recorded when a block is freed, once two streams use the arena. This call
    /// asks the device which markers are complete, unless the result is 0 anyway.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let in_flight = || self.core.in_flight.load(Ordering::Relaxed);
        if in_flight() > 0 && !fork::is_forked() {
            drop(self.core.note_done(self.core.state.lock()));
        }
        in_flight()
    }

    /// All blocks, live and free, by address.
    #[must_use]
    pub fn blocks(&self) -> Vec<Span> {
        self.locked().map_or_else(Vec::new, |state| state.engine.blocks().collect())
    }

    /// Offsets of the range that have memory, in order: in a growing arena the mapped parts.
    #[must_use]
    pub fn mapped(&self) -> Vec<Range<u64>> {
        let Some(state) = self.locked() else { return Vec::new() };
        match &state.backing {
            Some(backing) => runs(&backing.extents).into_iter().map(Extent::range).collect(),
            None => std::iter::once(0..state.engine.capacity()).collect(),
        }
    }

    /// Returns the offsets of free bytes that device work still uses, in order: those that
    /// [`in_flight`](Self::in_flight) counts.
    #[must_use]
    pub fn pending(&self) -> Vec<Range<u64>> {
        let state = if self.in_flight() > 0 { self.locked() } else { None };
        let Some(state) = state else { return Vec::new() };
        let free = state.engine.blocks().filter(|span| span.state == SpanState::Free);
        free.flat_map(|span| state.uses.pending(span.offset..span.offset + span.bytes)).collect()
    }

    /// Calls `act` with the lock of its state, for a pool over the arena, which no reset or resize is changing.
    pub(crate) fn with_lock<T>(&self, act: impl FnOnce(&'static LockedDepot) -> T) -> T {
        let _quiet = self.core.changing.lock();
        act(self.core.state.shared())
    }

    /// Locks the state. `None` in a forked child.
    fn locked(&self) -> Option<StateGuard<'_, B>> {
        (!fork::is_forked()).then(|| self.core.state.lock())
    }
}
