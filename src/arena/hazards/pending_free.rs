//! Defers the free of blocks that several streams used until those streams complete. Free memory is then
//! mostly usable by any stream without a wait.
//!
//! Operations that need all free memory call [`let_go_deferred`](State::let_go_deferred) first. The next
//! users of those bytes then wait for the earlier streams.

use super::ranges::{Streams, Unsettled};
use crate::arena::engine::{Arena, ArenaError, BlockId, Zone};
use crate::arena::live_block::LiveBlock;
use crate::arena::state::{State, ToRecord};
use smallvec::SmallVec;
use std::collections::VecDeque;
use vrampool_backend::{Backend, Capabilities, Stream};

/// Most deferred blocks: each poll that finds a completed stream visits all of them.
const MOST: usize = 256;

#[derive(Debug)]
pub(in crate::arena) struct Deferred<S> {
    /// In the order of the frees.
    blocks: VecDeque<Entry<S>>,
    /// Whether streams run concurrently; deferral is useless otherwise.
    is_wanted: bool,
}

/// One block, or all blocks of a stitched one.
#[derive(Debug)]
struct Entry<S> {
    blocks: SmallVec<[BlockId; 1]>,
    /// The writer is last.
    users: Streams<S>,
    /// The era that ended with the free; unique to the entry.
    era: u64,
}

impl<S: Stream> Deferred<S> {
    pub(in crate::arena) fn new<B: Backend>(device: &B) -> Self {
        let is_wanted = device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS);
        Self { blocks: VecDeque::new(), is_wanted }
    }

    /// The blocks of each entry, with the streams that may still use them.
    pub(in crate::arena) fn named(&self) -> impl Iterator<Item = (&[BlockId], &Streams<S>)> {
        self.blocks.iter().map(|entry| (&*entry.blocks, &entry.users))
    }

    #[inline]
    pub(in crate::arena) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl<S: Stream> Entry<S> {
    /// Whether all users are complete, except possibly the writer.
    fn is_read(&self, unsettled: &Unsettled<S>) -> bool {
        let others = self.users.len().saturating_sub(1);
        self.users.iter().take(others).all(|user| unsettled.is_done(user.id(), self.era))
    }

    /// Frees the blocks. The next users of the bytes wait for users that are not known to be complete. The
    /// writer is always recorded as a user, because it is mostly the stream that gets the bytes next.
    fn let_go(self, engine: &mut Arena, unsettled: &mut Unsettled<S>) {
        let (mut left, era) = (self.users, self.era);
        if let Some(writer) = left.pop() {
            let (done, open) = left.into_iter().partition(|user| unsettled.is_done(user.id(), era));
            left = open;
            left.push(writer);
            unsettled.keep_gone(done);
        }
        for &block in &self.blocks {
            let (offset, size) = engine.extent(block);
            engine.put_back(block);
            unsettled.put_late(offset..offset + size, left.clone(), era);
        }
        // None of these is the last handle: the parts have others.
    }
}

impl<B: Backend> State<B> {
    /// Defers the free of a block and of those stitched to it, if that is useful. The block's slot is already
    /// removed. Returns the streams whose points are to be recorded: all readers, and now and then the
    /// writer, which mostly gets the bytes next.
    pub(in crate::arena) fn defer(
        &mut self,
        block: BlockId,
        slot: &LiveBlock<B::Stream>,
    ) -> Option<ToRecord<B::Stream>> {
        let is_large = self.engine.zone(block) == Ok(Zone::Dynamic);
        if !self.deferred.is_wanted || !is_large || !self.is_awake() {
            return None;
        }
        let (users, era) = (slot.users(), self.unsettled.begin_era());
        let blocks: SmallVec<_> = std::iter::once(block).chain(slot.more().iter().copied()).collect();
        blocks.iter().for_each(|&block| self.engine.hold_freed(block));
        let (mut streams, writer) = (users.clone(), slot.writer.id());
        if self.timeline.has_lately(writer, era) {
            streams.retain(|user| user.id() != writer);
        }
        if self.deferred.blocks.len() == MOST
            && let Some(oldest) = self.deferred.blocks.pop_front()
        {
            oldest.let_go(&mut self.engine, &mut self.unsettled);
            self.placed_last = 0;
        }
        self.deferred.blocks.push_back(Entry { blocks, users, era });
        Some(ToRecord { streams, era })
    }

    /// Frees the blocks whose readers are all complete.
    pub(in crate::arena) fn let_go_done(&mut self) {
        let Self { engine, unsettled, deferred, .. } = self;
        for _ in 0..deferred.blocks.len() {
            let Some(entry) = deferred.blocks.pop_front() else { break };
            match entry.is_read(unsettled) {
                true => entry.let_go(engine, unsettled),
                false => deferred.blocks.push_back(entry),
            }
        }
    }

    /// Frees the block of that era: the completion of its users cannot be observed.
    pub(in crate::arena) fn let_go_unrecorded(&mut self, era: u64) {
        let Self { engine, unsettled, deferred, .. } = self;
        if let Some(place) = deferred.blocks.iter().position(|entry| entry.era == era)
            && let Some(entry) = deferred.blocks.remove(place)
        {
            entry.let_go(engine, unsettled);
        }
    }

    /// Calls `attempt` on the engine. If there is no room, frees all deferred blocks and calls it again.
    pub(in crate::arena) fn with_deferred<T>(
        &mut self,
        attempt: impl Fn(&mut Arena) -> Result<T, ArenaError>,
    ) -> Result<T, ArenaError> {
        match attempt(&mut self.engine) {
            Err(error) if error.is_out_of_memory() && !self.deferred.is_empty() => {
                self.let_go_deferred();
                attempt(&mut self.engine)
            }
            done => done,
        }
    }

    #[inline]
    pub(in crate::arena) fn let_go_deferred(&mut self) {
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

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::arena::DeviceArena;
    use crate::host::HostDevice;
    use std::sync::mpsc::channel;

    /// So a poll has a bounded duration, however many blocks a stalled stream has read.
    #[test]
    fn no_more_are_held_than_a_poll_goes_through() {
        let device = HostDevice::new();
        let [own, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let arena = DeviceArena::builder(&device).limit(1 << 20).build().expect("an arena");
        let (go, told) = channel::<()>();
        let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| _ = told.recv();
        reader.launch([], [], kernel).expect("queued");
        let blocks: Vec<_> = (0..2 * MOST).map(|_| arena.allocate(256, &own).expect("memory")).collect();
        blocks.iter().for_each(|block| block.record_stream(&reader).expect("no fault"));
        drop(blocks);
        assert_eq!(arena.core.state.lock_with_deferred().deferred.blocks.len(), MOST);
        assert_eq!((arena.used(), arena.largest_free_block(Zone::Dynamic)), (0, 1 << 20));
        assert!(arena.core.state.lock_with_deferred().deferred.is_empty(), "whoever asks has all let go");
        go.send(()).expect("it listens");
    }
}
