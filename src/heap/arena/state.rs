//! The state under an arena's lock.

use super::detach::Phase;
use super::device_range::DeviceRange;
use crate::error::Error;
use crate::heap::arena::hazards::UseMap;
use crate::heap::arena::mapping::Extent;
use crate::heap::arena::{ArenaPeaks, Backing, LiveBlocks, State, StitchedPlace, TakenBlock};
use crate::heap::space::{Arena, ArenaLayout, BlockId};
use crate::streams::{AwaitedUsers, Markers, Streams, add, await_also};
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{AllocationRequest, Backend, Capabilities, MemoryKind};

impl<B: Backend> TakenBlock<B> {
    pub(super) fn plain(block: BlockId) -> Self {
        Self { block, stitched: None }
    }

    /// A stitched block of the given engine blocks; `None` if there are none.
    pub(super) fn stitched(mut blocks: Vec<BlockId>, memory: Arc<B::Memory>, offset: u64) -> Option<Self> {
        if blocks.is_empty() {
            return None;
        }
        let block = blocks.remove(0);
        Some(Self { block, stitched: Some(StitchedPlace { memory, offset, more: blocks }) })
    }
}

impl<B: Backend> State<B> {
    pub(super) fn reserve(
        device: &B,
        kind: MemoryKind,
        layout: ArenaLayout,
        bytes: u64,
    ) -> Result<Self, Error> {
        let engine = Arena::new(layout)?;
        Ok(Self::new(device, engine, device.allocate(&AllocationRequest::new(bytes, kind))?, None))
    }

    pub(super) fn new(device: &B, engine: Arena, range: B::Memory, backing: Option<Backing<B>>) -> Self {
        Self {
            range: DeviceRange::new(range),
            engine,
            slots: LiveBlocks::new(),
            uses: UseMap::new(),
            markers: Markers::new(),
            are_concurrent: device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS),
            backing,
            phase: Phase::Attached,
            peaks: ArenaPeaks::default(),
        }
    }

    /// All streams that may use a block; none if it is stale.
    pub(super) fn users_of_live(&self, block: BlockId) -> Streams<B::Stream> {
        self.slots.get(block).map(|slot| slot.uses.users()).unwrap_or_default()
    }

    /// Returns a new block's offset and size, and the streams to wait for, if any. Its slot does not exist
    /// yet.
    // Not in a struct with the block's name: that would be stored in parts and read as one. A processor waits
    // until such stores have reached the cache.
    #[inline(always)]
    pub(super) fn await_users(
        &mut self,
        block: BlockId,
        stream: &B::Stream,
    ) -> (u64, u64, Option<AwaitedUsers<B::Stream>>) {
        let (offset, size) = self.engine.extent(block);
        self.note_used(&(offset..offset + size));
        (offset, size, self.uses.awaited_for(&(offset..offset + size), stream))
    }

    /// As [`await_users`](Self::await_users), for the other engine blocks of a stitched block.
    #[cold]
    pub(super) fn await_more_users(
        &mut self,
        more: &[BlockId],
        stream: &B::Stream,
        (mut size, mut before): (u64, Option<AwaitedUsers<B::Stream>>),
    ) -> (u64, Option<AwaitedUsers<B::Stream>>) {
        for &block in more {
            let (_, bytes, users) = self.await_users(block, stream);
            size += bytes;
            let users = users.iter().flatten();
            users.for_each(|(user, tick)| await_also(before.get_or_insert_default(), user, *tick));
        }
        (size, before)
    }

    /// Returns the streams that used free memory, and for which `is_such` holds with the tick of the free.
    pub(super) fn users_of_free(&self, is_such: impl Fn(&B::Stream, u64) -> bool) -> Streams<B::Stream> {
        let free = self.engine.free_by_offset().into_iter();
        self.uses.users_in(free.map(|free| free.offset..free.offset + free.bytes), is_such)
    }

    /// Returns all streams whose work may use any of these extents, which are sorted by offset.
    pub(super) fn users_of_pieces(&self, extents: &[Extent]) -> Streams<B::Stream> {
        let mut users = self.uses.users_in(extents.iter().map(|run| run.start..run.end()), |_, _| true);
        let is_there = |block: &BlockId| {
            let (start, bytes) = self.engine.extent(*block);
            let next = extents.partition_point(|run| run.end() <= start);
            extents.get(next).is_some_and(|run| run.start < start + bytes)
        };
        for (block, slot) in self.slots.named() {
            if [block].iter().chain(slot.more()).any(is_there) {
                slot.uses.users().iter().for_each(|user| add(&mut users, user));
            }
        }
        users
    }

    /// Counts taken memory. Returns the first offset and the bytes of all.
    #[inline(always)]
    pub(super) fn note_taken(&mut self, block: BlockId, more: &[BlockId]) -> (u64, u64) {
        let (start, mut bytes) = (self.engine.extent(block).0, 0);
        for &block in [block].iter().chain(more) {
            let (offset, size) = self.engine.extent(block);
            self.note_used(&(offset..offset + size));
            bytes += size;
        }
        (start, bytes)
    }

    /// Counts a new block.
    #[inline(always)]
    pub(super) fn note_used(&mut self, range: &Range<u64>) {
        self.note_peak();
        self.uses.note_reused(range);
    }

    fn note_peak(&mut self) {
        let used = self.engine.used().saturating_sub(self.peaks.staged);
        self.peaks.used = self.peaks.used.max(used);
    }

    pub(super) fn extent(&self, block: BlockId) -> Range<u64> {
        let (start, bytes) = self.engine.extent(block);
        start..start + bytes
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        match &self.backing {
            Some(backing) => backing.mapped,
            None => self.range.reserved_bytes(),
        }
    }

    pub(super) fn reserved_peak(&mut self) -> &mut u64 {
        match &mut self.backing {
            Some(backing) => &mut backing.mapped_peak,
            None => &mut self.peaks.reserved,
        }
    }
}
