//! A buffer that sleeps and wakes with its tag.

use super::BlockState;
use super::callbacks::{Callback, SleepAllocation};
use super::core::SleeperCore;
use super::group::GroupBlock;
use super::separate_blocks::{CheckedOut, SeparateBuffer};
use crate::arena::ArenaBuffer;
use crate::error::Error;
use crate::pool::buffer::Buffer;
use std::fmt;
use std::mem;
use std::sync::Arc;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, Memory, Region, RegionMut, fork};

/// A block of a [`Sleeper`](super::Sleeper). Dropping it frees it, awake or asleep.
///
/// Its bytes are reached through an [`access`](Self::access), because on a device without virtual memory each
/// wake allocates other memory.
///
/// ```
/// use vrampool::sleep::{Sleeper, Wake};
/// use vrampool::{Backend, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let sleeper = Sleeper::new(&device)?;
/// let mut weights = sleeper.allocate_tagged(1000, "weights", &stream)?;
/// weights.write(&[7; 1000], &stream)?;
/// sleeper.sleep(&["weights"])?;
/// assert!(weights.access().is_err()); // asleep
/// sleeper.wake_up(Wake::All)?;
/// let mut bytes = [0; 1000];
/// weights.read(&mut bytes, &stream)?;
/// assert_eq!(bytes, [7; 1000]);
/// # Ok(())
/// # }
/// ```
pub struct SleepBuffer<B: Backend> {
    /// `None` only while dropping.
    block: Option<GroupBlock<B>>,
    tag: Arc<str>,
    len: u64,
    sleeper: ForkArc<SleeperCore<B>>,
}

impl<B: Backend> SleepBuffer<B> {
    pub(super) fn new(
        block: GroupBlock<B>,
        tag: Arc<str>,
        len: u64,
        sleeper: ForkArc<SleeperCore<B>>,
    ) -> Self {
        Self { block: Some(block), tag, len, sleeper }
    }

    fn block(&self) -> &GroupBlock<B> {
        match &self.block {
            Some(block) => block,
            None => unreachable!("a buffer has its block until it is dropped"),
        }
    }

    /// Returns the requested bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes. Blocks have at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of its block: the requested bytes, rounded up.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self.block() {
            GroupBlock::Arena(buffer) => buffer.capacity(),
            GroupBlock::Separate(buffer) => buffer.capacity(),
        }
    }

    /// Returns the tag it was allocated under.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the state of its contents. Waits for a pending sleep or wake.
    #[must_use]
    pub fn state(&self) -> BlockState {
        if fork::is_child() {
            return BlockState::AsleepDiscarded;
        }
        match self.block() {
            GroupBlock::Arena(buffer) => buffer.state(),
            GroupBlock::Separate(buffer) => buffer.state(),
        }
    }

    /// Returns its current device address; `None` if the device has no addresses, or the block has none
    /// because it is asleep.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        if fork::is_child() {
            return None;
        }
        match self.block() {
            GroupBlock::Arena(buffer) => Some(buffer.range().address()? + buffer.offset().ok()?),
            GroupBlock::Separate(buffer) => buffer.address(),
        }
    }

    /// Returns its memory for reading, which cannot fall asleep while regions of it exist.
    ///
    /// # Errors
    /// [`Error::Asleep`].
    pub fn access(&self) -> Result<Access<'_, B>, Error> {
        fork::check()?;
        let way = match self.block() {
            GroupBlock::Arena(buffer) => {
                buffer.check_awake()?;
                Way::Arena(buffer)
            }
            GroupBlock::Separate(buffer) => Way::Separate(buffer.access()?),
        };
        Ok(Access { way, len: self.len })
    }

    /// Returns its memory for writing; else as [`access`](Self::access).
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub fn access_mut(&mut self) -> Result<AccessMut<'_, B>, Error> {
        fork::check()?;
        let len = self.len;
        let way = match &mut self.block {
            Some(GroupBlock::Arena(buffer)) => {
                buffer.check_awake()?;
                WayMut::Arena(buffer)
            }
            Some(GroupBlock::Separate(buffer)) => WayMut::Separate(SeparateBuffer::access_mut(buffer)?),
            None => unreachable!("a buffer has its block until it is dropped"),
        };
        Ok(AccessMut { way, len })
    }

    /// Copies `bytes` from the host to its start, in order on `stream`. `bytes` may be reused at once.
    ///
    /// # Errors
    /// [`Error::Asleep`]; [`Error::Backend`] if `bytes` is longer than the block or the device fails.
    pub fn write(&mut self, bytes: &[u8], stream: &B::Stream) -> Result<(), Error> {
        let device = self.sleeper.device.clone();
        let mut access = self.access_mut()?;
        let region = access.on_mut(stream)?.slice(..bytes.len() as u64)?;
        Ok(device.upload(stream, bytes, region)?)
    }

    /// Copies its start to `bytes` on the host, in order on `stream`, and blocks until the copy is complete.
    ///
    /// # Errors
    /// As [`write`](Self::write), and failures of earlier work on the stream.
    pub fn read(&self, bytes: &mut [u8], stream: &B::Stream) -> Result<(), Error> {
        let access = self.access()?;
        let region = access.on(stream)?.slice(..bytes.len() as u64)?;
        Ok(self.sleeper.device.download(stream, region, bytes)?)
    }

    /// Calls the given callbacks with this block.
    pub(super) fn tell(&self, told: &[Callback]) {
        if !told.is_empty() {
            let allocation = SleepAllocation { tag: &self.tag, bytes: self.len, address: self.address() };
            told.iter().for_each(|told| told(&allocation));
        }
    }
}

