//! A block of an arena on loan.

use super::Shared;
use super::slot::Slot;
use super::unsettled::add;
use crate::arena::{ArenaError, Block};
use crate::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use vrampool_backend::{Backend, Hold, Region, RegionMut, Stream};

/// A block of a [`DeviceArena`](super::DeviceArena). Dropping it frees it; it may outlive the arena's handles.
///
/// The way to its bytes goes through a stream, as with [`Buffer`](crate::Buffer). It follows its data: a compaction moves
/// it when no region of it exists, and the next region is where the data is.
pub struct ArenaBuffer<B: Backend> {
    arena: Arc<Shared<B>>,
    range: Arc<B::Memory>,
    block: Block,
    holds: Arc<AtomicU32>,
    len: u64,
    size: u64,
}

impl<B: Backend> ArenaBuffer<B> {
    pub(super) fn new(
        arena: Arc<Shared<B>>,
        range: Arc<B::Memory>,
        block: Block,
        holds: Arc<AtomicU32>,
        len: u64,
        size: u64,
    ) -> Self {
        Self { arena, range, block, holds, len, size }
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

    /// Its bytes for reading on `stream`. The first use on another stream makes that stream wait, on the device, for the
    /// block's own. The block does not move while the region exists.
    ///
    /// # Errors
    /// [`Error::Arena`] after the arena was reset or resized, [`Error::WrongDevice`], [`Error::Backend`] when the device
    /// refuses the event or the wait.
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        self.region(self.len, stream)
    }

    /// Its bytes for reading and writing on `stream`; else as [`on`](Self::on).
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.region_mut(self.len, stream)
    }

    /// Where it is in the range at this moment, bytes. Without a region it can move at any time.
    ///
    /// # Errors
    /// [`Error::Arena`] after the arena was reset or resized.
    pub fn offset(&self) -> Result<u64, Error> {
        Ok(self.arena.settled(self.block).engine.offset(self.block)?)
    }

    /// The memory that it is a part of.
    #[must_use]
    pub fn memory(&self) -> &B::Memory {
        &self.range
    }

    /// Copies `bytes` from the host to its start, in order on `stream`. `bytes` may be reused at once.
    ///
    /// # Errors
    /// [`Error::Backend`] when there are more bytes than it has or the device fails; else as [`on`](Self::on).
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

    /// Changes its length to `bytes`, with its contents (as far as they fit), for use on `stream`: in place where there is
    /// room, else in a new block. On failure it is as it was.
    ///
    /// # Errors
    /// As [`DeviceArena::allocate`](super::DeviceArena::allocate).
    pub fn resize(&mut self, bytes: u64, stream: &B::Stream) -> Result<(), Error> {
        self.resize_by(bytes, stream, |old, new| {
            let kept = old.len.min(bytes);
            let source = old.region(kept, stream)?;
            let destination = new.region_mut(kept, stream)?;
            Ok(old.arena.device.copy(stream, source, destination)?)
        })
    }

    /// As [`resize`](Self::resize), and the contents need not be kept.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn resize_discarding(&mut self, bytes: u64, stream: &B::Stream) -> Result<(), Error> {
        self.resize_by(bytes, stream, |_, _| Ok(()))
    }

    fn resize_by(
        &mut self,
        bytes: u64,
        stream: &B::Stream,
        keep: impl FnOnce(&Self, &mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.arena.settled(self.block);
        let region = state.engine.region(self.block)?;
        if bytes <= self.size && bytes > 0 {
            self.len = bytes;
            return Ok(());
        }
        let (offset, size) = (state.engine.offset(self.block)?, state.engine.size(self.block)?);
        match state.engine.resize_in_place(self.block, bytes) {
            Ok(()) => {
                let grown = state.engine.size(self.block)?;
                let before = state.unsettled.take(offset + size..offset + grown);
                let slot = state.slots.get_mut(&self.block).ok_or(ArenaError::StaleBlock)?;
                let mut users = slot.users();
                before.iter().for_each(|user| add(&mut users, user));
                let _hold = Hold::new(&self.holds);
                drop(state);
                for user in users.iter().filter(|user| user.id() != stream.id()) {
                    if let Err(error) = self.arena.order(user, stream) {
                        let mut state = self.arena.state.lock();
                        // Back to its old size, which is always to be had.
                        state.engine.resize_in_place(self.block, size)?;
                        state.unsettled.put(offset + size..offset + grown, before);
                        return Err(error);
                    }
                }
                if let Some(slot) = self.arena.state.lock().slots.get_mut(&self.block) {
                    slot.hand_over(stream);
                }
                (self.len, self.size) = (bytes, grown);
                Ok(())
            }
            Err(error) if error.is_out_of_memory() => {
                drop(state);
                let arena = super::DeviceArena { shared: Arc::clone(&self.arena) };
                let mut new = arena.allocate_in(region, bytes, stream)?;
                keep(self, &mut new)?;
                *self = new;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Its first `len` bytes for reading; `len` is at most its size.
    pub(crate) fn region(&self, len: u64, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        let (hold, offset) = self.hold(stream)?;
        Ok(Region::new(&*self.range, offset, len, stream)?.held(hold))
    }

    /// Its first `len` bytes for writing; `len` is at most its size.
    pub(crate) fn region_mut(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        let (hold, offset) = self.hold(stream)?;
        Ok(RegionMut::new(&*self.range, offset, len, stream)?.held(hold))
    }

    /// Records that work on `stream` uses it; else as [`on`](Self::on).
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        self.hold(stream).map(drop)
    }

    /// Keeps it where it is, and makes `stream` wait if this is its first use there.
    fn hold(&self, stream: &B::Stream) -> Result<(Hold<'_>, u64), Error> {
        self.arena.check_device(stream)?;
        let state = self.arena.settled(self.block);
        let offset = state.engine.offset(self.block)?;
        let hold = Hold::new(&self.holds);
        let before = state.slots.get(&self.block).map(|slot| slot.before(stream)).unwrap_or_default();
        drop(state);
        if !before.is_empty() {
            before.iter().try_for_each(|user| self.arena.order(user, stream))?;
            if let Some(slot) = self.arena.state.lock().slots.get_mut(&self.block) {
                slot.used_by(stream);
            }
        }
        Ok((hold, offset))
    }

    /// Makes `stream` wait for every stream that used it, and its order the block's own.
    pub(crate) fn hand_over(&self, stream: &B::Stream) -> Result<(), Error> {
        let state = self.arena.settled(self.block);
        let users = state.slots.get(&self.block).map(Slot::users).unwrap_or_default();
        // Nothing moves it, and so becomes a user, in between.
        let _hold = Hold::new(&self.holds);
        drop(state);
        for user in users.iter().filter(|user| user.id() != stream.id()) {
            self.arena.order(user, stream)?;
        }
        if let Some(slot) = self.arena.state.lock().slots.get_mut(&self.block) {
            slot.hand_over(stream);
        }
        Ok(())
    }
}

impl<B: Backend> Drop for ArenaBuffer<B> {
    fn drop(&mut self) {
        let mut state = self.arena.settled(self.block);
        // A stale block, after a reset, has no slot and nothing to free.
        let Some(slot) = state.slots.remove(&self.block) else { return };
        let place = state.engine.offset(self.block).ok().zip(state.engine.size(self.block).ok());
        if let Some((offset, size)) = place
            && state.engine.free(self.block).is_ok()
        {
            state.unsettled.put(offset..offset + size, slot.users());
        }
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
