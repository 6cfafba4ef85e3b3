//! A buffer that sleeps and wakes with its tag.

use crate::arena::SleepArena;
use crate::callbacks::{Callback, SleepAllocation, call_all};
use crate::reports::BlockState;
use crate::shared::Shared;
use std::fmt;
use std::mem;
use std::sync::Arc;
use vrampool::arena::ArenaBuffer;
use vrampool::backend::fork;
use vrampool::backend::fork::ForkArc;
use vrampool::{Backend, Error, Region, RegionMut};

/// A block of a [`Sleeper`](crate::Sleeper). Dropping it frees it, awake or asleep.
///
/// Its address stays while it sleeps. A region of it keeps its tag awake: a sleep fails while one exists.
///
/// ```
/// use vrampool::{Backend, host::HostDevice};
/// use vrampool_sleep::{Sleeper, Wake};
/// # fn main() -> Result<(), vrampool_sleep::Error> {
/// let device = HostDevice::new();
/// # if device.virtual_memory().is_none() { return Ok(()) }
/// let stream = device.create_stream()?;
/// let sleeper = Sleeper::new(&device)?;
/// let mut weights = sleeper.allocate_tagged(1000, "weights", &stream)?;
/// weights.write(&[7; 1000], &stream)?;
/// sleeper.sleep(&["weights"])?;
/// assert!(weights.on(&stream).is_err()); // asleep
/// sleeper.wake_up(Wake::All)?;
/// let mut bytes = [0; 1000];
/// weights.read(&mut bytes, &stream)?;
/// assert_eq!(bytes, [7; 1000]);
/// # Ok(())
/// # }
/// ```
pub struct SleepBuffer<B: Backend> {
    /// `None` only while dropping.
    block: Option<ArenaBuffer<B>>,
    tag: Arc<str>,
    arena: SleepArena<B>,
    len: u64,
    sleeper: ForkArc<Shared<B>>,
}

impl<B: Backend> SleepBuffer<B> {
    pub(super) fn new(
        block: ArenaBuffer<B>,
        (tag, arena): (Arc<str>, SleepArena<B>),
        len: u64,
        sleeper: ForkArc<Shared<B>>,
    ) -> Self {
        Self { block: Some(block), tag, arena, len, sleeper }
    }

    fn block(&self) -> &ArenaBuffer<B> {
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
        self.block().capacity()
    }

    /// Returns the tag it was allocated under.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the state of its contents. Waits for a pending sleep or wake.
    #[must_use]
    pub fn state(&self) -> BlockState {
        self.arena.contents()
    }

    /// Returns its device address, the same asleep and awake; `None` if the device has no addresses.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        self.block().address()
    }

    /// Returns its bytes on `stream`, ordered after the last writer's work.
    ///
    /// # Errors
    /// As [`ArenaBuffer::on`].
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        fork::check()?;
        self.block().on(stream)
    }

    /// Returns its bytes on `stream` for reading and writing, ordered after the work of all users.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        fork::check()?;
        match &mut self.block {
            Some(block) => block.on_mut(stream),
            None => unreachable!("a buffer has its block until it is dropped"),
        }
    }

    /// Records that work on `stream` reads it, for work that obtained its address in another way.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        self.block().used_on(stream)
    }

    /// Copies `bytes` from the host to its start, in order on `stream`. `bytes` may be reused at once.
    ///
    /// # Errors
    /// [`Error::Asleep`]; [`Error::Backend`] if `bytes` is longer than the block or the device fails.
    pub fn write(&mut self, bytes: &[u8], stream: &B::Stream) -> Result<(), Error> {
        let device = self.sleeper.device.clone();
        let region = self.on_mut(stream)?.slice(..bytes.len() as u64)?;
        Ok(device.upload(stream, bytes, region)?)
    }

    /// Copies its start to `bytes` on the host, in order on `stream`, and blocks until the copy is complete.
    ///
    /// # Errors
    /// As [`write`](Self::write), and failures of earlier work on the stream.
    pub fn read(&self, bytes: &mut [u8], stream: &B::Stream) -> Result<(), Error> {
        let region = self.on(stream)?.slice(..bytes.len() as u64)?;
        Ok(self.sleeper.device.download(stream, region, bytes)?)
    }

    /// Calls each of the given callbacks with this block, whichever of them panics.
    pub(super) fn tell(&self, told: &[Callback]) {
        if !told.is_empty() {
            let (tag, bytes, address) = (&*self.tag, self.len, self.address());
            call_all(told, &SleepAllocation { tag, bytes, address });
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
