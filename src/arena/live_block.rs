//! Users of a live block, and whether it may move.

use super::hazards::ranges::{Streams, add};
use crate::arena::engine::BlockId;
use crate::streams::users::Readers;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vrampool_backend::{CaptureId, Stream};

#[derive(Debug)]
#[repr(C)]
pub(super) struct LiveBlock<S> {
    /// Further streams, if any: more than one user is rare.
    others: Option<Box<Others<S>>>,
    /// Count of existing regions, created with the first region.
    holds: Option<Arc<AtomicU32>>,
    /// The stream that last allocated, wrote or moved the block, ordered after all earlier users.
    pub(super) writer: S,
    /// Whether the block is being moved. Its address is unavailable meanwhile.
    pub(super) moving: bool,
    /// Whether it was moved since its last use: markers that are known of its users may be earlier than the copy.
    pub(super) moved: bool,
}

#[derive(Debug)]
struct Others<S> {
    /// Streams that read the block since.
    readers: Readers<S>,
    /// Earlier users of the bytes, while the writer is being ordered after them.
    awaited: Streams<S>,
    /// The other engine blocks of a stitched block.
    more: Vec<BlockId>,
}

impl<S> Default for Others<S> {
    fn default() -> Self {
        Self { readers: Readers::default(), awaited: Streams::new(), more: Vec::new() }
    }
}

impl<S: Stream> LiveBlock<S> {
    /// Whether streams other than the writer use the block.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.others.as_ref().is_some_and(|others| !others.readers.is_empty())
    }

    /// Returns the streams that `stream` must wait for before it reads.
    pub(super) fn before_read(&self, stream: &S) -> Streams<S> {
        let knows = self.writer.id() == stream.id()
            || self.others.as_ref().is_some_and(|others| others.readers.is_behind(stream.id()));
        if knows { Streams::new() } else { [self.writer.clone()].into_iter().collect() }
    }

    /// Records a read by `stream`, ordered after those streams; only within `capture`, if set.
    pub(super) fn read_by(&mut self, stream: &S, capture: Option<CaptureId>) {
        self.add_reader(stream, true, capture);
    }

    /// Records a use by `stream` without any wait.
    pub(super) fn recorded_on(&mut self, stream: &S) {
        self.add_reader(stream, false, None);
    }

    fn add_reader(&mut self, stream: &S, is_behind: bool, capture: Option<CaptureId>) {
        if self.writer.id() != stream.id() {
            self.others.get_or_insert_default().readers.add(stream, is_behind, capture);
        }
    }

    /// Returns the streams that `stream` must wait for before it writes.
    pub(super) fn before_write(&self, stream: &S) -> Streams<S> {
        let mut users = self.users();
        users.retain(|user| user.id() != stream.id());
        users
    }

    /// Makes `stream` the writer, ordered after all users: a wait for it includes them. In a capture the
    /// order holds only there, so the earlier users remain.
    pub(super) fn written_by(&mut self, stream: &S, capture: Option<CaptureId>) {
        let is_new = self.writer.id() != stream.id();
        if capture.is_none() && self.more().is_empty() {
            self.others = None;
        } else if is_new || capture.is_none() {
            let others = self.others.get_or_insert_default();
            others.readers.written_after(&self.writer, stream, capture);
            if capture.is_none() {
                others.awaited.clear();
            }
        }
        if is_new {
            self.writer = stream.clone();
        }
        self.moved = false;
    }

    /// Whether all reads since the last write are part of `capture`.
    pub(super) fn readers_are_all_in(&self, capture: CaptureId) -> bool {
        self.others.as_ref().is_none_or(|others| others.readers.are_all_in(capture))
    }

    /// Sets the other engine blocks of a stitched block.
    pub(super) fn has_more(&mut self, blocks: Vec<BlockId>) {
        if !blocks.is_empty() {
            self.others.get_or_insert_default().more = blocks;
        }
    }

    pub(super) fn more(&self) -> &[BlockId] {
        self.others.as_ref().map_or(&[], |others| &others.more)
    }

    /// Records earlier users of the bytes, while the writer is being ordered after them.
    pub(super) fn awaits<'a>(&mut self, streams: impl IntoIterator<Item = &'a S>)
    where
        S: 'a,
    {
        let mut streams = streams.into_iter().peekable();
        if streams.peek().is_some() {
            self.others.get_or_insert_default().awaited = streams.cloned().collect();
        }
    }

    /// Clears those users: the writer is ordered after all of them, or uses none of their bytes.
    pub(super) fn forget_awaited(&mut self) {
        if let Some(others) = &mut self.others {
            others.awaited.clear();
        }
    }

    /// Returns all streams that may use the block or its bytes.
    pub(super) fn users(&self) -> Streams<S> {
        let mut users = Streams::new();
        if let Some(others) = &self.others {
            others.readers.iter().chain(&others.awaited).for_each(|user| add(&mut users, user));
        }
        add(&mut users, &self.writer);
        users
    }

    /// Returns the only stream that may use the block; `None` if there are several.
    #[inline]
    pub(super) fn only_user(&self) -> Option<&S> {
        let is_alone = |others: &Others<S>| others.readers.is_empty() && others.awaited.is_empty();
        self.others.as_deref().is_none_or(is_alone).then_some(&self.writer)
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

/// The slots of all live blocks, at the indices of the engine's records.
#[derive(Debug)]
pub(super) struct LiveBlocks<S>(Vec<Option<(BlockId, LiveBlock<S>)>>);

impl<S> LiveBlocks<S> {
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
        // A slot is removed with its block, so no value is leaked.
        mem::forget(place.take());
        let (_, slot) = place
            .insert((block, LiveBlock { others: None, holds: None, writer, moving: false, moved: false }));
        slot
    }

    /// Returns the only user of a block that is not moving.
    #[inline]
    pub(super) fn sole_user(&self, block: BlockId) -> Option<&S> {
        match self.0.get(block.index() as usize) {
            Some(Some((name, LiveBlock { others: None, writer, moving: false, .. }))) if *name == block => {
                Some(writer)
            }
            _ => None,
        }
    }

    /// Removes the slot of a block that [one stream](Self::sole_user) uses, and returns that stream.
    #[inline]
    pub(super) fn take_sole(&mut self, block: BlockId) -> Option<S> {
        let (_, LiveBlock { others, holds, writer, .. }) = self.0.get_mut(block.index() as usize)?.take()?;
        // `sole_user` implies `None`, so nothing is leaked.
        mem::forget(others);
        if holds.is_some() {
            drop(holds);
        }
        Some(writer)
    }

    #[inline]
    pub(super) fn remove(&mut self, block: BlockId) -> Option<LiveBlock<S>> {
        let place = self.0.get_mut(block.index() as usize)?;
        place.take_if(|(name, _)| *name == block).map(|(_, slot)| slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LiveBlock<S>> {
        self.0.iter().flatten().map(|(_, slot)| slot)
    }

    pub(super) fn named(&self) -> impl Iterator<Item = (BlockId, &LiveBlock<S>)> {
        self.0.iter().flatten().map(|(block, slot)| (*block, slot))
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = (BlockId, LiveBlock<S>)> {
        self.0.drain(..).flatten()
    }
}
