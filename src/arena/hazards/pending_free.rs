//! Defers the free of blocks that several streams used until those streams complete. Free memory is then
//! mostly usable by any stream without a wait.
//!
//! Operations that need all free memory call [`let_go_deferred`](State::let_go_deferred) first. The next
//! users of those bytes then wait for the earlier streams.

use super::deferred::{Entry, MOST};
use crate::arena::engine::{Arena, ArenaError, BlockId, Zone};
use crate::arena::live_block::LiveBlock;
use crate::arena::state::{State, ToRecord};
use smallvec::SmallVec;
use vrampool_backend::Backend;

impl<B: Backend> State<B> {
    /// Defers the free of a block and of those stitched to it, if that is useful. The block's slot is already
    /// removed. Returns the streams whose markers are to be recorded.
    pub(in crate::arena) fn defer(
        &mut self,
        block: BlockId,
        slot: &LiveBlock<B::Stream>,
    ) -> Option<ToRecord<B::Stream>> {
        let is_large = self.engine.zone(block) == Ok(Zone::Dynamic);
        if !self.are_concurrent || !is_large {
            return None;
        }
        self.uses.ticks.shared();
        let blocks: SmallVec<_> = std::iter::once(block).chain(slot.more().iter().copied()).collect();
        blocks.iter().for_each(|&block| self.engine.hold_freed(block));
        let bytes = blocks.iter().map(|&block| self.engine.extent(block).1).sum();
        let to_record = self.end_tick(slot, bytes);
        if self.deferred.blocks.len() == MOST
            && let Some(oldest) = self.deferred.blocks.pop_front()
        {
            oldest.release(&mut self.engine, &mut self.uses);
        }
        self.deferred.blocks.push_back(Entry { blocks, users: slot.users(), tick: to_record.tick });
        Some(to_record)
    }

    /// Frees the blocks whose readers are all complete.
    pub(in crate::arena) fn let_go_done(&mut self) {
        let Self { engine, uses, deferred, .. } = self;
        for _ in 0..deferred.blocks.len() {
            let Some(entry) = deferred.blocks.pop_front() else { break };
            match entry.is_read(uses) {
                true => entry.release(engine, uses),
                false => deferred.blocks.push_back(entry),
            }
        }
    }

    /// Frees the block of that tick: the completion of its users cannot be observed.
    pub(in crate::arena) fn let_go_unrecorded(&mut self, tick: u64) {
        let Self { engine, uses, deferred, .. } = self;
        if let Some(place) = deferred.blocks.iter().position(|entry| entry.tick == tick)
            && let Some(entry) = deferred.blocks.remove(place)
        {
            entry.release(engine, uses);
        }
    }

    /// Calls `attempt` on the engine. If there is no room, frees all deferred blocks and calls it again.
    #[inline(always)]
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
        let Self { engine, uses, deferred, .. } = self;
        deferred.blocks.drain(..).for_each(|entry| entry.release(engine, uses));
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