impl<B: Backend> Drop for SleepBuffer<B> {
    fn drop(&mut self) {
        if fork::is_child() {
            return mem::forget(self.block.take());
        }
        self.tell(&self.sleeper.callbacks.on_free);
        self.block = None;
    }
}

impl<B: Backend> fmt::Debug for SleepBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepBuffer").field("tag", &self.tag).field("len", &self.len).finish_non_exhaustive()
    }
}

/// A block's memory for reading.
#[derive(Debug)]
pub struct Access<'a, B: Backend> {
    way: Way<'a, B>,
    len: u64,
}

#[derive(Debug)]
enum Way<'a, B: Backend> {
    Arena(&'a ArenaBuffer<B>),
    /// Keeps the buffer awake until the guard is dropped: sleeping fails meanwhile.
    Separate(Arc<Buffer<B>>),
}

impl<B: Backend> Access<'_, B> {
    /// Returns its bytes on `stream`, ordered after the last writer's work.
    ///
    /// # Errors
    /// [`Error::Asleep`]; else as [`ArenaBuffer::on`].
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        match &self.way {
            Way::Arena(buffer) => buffer.on(stream),
            Way::Separate(buffer) => Ok(buffer.on(stream)?.slice(..self.len)?),
        }
    }

    /// Records that work on `stream` reads it, for work that obtained its address in another way.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        match &self.way {
            Way::Arena(buffer) => buffer.used_on(stream),
            Way::Separate(buffer) => buffer.used_on(stream),
        }
    }
}

/// A block's memory for writing.
#[derive(Debug)]
pub struct AccessMut<'a, B: Backend> {
    way: WayMut<'a, B>,
    len: u64,
}

#[derive(Debug)]
enum WayMut<'a, B: Backend> {
    Arena(&'a mut ArenaBuffer<B>),
    Separate(CheckedOut<'a, B>),
}

impl<B: Backend> AccessMut<'_, B> {
    /// Returns its bytes on `stream` for reading and writing, ordered after the work of all users.
    ///
    /// # Errors
    /// As [`Access::on`].
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        match &mut self.way {
            WayMut::Arena(buffer) => buffer.on_mut(stream),
            WayMut::Separate(buffer) => Ok(buffer.get_mut().on_mut(stream)?.slice(..self.len)?),
        }
    }
}
