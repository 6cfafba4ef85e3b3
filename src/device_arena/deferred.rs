//! Blocks that several streams used, set apart until those are done with them: what is free is then mostly there for any stream, and a
//! request mostly finds it so at once.
//!
//! Whoever needs all that is free has them [let go](State::let_go_deferred) before; from then on whoever gets their bytes waits
//! for who used them.

use super::slot::Slot;
use super::state::{State, ToMark};
use super::unsettled::{Streams, Unsettled};
use crate::arena::{Arena, Block, Region};
use smallvec::SmallVec;
use vrampool_backend::{Backend, Capabilities, Stream};

#[derive(Debug)]
pub(super) struct Deferred<S> {
    /// In the order in which they were freed.
    blocks: Vec<Entry<S>>,
    /// Whether streams run side by side: if not there is nothing to be had by it.
    is_wanted: bool,
}

/// One block, or all of a stitched one.
#[derive(Debug)]
struct Entry<S> {
    blocks: SmallVec<[Block; 1]>,
    /// The last of them is who wrote it.
    users: Streams<S>,
    /// In which era it was freed, which was over then: no other has it.
    era: u64,
}

impl<S: Stream> Deferred<S> {
    pub(super) fn new<B: Backend>(device: &B) -> Self {
        let is_wanted = device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS);
        Self { blocks: Vec::new(), is_wanted }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl<S: Stream> Entry<S> {
    /// Whether all are done with it but, maybe, who wrote it.
    fn is_read(&self, unsettled: &Unsettled<S>) -> bool {
        let others = self.users.len().saturating_sub(1);
        self.users.iter().take(others).all(|user| unsettled.is_done(user.id(), self.era))
    }

    /// Frees it. Whoever gets its bytes waits for those who are not known to be done with them.
    fn let_go(self, engine: &mut Arena, unsettled: &mut Unsettled<S>) {
        let is_open = |user: &&S| !unsettled.is_done(user.id(), self.era);
        let open: Streams<S> = self.users.iter().filter(is_open).cloned().collect();
        for &block in &self.blocks {
            let (offset, size) = engine.extent(block);
            engine.put_back(block);
            unsettled.put_late(offset..offset + size, open.clone(), self.era);
        }
        unsettled.keep_gone(self.users);
    }
}

impl<B: Backend> State<B> {
    /// Sets a block apart, with those that were stitched to it, whose slot is gone; if that is of use. Answers who is to be marked: all
    /// who read it, and who wrote it once in a while: mostly that stream is who gets it next.
    pub(super) fn defer(&mut self, block: Block, slot: &Slot<B::Stream>) -> Option<ToMark<B::Stream>> {
        let is_large = self.engine.region(block) == Ok(Region::Dynamic);
        if !self.deferred.is_wanted || !is_large || !self.is_awake() {
            return None;
        }
        let (users, era) = (slot.users(), self.unsettled.begin_era());
        let blocks: SmallVec<_> = std::iter::once(block).chain(slot.more().iter().copied()).collect();
        blocks.iter().for_each(|&block| self.engine.set_freed_apart(block));
        let mut streams = users.clone();
        if self.marks.has_of(slot.writer.id()) {
            streams.pop();
        }
        self.deferred.blocks.push(Entry { blocks, users, era });
        Some(ToMark { streams, era })
    }

    /// Frees those that all who read them are done with.
    pub(super) fn let_go_done(&mut self) {
        let Self { engine, unsettled, deferred, .. } = self;
        let mut place = 0;
        while let Some(entry) = deferred.blocks.get(place) {
            match entry.is_read(unsettled) {
                true => deferred.blocks.remove(place).let_go(engine, unsettled),
                false => place += 1,
            }
        }
    }

    /// Frees the one of that era: it is not known when those who used it are done.
    pub(super) fn let_go_unmarked(&mut self, era: u64) {
        let Self { engine, unsettled, deferred, .. } = self;
        let of_era = deferred.blocks.extract_if(.., |entry| entry.era == era);
        of_era.for_each(|entry| entry.let_go(engine, unsettled));
    }

    /// Frees all of them.
    #[inline]
    pub(super) fn let_go_deferred(&mut self) {
        if !self.deferred.is_empty() {
            self.let_go_all();
        }
    }

    #[cold]
    fn let_go_all(&mut self) {
        let Self { engine, unsettled, deferred, .. } = self;
        deferred.blocks.drain(..).for_each(|entry| entry.let_go(engine, unsettled));
    }
}
