//! What an arena knows of a live block besides its place: who uses it, and whether it may move.

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
    /// Further streams, where there are any: a block is hardly ever used by more than one.
    others: Option<Box<Others<S>>>,
    /// Regions of it that exist, from the first one on.
    holds: Option<Arc<AtomicU32>>,
    /// The stream that wrote the block last, behind all that used it before: got it, wrote it or moved it.
    pub(super) writer: S,
    /// Its bytes are on their way: nobody gets its address.
    pub(super) moving: bool,
}

#[derive(Debug)]
struct Others<S> {
    /// Streams that read it since.
    readers: Readers<S>,
    /// Streams that used its bytes before it got them, and that the writer is being put behind.
    awaited: Streams<S>,
    /// The other blocks of the engine that are its, if it is stitched.
    more: Vec<BlockId>,
}

impl<S> Default for Others<S> {
    fn default() -> Self {
        Self { readers: Readers::default(), awaited: Streams::new(), more: Vec::new() }
    }
}

impl<S: Stream> LiveBlock<S> {
    /// Whether other streams than the writer use it.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.others.as_ref().is_some_and(|others| !others.readers.is_empty())
    }

    /// Whom `stream` must wait for before it reads.
    pub(super) fn before_read(&self, stream: &S) -> Streams<S> {
        let knows = self.writer.id() == stream.id()
            || self.others.as_ref().is_some_and(|others| others.readers.is_behind(stream.id()));
        if knows { Streams::new() } else { [self.writer.clone()].into_iter().collect() }
    }

    /// `stream` has waited for those, and reads; in `capture` alone, if there is one.
    pub(super) fn read_by(&mut self, stream: &S, capture: Option<CaptureId>) {
        self.add_reader(stream, true, capture);
    }

    /// `stream` uses it, and has waited for nobody.
    pub(super) fn recorded_on(&mut self, stream: &S) {
        self.add_reader(stream, false, None);
    }

    fn add_reader(&mut self, stream: &S, is_behind: bool, capture: Option<CaptureId>) {
        if self.writer.id() != stream.id() {
            self.others.get_or_insert_default().readers.add(stream, is_behind, capture);
        }
    }

    /// Whom `stream` must wait for before it writes.
    pub(super) fn before_write(&self, stream: &S) -> Streams<S> {
        let mut users = self.users();
        users.retain(|user| user.id() != stream.id());
        users
    }

    /// `stream` has waited for those: what waits for it waits for all of them. But not if that was in a
    /// capture: then they are still to be waited for by everybody else.
    pub(super) fn written_by(&mut self, stream: &S, capture: Option<CaptureId>) {
        if capture.is_some() {
            if self.writer.id() != stream.id() {
                let before = mem::replace(&mut self.writer, stream.clone());
                let others = self.others.get_or_insert_default();
                others.readers.remove(stream.id());
                others.readers.add(&before, false, None);
            }
            return;
        }
        if self.writer.id() != stream.id() {
            self.writer = stream.clone();
        }
        match &mut self.others {
            Some(others) if !others.more.is_empty() => {
                others.readers.clear();
                others.awaited.clear();
            }
            others => *others = None,
        }
    }

    /// It has those blocks of the engine as well.
    pub(super) fn has_more(&mut self, blocks: Vec<BlockId>) {
        if !blocks.is_empty() {
            self.others.get_or_insert_default().more = blocks;
        }
    }

    /// The other blocks of the engine that are its.
    pub(super) fn more(&self) -> &[BlockId] {
        self.others.as_ref().map_or(&[], |others| &others.more)
    }

    /// The writer is being put behind those.
    pub(super) fn awaits<'a>(&mut self, streams: impl IntoIterator<Item = &'a S>)
    where
        S: 'a,
    {
        let mut streams = streams.into_iter().peekable();
        if streams.peek().is_some() {
            self.others.get_or_insert_default().awaited = streams.cloned().collect();
        }
    }

    /// The writer is behind all, or behind none of them and has nothing of theirs.
    pub(super) fn awaits_nobody(&mut self) {
        if let Some(others) = &mut self.others {
            others.awaited.clear();
        }
    }

    /// All streams that may use the block, or its bytes.
    pub(super) fn users(&self) -> Streams<S> {
        let mut users = Streams::new();
        if let Some(others) = &self.others {
            others.readers.iter().chain(&others.awaited).for_each(|user| add(&mut users, user));
        }
        add(&mut users, &self.writer);
        users
    }

    /// The only stream that may use it, if there is one only.
    #[inline]
    pub(super) fn only_user(&self) -> Option<&S> {
        let is_alone = |others: &Others<S>| others.readers.is_empty() && others.awaited.is_empty();
        self.others.as_deref().is_none_or(is_alone).then_some(&self.writer)
    }

    /// What counts its zones.
    pub(super) fn holds(&mut self) -> &Arc<AtomicU32> {
        self.holds.get_or_insert_default()
    }

    pub(super) fn is_held(&self) -> bool {
        // Acquire: pairs with the release of a dropped hold, so work enqueued under it is before whatever
        // moves the block.
        self.holds.as_ref().is_some_and(|holds| holds.load(Ordering::Acquire) > 0)
    }
}

/// The slots of all live blocks and of no others, each where the block's record is among the engine's.
#[derive(Debug)]
pub(super) struct LiveBlocks<S>(Vec<Option<(BlockId, LiveBlock<S>)>>);

impl<S> LiveBlocks<S> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// The slot of a block, unless it was freed, or forgotten by a reset or a resize: names are never given
    /// again.
    #[inline]
    pub(super) fn get(&self, block: BlockId) -> Option<&LiveBlock<S>> {
        match self.0.get(block.index() as usize) {
            Some(Some((name, slot))) if *name == block => Some(slot),
            _ => None,
        }
    }

    /// As [`get`](Self::get).
    #[inline]
    pub(super) fn get_mut(&mut self, block: BlockId) -> Option<&mut LiveBlock<S>> {
        match self.0.get_mut(block.index() as usize) {
            Some(Some((name, slot))) if *name == block => Some(slot),
            _ => None,
        }
    }

    /// A slot for a block that `writer` got, from nobody. Made where it is to be: a slot that was made
    /// elsewhere would be stored in parts and moved in larger ones, for which a processor waits until they
    /// have reached the cache.
    #[inline(always)]
    pub(super) fn insert(&mut self, block: BlockId, writer: S) -> &mut LiveBlock<S> {
        let place = block.index() as usize;
        if place >= self.0.len() {
            self.0.resize_with(place + 1, || None);
        }
        let place = &mut self.0[place];
        // A slot goes with its block: there is nothing to be dropped.
        mem::forget(place.take());
        let (_, slot) = place.insert((block, LiveBlock { others: None, holds: None, writer, moving: false }));
        slot
    }

    /// Who alone uses a block that nothing moves, if that is so.
    #[inline]
    pub(super) fn sole_user(&self, block: BlockId) -> Option<&S> {
        match self.0.get(block.index() as usize) {
            Some(Some((name, LiveBlock { others: None, writer, moving: false, .. }))) if *name == block => {
                Some(writer)
            }
            _ => None,
        }
    }

    /// Removes the slot of a block that [one stream alone](Self::sole_user) uses; answers that.
    #[inline]
    pub(super) fn take_sole(&mut self, block: BlockId) -> Option<S> {
        let (_, LiveBlock { others, holds, writer, .. }) = self.0.get_mut(block.index() as usize)?.take()?;
        // There are none to be dropped.
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

    /// Takes all out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (BlockId, LiveBlock<S>)> {
        self.0.drain(..).flatten()
    }
}
