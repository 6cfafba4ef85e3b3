//! Users of a live block, and whether it may move.

use crate::heap::arena::{LiveBlock, LiveBlocks};
use crate::heap::space::{Arena, BlockId};
use crate::streams::{Access, Uses};
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vrampool_backend::{CaptureId, Stream};

impl<S: Stream> LiveBlock<S> {
    /// Records an access by `stream`, ordered after those that it must wait for; only within `capture`, if set.
    pub(super) fn used(&mut self, stream: &S, access: Access, capture: Option<CaptureId>) {
        match access {
            Access::Read => self.uses.read_by(stream, capture),
            Access::Write => {
                self.uses.written_by(stream, capture);
                self.moved = false;
            }
        }
    }

    /// Sets the other engine blocks of a stitched block.
    pub(super) fn has_more(&mut self, blocks: Vec<BlockId>) {
        self.more = (!blocks.is_empty()).then(|| blocks.into());
    }

    /// The engine blocks of the block with that name.
    #[inline]
    pub(super) fn blocks(&self, name: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        [name].into_iter().chain(self.more.as_deref().unwrap_or_default().iter().copied())
    }

    /// Returns the count of regions.
    pub(super) fn holds(&mut self) -> &Arc<AtomicU32> {
        self.holds.get_or_insert_default()
    }

    pub(super) fn is_held(&self) -> bool {
        // Acquire: pairs with the release of a dropped hold. Work enqueued under it thus precedes any move.
        self.holds.as_ref().is_some_and(|holds| holds.load(Ordering::Acquire) > 0)
    }
}

impl<S: Stream> LiveBlocks<S> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns a block's slot, unless the block was freed, reset or resized away. Names are never reused.
    #[inline]
    pub(super) fn get(&self, block: BlockId) -> Option<&LiveBlock<S>> {
        match self.0.get(block.index() as usize) {
            Some(Some((name, slot))) if *name == block => Some(slot),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, block: BlockId) -> Option<&mut LiveBlock<S>> {
        match self.0.get_mut(block.index() as usize) {
            Some(Some((name, slot))) if *name == block => Some(slot),
            _ => None,
        }
    }

    /// Creates a slot for a block that `writer` allocated, in place. A slot that is created elsewhere would
    /// be stored in parts and moved in larger ones; a processor waits until such stores have reached the
    /// cache.
    #[inline(always)]
    pub(super) fn insert(&mut self, block: BlockId, writer: S) -> &mut LiveBlock<S> {
        let place = block.index() as usize;
        if place >= self.0.len() {
            self.0.resize_with(place + 1, || None);
        }
        let place = &mut self.0[place];
        let uses = Uses::new(writer);
        let slot = LiveBlock { holds: None, more: None, uses, moving: false, stays: false, moved: false };
        // A slot is removed with its block, so no value is leaked.
        mem::forget(place.replace((block, slot)));
        match place {
            Some((_, slot)) => slot,
            None => unreachable!("it was inserted"),
        }
    }

    /// Returns the slot of a block that is not moving, and that only one stream uses.
    #[inline]
    pub(super) fn of_sole_user(&self, block: BlockId) -> Option<&LiveBlock<S>> {
        self.get(block).filter(|slot| !slot.moving && slot.uses.is_sole())
    }

    /// Removes the slot of a block that [one stream](Self::of_sole_user) uses. Returns that stream, and the other
    /// engine blocks of a stitched block.
    #[inline]
    pub(super) fn take_sole(&mut self, block: BlockId) -> Option<(S, Option<Box<[BlockId]>>)> {
        let (_, LiveBlock { holds, more, uses, .. }) = self.0.get_mut(block.index() as usize)?.take()?;
        if holds.is_some() {
            drop(holds);
        }
        Some((uses.into_sole(), more))
    }

    #[inline]
    pub(super) fn remove(&mut self, block: BlockId) -> Option<LiveBlock<S>> {
        let place = self.0.get_mut(block.index() as usize)?;
        place.take_if(|(name, _)| *name == block).map(|(_, slot)| slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LiveBlock<S>> {
        self.named().map(|(_, slot)| slot)
    }

    pub(super) fn named(&self) -> impl Iterator<Item = (BlockId, &LiveBlock<S>)> {
        self.0.iter().flatten().map(|(block, slot)| (*block, slot))
    }

    /// The extents of the engine blocks of all slots, by offset.
    pub(super) fn extents(&self, engine: &Arena) -> Vec<Range<u64>> {
        let blocks = self.named().flat_map(|(block, slot)| slot.blocks(block));
        let mut extents: Vec<_> = blocks.map(|block| engine.extent(block).range()).collect();
        extents.sort_unstable_by_key(|extent| extent.start);
        extents
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = (BlockId, LiveBlock<S>)> {
        self.0.drain(..).flatten()
    }
}
