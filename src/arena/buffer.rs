//! An allocated block of an arena.

use super::hazards::ranges::Streams;
use super::live_block::LiveBlock;
use super::{ArenaCore, State};
use crate::arena::engine::{ArenaError, BlockId};
use crate::error::Error;
use crate::streams::order::{After, Need};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Backend, CaptureId, HeldMemory, Hold, Memory, Region, RegionMut, fork};

/// A block of a [`DeviceArena`](super::DeviceArena). Dropping it frees it; it may outlive the arena's
/// handles.
///
/// The way to its bytes goes through a stream, as with [`Buffer`](crate::Buffer). It follows its data: a
/// compaction moves it when no region of it exists, and the next region is where the data is.
pub struct ArenaBuffer<B: Backend> {
    pub(super) arena: Arc<ArenaCore<B>>,
    /// `None` only while dropping, or emptied.
    pub(super) range: Option<Arc<B::Memory>>,
    /// It has no block.
    pub(super) is_emptied: bool,
    pub(super) block: BlockId,
    /// Where it starts in its memory, if that is a stitched range.
    pub(super) stitched_at: Option<u64>,
    /// Regions of it that exist; its slot counts with it. Made for the first one.
    pub(super) holds: OnceLock<Arc<AtomicU32>>,
    /// Emptied, the stream of the last block, for one more of the same.
    pub(super) stream: Option<B::Stream>,
    pub(super) len: u64,
    pub(super) size: u64,
    pub(super) alignment: u64,
}

impl<B: Backend> ArenaBuffer<B> {
    pub(super) fn new(
        arena: Arc<ArenaCore<B>>,
        range: Arc<B::Memory>,
        block: BlockId,
        (len, size, alignment): (u64, u64, u64),
    ) -> Self {
        Self {
            arena,
            range: Some(range),
            is_emptied: false,
            block,
            stitched_at: None,
            holds: OnceLock::new(),
            stream: None,
            len,
            size,
            alignment,
        }
    }

    pub(super) fn need(&self) -> Need {
        Need { requested: self.len, class: self.size }
    }

