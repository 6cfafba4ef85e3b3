//! The state under an arena's lock.

use super::detach::Phase;
use super::device_range::DeviceRange;
use crate::error::Error;
use crate::heap::arena::hazards::UseMap;
use crate::heap::arena::{ArenaPeaks, Backing, LiveBlocks, State, StitchedPlace, TakenBlock};
use crate::heap::space::{Arena, ArenaLayout, BlockId, Extent};
use crate::streams::{AwaitedUsers, Markers, Streams, add, await_also};
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{AllocationRequest, Backend, Capabilities, MemoryKind};

impl<B: Backend> TakenBlock<B> {
    pub(super) fn plain(block: BlockId) -> Self {
        Self { block, stitched: None }
    }

    /// All its engine blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        [self.block].into_iter().chain(self.more().iter().copied())
    }

    #[inline]
    fn more(&self) -> &[BlockId] {
        self.stitched.as_ref().map_or(&[], |place| &place.more)
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

    /// Returns the size of taken memory, and the streams to wait for.
    #[inline(always)]
    pub(super) fn await_users(
        &mut self,
        taken: &TakenBlock<B>,
        stream: &B::Stream,
    ) -> (u64, Option<AwaitedUsers<B::Stream>>) {
        let extent = self.engine.extent(taken.block);
        self.note_used(&extent.range());
        let (mut size, mut before) = (extent.bytes, self.uses.awaited_for(&extent.range(), stream));
        for &block in taken.more() {
            let extent = self.engine.extent(block);
            self.note_used(&extent.range());
            size += extent.bytes;
            let users = self.uses.awaited_for(&extent.range(), stream);
            users
                .iter()
                .flatten()
                .for_each(|(user, tick)| await_also(before.get_or_insert_default(), user, *tick));
        }
        (size, before)
    }

    /// Returns the streams that used free memory, and for which `is_such` holds with the tick of the free.
    pub(super) fn users_of_free(&self, is_such: impl Fn(&B::Stream, u64) -> bool) -> Streams<B::Stream> {
        let free = self.engine.free_by_offset().into_iter();
        self.uses.users_in(free.map(|free| free.extent.range()), is_such)
    }

    /// Returns all streams whose work may use any of these extents, which are sorted by offset.
    pub(super) fn users_of_pieces(&self, extents: &[Extent]) -> Streams<B::Stream> {
        let mut users = self.uses.users_in(extents.iter().map(|run| run.range()), |_, _| true);
        let is_there = |block: BlockId| {
            let block = self.engine.extent(block);
            let next = extents.partition_point(|run| run.end() <= block.start);
            extents.get(next).is_some_and(|run| run.start < block.end())
        };
        for (block, slot) in self.slots.named() {
            if slot.blocks(block).any(is_there) {
                slot.uses.users().iter().for_each(|user| add(&mut users, user));
            }
        }
        users
    }

    /// Counts a new block.
    #[inline(always)]
    pub(super) fn note_used(&mut self, range: &Range<u64>) {
        let used = self.engine.used().saturating_sub(self.peaks.staged);
        self.peaks.used = self.peaks.used.max(used);
        self.uses.note_reused(range);
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
