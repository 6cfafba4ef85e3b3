//! Sizes and counts of an arena on a device. In a forked child all are zero or empty: the lock may be held
//! for ever there.

use super::DeviceArena;
use super::mapping::pages::Backing;
use super::sleep::Sleep;
use super::state::State;
use crate::arena::engine::{Span, Zone};
use crate::sync::MutexGuard;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vrampool_backend::{Backend, Memory, MemoryKind, fork};

impl<B: Backend> DeviceArena<B> {
    /// The device it is on.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.core.device
    }

    /// The kind of its memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.core.kind
    }

    /// What sizes round up to and offsets are multiples of, bytes.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.locked().map_or(1, |state| state.engine.alignment())
    }

    /// `bytes` rounded up to the alignment; `None` when that does not fit 64 bits.
    #[must_use]
    pub fn align_up(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.alignment())
    }

    /// Bytes in all; of a growing arena those that are mapped.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let Some(state) = self.locked() else { return 0 };
        state.backing.as_ref().map_or_else(|| state.engine.capacity(), |backing| backing.mapped)
    }

    /// Bytes of one zone. Of a growing arena, here and below, `Stable` is the part for small requests, of at
    /// most half a granule, and `Dynamic` the other; parts with nothing behind them count.
    #[must_use]
    pub fn capacity_of(&self, zone: Zone) -> u64 {
        self.locked().map_or(0, |state| state.engine.capacity_of(zone))
    }

    /// The range's address on the device, where the device has addresses.
    #[must_use]
    pub fn base(&self) -> Option<u64> {
        self.locked()?.range.address()
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

    /// The most bytes that were live.
    #[must_use]
    pub fn peak_used(&self) -> u64 {
        self.locked().map_or(0, |state| state.peak)
    }

    /// Free bytes of a zone.
    #[must_use]
    pub fn available(&self, zone: Zone) -> u64 {
        self.whole().map_or(0, |state| state.engine.available(zone))
    }

    /// The largest request that a zone can serve now, bytes.
    #[must_use]
    pub fn largest_free_block(&self, zone: Zone) -> u64 {
        self.whole().map_or(0, |state| state.engine.largest_free_block(zone))
    }

    /// External fragmentation of a zone: the share of its free bytes that is not in the largest free block, 0
    /// to 1.
    #[must_use]
    pub fn fragmentation(&self, zone: Zone) -> f64 {
        self.whole().map_or(0.0, |state| state.engine.fragmentation(zone))
    }

    /// The end of the highest live block, bytes: what the range would have to be for what is live now. Of a
    /// growing arena an offset among its addresses, and no measure of memory: see
    /// [`reserved_bytes`](Self::reserved_bytes).
    #[must_use]
    pub fn highest_end(&self) -> u64 {
        self.locked().map_or(0, |state| state.engine.live_end())
    }

    /// Whether it maps memory as it is needed.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.locked().is_some_and(|state| state.backing.is_some())
    }

    /// Bytes of addresses: of a growing arena those of its range and of stitched ranges, else its capacity.
    ///
    /// Of a growing arena at most eight times its limit (or the device's memory, if that is less).
    #[must_use]
    pub fn address_bytes(&self) -> u64 {
        let Some(state) = self.locked() else { return 0 };
        let asleep = if let Sleep::Asleep(asleep) = &state.sleep { asleep.stitched_bytes() } else { 0 };
        state
            .backing
            .as_ref()
            .map_or_else(|| state.engine.capacity(), |backing| backing.address_bytes() + asleep)
    }

    /// Mappings of physical memory of a growing arena: its pieces, each as often as it is mapped; 0 for other
    /// arenas, and asleep.
    ///
    /// At most four times the granules of the limit (or of the device's memory, if that is less), and 1,024.
    #[must_use]
    pub fn mappings(&self) -> u64 {
        self.locked().map_or(0, |state| state.backing.as_ref().map_or(0, Backing::mappings))
    }

    /// Stitched ranges of a growing arena: those in use, those kept for further requests, and those on their
    /// way out.
    #[must_use]
    pub fn stitched_ranges(&self) -> u64 {
        self.locked().map_or(0, |state| state.backing.as_ref().map_or(0, Backing::stitched_ranges))
    }

    /// Calls of the device that a growing arena made for virtual memory so far, and their time.
    #[must_use]
    pub fn mapping_calls(&self) -> (u64, Duration) {
        let nanoseconds = self.core.mapping_nanoseconds.load(Ordering::Relaxed);
        (self.core.mapping_calls.load(Ordering::Relaxed), Duration::from_nanos(nanoseconds))
    }

    /// Waits that it put between streams so far.
    #[must_use]
    pub fn stream_waits(&self) -> u64 {
        self.core.waits.load(Ordering::Relaxed)
    }

    /// All blocks, live and free, in the order of their addresses.
    #[must_use]
    pub fn blocks(&self) -> Vec<Span> {
        self.whole().map_or_else(Vec::new, |state| state.engine.blocks().collect())
    }

    /// Where in its range it has memory, offsets, in order: of a growing arena the parts that are mapped
    /// (asleep none), else all of it.
    #[must_use]
    pub fn mapped(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let Some(state) = self.locked() else { return runs };
        let Some(backing) = &state.backing else {
            runs.push(0..state.engine.capacity());
            return runs;
        };
        for extent in &backing.extents {
            let end = extent.start + extent.bytes;
            match runs.last_mut() {
                Some(last) if last.end == extent.start => last.end = end,
                _ => runs.push(extent.start..end),
            }
        }
        runs
    }

    /// For what is free, and where. `None` in a forked child.
    fn whole(&self) -> Option<MutexGuard<'_, State<B>>> {
        (!fork::is_child()).then(|| self.core.state.lock())
    }

    /// For all else. `None` in a forked child.
    fn locked(&self) -> Option<MutexGuard<'_, State<B>>> {
        (!fork::is_child()).then(|| self.core.state.lock_with_deferred())
    }
}