    /// Bytes that were asked for.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes. Blocks have at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the block: what was asked for, rounded up to the arena's alignment.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its bytes for reading on `stream`, behind the work of the stream that wrote them last: another stream
    /// waits for that on the device. The block does not move while the region exists.
    ///
    /// # Errors
    /// [`Error::Arena`] after the arena was reset or resized, [`Error::Asleep`], [`Error::WrongDevice`],
    /// [`Error::Backend`] when the device refuses the event or the wait, [`Error::Capture`] when that would
    /// be between a stream that is captured and one that is not.
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        self.region(self.len, stream)
    }

    /// Its bytes for reading and writing on `stream`, behind the work of all streams that used them; else as
    /// [`on`](Self::on).
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.region_mut(self.len, stream)
    }

    /// Where it is in its [memory](Self::memory) at this moment, bytes. Without a region it can move at any
    /// time.
    ///
    /// # Errors
    /// [`Error::Arena`] after the arena was reset or resized.
    pub fn offset(&self) -> Result<u64, Error> {
        fork::check()?;
        let state = self.arena.settled(self.block);
        // After a resize the block is another engine's, after a reset the engine's of before: stale both.
        if state.slots.get(self.block).is_none() {
            return Err(ArenaError::StaleBlock.into());
        }
        self.offset_in(&state)
    }

    fn offset_in(&self, state: &State<B>) -> Result<u64, Error> {
        match self.stitched_at {
            Some(offset) => Ok(offset),
            None => Ok(state.engine.offset(self.block)?),
        }
    }

    /// Where it is at this moment, where the device has addresses, and whether it stays there.
    pub(crate) fn address(&self) -> Option<(u64, bool)> {
        let start = self.range().address()?;
        if fork::is_child() {
            return None;
        }
        let state = self.arena.settled(self.block);
        state.slots.get(self.block)?;
        let offset = self.offset_in(&state).ok()?;
        Some((start + offset, state.backing.is_some()))
    }

    /// Where in the arena's range its bytes are at this moment, offsets, in the order of its own: one part,
    /// or of a stitched block as many as it is stitched of. None after the arena was reset or resized.
    #[must_use]
    pub fn parts(&self) -> Vec<Range<u64>> {
        if fork::is_child() {
            return Vec::new();
        }
        let state = self.arena.settled(self.block);
        let Some(slot) = state.slots.get(self.block) else { return Vec::new() };
        let blocks = std::iter::once(self.block).chain(slot.more().iter().copied());
        let extents = blocks.map(|block| state.engine.extent(block));
        extents.map(|(offset, bytes)| offset..offset + bytes).collect()
    }

    /// The memory that it is a part of: the arena's range, or a stitched one of a growing arena's. The block
    /// stays where it is while the result exists, and no region made of the memory outlives that.
    #[must_use]
    pub fn memory(&self) -> HeldMemory<'_, B::Memory> {
        if fork::is_child() {
            return HeldMemory::new(self.range(), None);
        }
        let mut state = self.arena.settled(self.block);
        // A stale block has no place to be kept at.
        let hold = state.slots.get_mut(self.block).map(|slot| self.hold_of(slot));
        HeldMemory::new(self.range(), hold)
    }

    /// A hold of its slot, which is under the lock.
    fn hold_of(&self, slot: &mut LiveBlock<B::Stream>) -> Hold<'_> {
        Hold::new(self.holds.get_or_init(|| Arc::clone(slot.holds())))
    }

    pub(crate) fn range(&self) -> &Arc<B::Memory> {
        match &self.range {
            Some(range) => range,
            None => unreachable!("a buffer has its range until it is dropped"),
        }
    }

    /// Copies `bytes` from the host to its start, in order on `stream`. `bytes` may be reused at once.
    ///
    /// # Errors
    /// [`Error::Backend`] when there are more bytes than it has or the device fails; else as
    /// [`on`](Self::on).
    pub fn write(&mut self, stream: &B::Stream, bytes: &[u8]) -> Result<(), Error> {
        let device = self.arena.device.clone();
        let region = self.on_mut(stream)?.slice(..bytes.len() as u64)?;
        Ok(device.upload(stream, bytes, region)?)
    }

    /// Copies its start to `bytes` on the host, in order on `stream`, and blocks until they are there.
    ///
    /// # Errors
    /// As [`write`](Self::write), and failures of earlier work on the stream.
    pub fn read(&self, stream: &B::Stream, bytes: &mut [u8]) -> Result<(), Error> {
        let region = self.on(stream)?.slice(..bytes.len() as u64)?;
        Ok(self.arena.device.download(stream, region, bytes)?)
    }

    /// Its first `len` bytes for reading; `len` is at most its size.
    pub(crate) fn region(&self, len: u64, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        let (hold, offset, _) =
            self.hold(stream, After::Contents, LiveBlock::before_read, LiveBlock::read_by)?;
        Ok(Region::new(&**self.range(), offset, len, stream)?.held(hold))
    }

    /// Its first `len` bytes for writing; `len` is at most its size.
    pub(crate) fn region_mut(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        let (hold, offset, _) =
            self.hold(stream, After::Contents, LiveBlock::before_write, LiveBlock::written_by)?;
        let room = self.size.saturating_sub(len);
        Ok(RegionMut::new(&**self.range(), offset, len, stream)?.with_room(room).held(hold))
    }

    /// Says that work on `stream` reads it, for work that got its address in another way; else as
    /// [`on`](Self::on). Call it before the work is submitted: what was enqueued on `stream` so far is
    /// [submitted](Backend::flush) then.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        self.lend(stream)?;
        Ok(self.arena.device.flush(stream)?)
    }

    /// As [`used_on`](Self::used_on), for work that goes through the device. Returns the capture in which
    /// alone it is so.
    pub(crate) fn lend(&self, stream: &B::Stream) -> Result<Option<CaptureId>, Error> {
        self.hold(stream, After::Contents, LiveBlock::before_read, LiveBlock::read_by)
            .map(|(.., capture)| capture)
    }

    /// Says that work on `stream` uses it, and has that wait for nothing: the program's own order does. Who
    /// gets its bytes next, or writes it through a region, waits for that stream too. On a stream that is
    /// captured it is [`used_on`](Self::used_on).
    ///
    /// # Errors
    /// [`Error::Arena`] after the arena was reset or resized, [`Error::Asleep`], [`Error::WrongDevice`]; on a
    /// stream that is captured as [`on`](Self::on).
    pub fn record_stream(&self, stream: &B::Stream) -> Result<(), Error> {
        self.arena.check_device(stream)?;
        match self.arena.device.is_capturing(stream)? {
            true => self.used_on(stream),
            false => {
                self.note_stream(stream)?;
                Ok(self.arena.device.flush(stream)?)
            }
        }
    }

    /// As [`record_stream`](Self::record_stream) of a stream of the device that is not captured.
    pub(crate) fn note_stream(&self, stream: &B::Stream) -> Result<(), Error> {
        let mut state = self.arena.awake(self.block, self.len)?;
        let slot = state.slots.get_mut(self.block).ok_or(ArenaError::StaleBlock)?;
        slot.recorded_on(stream);
        Ok(())
    }

    /// Makes `stream` wait for every stream that used it, and its order the block's own. Returns the capture
    /// in which alone it is so.
    pub(crate) fn hand_over(&self, stream: &B::Stream, after: After) -> Result<Option<CaptureId>, Error> {
        self.hold(stream, after, LiveBlock::before_write, LiveBlock::written_by).map(|(.., capture)| capture)
    }

    /// Keeps it where it is, and puts what `stream` does from now on behind the work of those who are
    /// `before` it. Returns the capture in which alone that is so, too.
    fn hold(
        &self,
        stream: &B::Stream,
        after: After,
        before: impl FnOnce(&LiveBlock<B::Stream>, &B::Stream) -> Streams<B::Stream>,
        then: impl FnOnce(&mut LiveBlock<B::Stream>, &B::Stream, Option<CaptureId>),
    ) -> Result<(Hold<'_>, u64, Option<CaptureId>), Error> {
        self.arena.check_device(stream)?;
        let mut state = self.arena.awake(self.block, self.len)?;
        let offset = self.offset_in(&state)?;
        let Some(slot) = state.slots.get_mut(self.block) else { return Err(ArenaError::StaleBlock.into()) };
        // Nothing moves it, and so becomes a user, from here on.
        let hold = self.hold_of(slot);
        let users = before(slot, stream);
        if users.is_empty() {
            then(slot, stream, None);
            return Ok((hold, offset, None));
        }
        drop(state);
        let capture = self.arena.order(users.iter(), stream, self.need(), after)?;
        if let Some(slot) = self.arena.state.lock_with_deferred().slots.get_mut(self.block) {
            then(slot, stream, capture);
        }
        Ok((hold, offset, capture))
    }
}

impl<B: Backend> Drop for ArenaBuffer<B> {
    fn drop(&mut self) {
        if fork::is_child() {
            // None of them is ever dropped then.
            std::mem::forget((self.range.take(), Arc::clone(&self.arena)));
            return;
        }
        if self.is_emptied {
            // Before the arena.
            self.range = None;
            return;
        }
        let mut state = self.arena.settled(self.block);
        let backup = if state.is_awake() { Vec::new() } else { state.forget_backup(self.block) };
        // A stale block, after a reset, has no slot and nothing to free.
        let freed = state.free(self.block);
        let range = state.keep_handle(self.range.take());
        drop(state);
        if let Some(to_record) = &freed.to_record {
            self.arena.record_points(to_record);
        }
        drop((freed, range, backup));
    }
}

impl<B: Backend> fmt::Debug for ArenaBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaBuffer")
            .field("len", &self.len)
            .field("size", &self.size)
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}
