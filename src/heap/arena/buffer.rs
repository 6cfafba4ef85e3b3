//! An allocated block of an arena.

use crate::error::Error;
use crate::heap::arena::compaction::copier::Copier;
use crate::heap::arena::{ArenaBuffer, DeviceArena, LiveBlock, State};
use crate::heap::space::ArenaError;
use crate::streams::{Access, Need, Order, Streams, WaitFor};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::spi::Hold;
use vrampool_backend::{Backend, CaptureId, HeldMemory, Memory, Region, RegionMut, fork};

impl<B: Backend> ArenaBuffer<B> {
    pub(super) fn need(&self) -> Need {
        Need { requested: self.len, class: self.size }
    }

    /// Requested bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the length is 0. Blocks have at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The block's bytes: the requested bytes, rounded up to the arena's alignment.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.size
    }

    /// Returns the bytes for reading on `stream`.
    ///
    /// The region is ordered after the work of the stream that wrote the bytes last; another stream waits for
    /// that work on the device. The block does not move while the region exists.
    ///
    /// # Errors
    /// [`Error::Arena`] after a reset or resize of the arena; [`Error::Asleep`]; [`Error::WrongDevice`];
    /// [`Error::Backend`] if the device refuses the event or the wait; [`Error::Capture`] if that would be
    /// between a captured and an uncaptured stream.
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        self.region(self.len, stream)
    }

    /// As [`on`](Self::on) for reading and writing, ordered after all streams that used the bytes.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.region_mut(self.len, stream)
    }

    /// Returns the current offset in the block's [memory](Self::memory), bytes. Without a region it may
    /// change.
    ///
    /// # Errors
    /// [`Error::Arena`] after a reset or resize of the arena.
    pub fn offset(&self) -> Result<u64, Error> {
        fork::check()?;
        let state = self.arena.lock_unmoved(self.block);
        // After a resize the name is of another engine, after a reset of an earlier state: both are stale.
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

    /// Returns the current address, if the device has addresses, and whether it is permanent.
    pub(crate) fn place(&self) -> Option<(u64, bool)> {
        let start = self.range().address()?;
        if fork::is_forked() {
            return None;
        }
        let state = self.arena.lock_unmoved(self.block);
        state.slots.get(self.block)?;
        let offset = self.offset_in(&state).ok()?;
        Some((start + offset, state.backing.is_some()))
    }

    /// Returns the offsets of the block's bytes in the arena's range, in the block's order.
    ///
    /// A stitched block has several parts, any other block one, and a block after a reset or resize none.
    #[must_use]
    pub fn parts(&self) -> Vec<Range<u64>> {
        if fork::is_forked() {
            return Vec::new();
        }
        let state = self.arena.lock_unmoved(self.block);
        let Some(slot) = state.slots.get(self.block) else { return Vec::new() };
        slot.blocks(self.block).map(|block| state.engine.extent(block).range()).collect()
    }

    /// Returns the memory that contains the block: the arena's range, or a stitched range of a growing arena.
    ///
    /// The block does not move while the result exists. No region made of the memory outlives the result.
    #[must_use]
    pub fn memory(&self) -> HeldMemory<'_, B::Memory> {
        if fork::is_forked() {
            return HeldMemory::new(self.range(), None);
        }
        let mut state = self.arena.lock_unmoved(self.block);
        // A stale block has no slot, and so nothing to hold in place.
        let hold = state.slots.get_mut(self.block).map(|slot| self.hold_of(slot));
        HeldMemory::new(self.range(), hold)
    }

    /// Returns a hold of the block's slot, which is under the lock.
    fn hold_of(&self, slot: &mut LiveBlock<B::Stream>) -> Hold<'_> {
        Hold::new(self.holds.get_or_init(|| Arc::clone(slot.holds())))
    }

    pub(crate) fn range(&self) -> &Arc<B::Memory> {
        match &self.range {
            Some(range) => range,
            None => unreachable!("a buffer has its range until it is dropped"),
        }
    }

    /// Copies `bytes` to the block's start, in order on `stream`. `bytes` may be reused at once.
    ///
    /// # Errors
    /// [`Error::Backend`] if `bytes` is longer than the buffer or the device fails; else as [`on`](Self::on).
    pub fn write(&mut self, bytes: &[u8], stream: &B::Stream) -> Result<(), Error> {
        let device = self.arena.device.clone();
        let region = self.on_mut(stream)?.slice(..bytes.len() as u64)?;
        Ok(device.upload(stream, bytes, region)?)
    }

    /// Copies the block's start to `bytes` on the host, in order on `stream`, and blocks until then.
    ///
    /// # Errors
    /// As [`write`](Self::write), and failures of earlier work on the stream.
    pub fn read(&self, bytes: &mut [u8], stream: &B::Stream) -> Result<(), Error> {
        let region = self.on(stream)?.slice(..bytes.len() as u64)?;
        Ok(self.arena.device.download(stream, region, bytes)?)
    }

    /// Returns the first `len` bytes for reading; `len` is at most the block's size.
    pub(crate) fn region(&self, len: u64, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        let (hold, offset, _) = self.hold(stream, WaitFor::Data, Access::Read)?;
        Ok(Region::new(&**self.range(), offset, len, stream)?.held(hold))
    }

    /// Returns the first `len` bytes for writing; `len` is at most the block's size.
    pub(crate) fn region_mut(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        let (hold, offset, _) = self.hold(stream, WaitFor::Data, Access::Write)?;
        let room = self.size.saturating_sub(len);
        Ok(RegionMut::new(&**self.range(), offset, len, stream)?.with_room(room).held(hold))
    }

    /// Returns its device address at this moment; `None` if the device has no addresses, after a reset or resize of
    /// the arena, and in a forked child. In a [growing](super::ArenaBuilder::growing) arena it stays, also while the
    /// arena is detached.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        self.place().map(|(address, _)| address)
    }

    /// Changes the length to `bytes` for use on `stream`, and keeps the contents as far as they fit.
    ///
    /// A block that is too small is replaced by another one. A failure changes nothing.
    ///
    /// # Errors
    /// As [`DeviceArena::allocate`](super::DeviceArena::allocate).
    pub fn resize(&mut self, bytes: u64, stream: &B::Stream) -> Result<(), Error> {
        self.arena.check_device(stream)?;
        let state = self.arena.attached(bytes, || self.arena.lock_unmoved(self.block))?;
        let zone = state.engine.zone_at(state.engine.offset(self.block)?);
        drop(state);
        if bytes <= self.size && bytes > 0 {
            self.len = bytes;
            return Ok(());
        }
        let arena = DeviceArena { core: Arc::clone(&self.arena) };
        let mut new = arena.allocate_in(bytes, zone, stream)?;
        // Block sizes are multiples of the granularity.
        let granularity = self.arena.device.properties().copy_granularity;
        let kept = self.len.min(bytes).next_multiple_of(granularity);
        let are_of_one =
            self.stitched_at.is_none() && new.stitched_at.is_none() && Arc::ptr_eq(self.range(), new.range());
        {
            let (source, destination) = (self.region(kept, stream)?, new.region_mut(kept, stream)?);
            if are_of_one {
                let copier = Copier::new(&arena, Arc::clone(self.range()), stream);
                copier.move_to(source.offset(), destination.offset(), kept)?;
            } else {
                self.arena.device.copy(stream, source, destination)?;
            }
        }
        *self = new;
        Ok(())
    }

    /// Records that work on `stream` reads the block, for work that obtained the address in another way.
    ///
    /// Else as [`on`](Self::on). Call it before submitting that work: it [submits](Backend::flush) all work
    /// enqueued on `stream` so far.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        self.use_on(stream)?;
        Ok(self.arena.device.flush(stream)?)
    }

    /// As [`used_on`](Self::used_on), without submitting work.
    pub(crate) fn use_on(&self, stream: &B::Stream) -> Result<(), Error> {
        self.hold(stream, WaitFor::Data, Access::Read).map(drop)
    }

    /// Records that work on `stream` uses the block, without a wait: the program itself orders the work.
    ///
    /// The next owner of the bytes, and a writer through a region, wait for `stream` too. On a captured
    /// stream this is [`used_on`](Self::used_on).
    ///
    /// # Errors
    /// [`Error::Arena`] after a reset or resize of the arena, [`Error::Asleep`], [`Error::WrongDevice`]; for
    /// a captured stream as [`on`](Self::on).
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

    /// As [`record_stream`](Self::record_stream), for an uncaptured stream of the device.
    pub(crate) fn note_stream(&self, stream: &B::Stream) -> Result<(), Error> {
        let state = self.arena.attached(self.len, || self.arena.lock_unmoved(self.block))?;
        let slot = state.slots.get(self.block).ok_or(ArenaError::StaleBlock)?;
        slot.uses.recorded_on(stream);
        Ok(())
    }

    /// Whether all reads since the last write are part of `capture`; also if the block is stale, which its
    /// next use reports.
    pub(crate) fn are_reads_in(&self, capture: CaptureId) -> bool {
        let state = self.arena.lock_unmoved(self.block);
        state.slots.get(self.block).is_none_or(|slot| slot.uses.are_reads_in(capture))
    }

    /// Keeps the block where it is: no compaction moves it.
    pub(crate) fn stay(&self) {
        if let Some(slot) = self.arena.lock_unmoved(self.block).slots.get_mut(self.block) {
            slot.stays = true;
        }
    }

    /// All streams that may use the block; none if it is stale.
    pub(crate) fn users(&self) -> Streams<B::Stream> {
        self.arena.state.lock().users_of_live(self.block)
    }

    /// Makes `stream`, which need not wait for any user, the block's writer. After a
    /// [move](super::DeviceArena::compact) it waits for the copy, which what is known of the users does not include.
    ///
    /// # Errors
    /// As [`hand_over`](Self::hand_over), after a move.
    pub(crate) fn adopt(&self, stream: &B::Stream) -> Result<(), Error> {
        let mut state = self.arena.lock_unmoved(self.block);
        match state.slots.get_mut(self.block) {
            Some(slot) if slot.moved => {
                drop(state);
                self.hand_over(stream, WaitFor::Reuse).map(drop)
            }
            Some(slot) => {
                // Dropped without the lock, because these may be the last handles.
                let before = slot.uses.users();
                slot.used(stream, Access::Write, None);
                drop(state);
                drop(before);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Makes `stream` wait for every stream that used the block, and makes it the block's writer. Returns the
    /// capture to which the order is limited, if any.
    pub(crate) fn hand_over(&self, stream: &B::Stream, until: WaitFor) -> Result<Option<CaptureId>, Error> {
        self.hold(stream, until, Access::Write).map(|(.., capture)| capture)
    }

    /// Holds the block in place, and orders an access of later work on `stream` after its users.
    /// Returns the hold, the offset, and the capture to which the order is limited, if any.
    fn hold(
        &self,
        stream: &B::Stream,
        until: WaitFor,
        access: Access,
    ) -> Result<(Hold<'_>, u64, Option<CaptureId>), Error> {
        self.arena.check_device(stream)?;
        let mut locked = self.arena.attached(self.len, || self.arena.lock_unmoved(self.block))?;
        let state = &mut *locked;
        let offset = self.offset_in(state)?;
        let Some(slot) = state.slots.get_mut(self.block) else { return Err(ArenaError::StaleBlock.into()) };
        // From here on the block cannot move, so a compaction's stream cannot become a user.
        let hold = self.hold_of(slot);
        let users = slot.uses.before(stream, access);
        if users.is_empty() {
            slot.used(stream, access, None);
            return Ok((hold, offset, None));
        }
        drop(locked);
        let capture = self.arena.order(&users, stream, self.need(), until)?;
        if let Some(slot) = self.arena.state.lock().slots.get_mut(self.block) {
            slot.used(stream, access, capture);
        }
        Ok((hold, offset, capture))
    }

    /// Whether it has no block, and waits to be [refilled](Self::refill).
    pub(crate) fn is_emptied(&self) -> bool {
        self.is_emptied
    }

    /// Frees the block, also where that takes more than [bookkeeping](Self::empty). Afterwards the buffer can only be
    /// [refilled](Self::refill).
    pub(crate) fn free(&mut self) {
        if self.is_emptied || fork::is_forked() {
            return;
        }
        let mut locked = self.arena.lock_unmoved(self.block);
        let state = &mut *locked;
        let report = state.freed_detached(self.block);
        // A block that a reset made stale has no slot and is not freed.
        let (freed, to_record) = state.free(self.block).unzip();
        let dropped = state.uses.take_dropped();
        let range = state.range.keep_handle(self.range.take());
        self.arena.note_markers(state.uses.are_any_unasked());
        drop(locked);
        self.stitched_at = None;
        self.becomes_empty();
        if let Some(to_record) = to_record.flatten() {
            self.arena.freed(&to_record);
        }
        // Without the lock: dropping the last handle of a stream may wait for its work.
        drop((freed, dropped, range));
        if let Some((on_free, extents)) = report {
            on_free.call(&extents);
        }
    }
}

impl<B: Backend> Drop for ArenaBuffer<B> {
    fn drop(&mut self) {
        if fork::is_forked() {
            // Neither is ever dropped in a forked child.
            std::mem::forget((self.range.take(), Arc::clone(&self.arena)));
            return;
        }
        let lock = self.arena.state.shared();
        if !self.is_emptied && !self.empty(&mut lock.depot.lock().backend_state) {
            self.free();
        }
        // Before the arena.
        self.range = None;
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
