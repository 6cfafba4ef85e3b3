//! Starts detaching and attaching an arena, and reports its attachment.

use super::{Attaching, Attachment, Detaching, Phase};
use crate::error::Error;
use crate::heap::arena::DeviceArena;
use std::time::Duration;
use vrampool_backend::{Backend, fork};

impl<B: Backend> DeviceArena<B> {
    /// Begins to return all physical memory to the device. Blocks stay live at their addresses. Idle memory of the pool
    /// over the arena is released first, that of other threads' magazines at their next call, and the pool refuses
    /// requests for the arena until it is [attached](Self::attach).
    ///
    /// Only a [growing](crate::arena::ArenaBuilder::growing) arena can be detached. Waits on the host for all work that
    /// uses the blocks, and up to `timeout` for regions of them to end. Returns `None` if the arena is detached.
    ///
    /// From the start of the wait until the result is dropped, new regions and allocations of other threads wait; on
    /// this thread they fail with [`Error::Asleep`]. A detached arena then refuses them with [`Error::Asleep`], until
    /// it is [attached](Self::attach). Contents are lost unless the caller copies them first: see
    /// [`Detaching::memory`]. Several arenas detach all or none if the memory of each is [unmapped](Detaching::unmap)
    /// before any is [released](super::Unmapped::commit). The extension `vrampool-sleep` does both.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use vrampool::{Backend, host::HostDevice, arena::{Attachment, DeviceArena}};
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().build()?;
    /// let block = arena.allocate(4 << 20, &stream)?;
    /// let detaching = arena.detach(Duration::ZERO)?.expect("attached");
    /// assert_eq!(detaching.live(), block.parts());
    /// assert_eq!(detaching.unmap()?.commit(|_freed| {}), 4 << 20);
    /// assert_eq!((arena.attachment(), arena.reserved_bytes()), (Attachment::Detached, 0));
    /// assert!(block.on(&stream).is_err());
    /// assert_eq!(arena.attach()?.expect("detached").commit(), 4 << 20);
    /// assert!(block.on(&stream).is_ok());
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Arena`] with [`Pinned`](crate::arena::ArenaError::Pinned) if a region of a block still exists;
    /// [`Error::Capture`] while a captured stream uses a block; [`Error::Backend`] if the device fails, or the arena is
    /// not a growing one. The arena is then as before; idle memory of its pool may have been released.
    pub fn detach(&self, timeout: Duration) -> Result<Option<Detaching<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_detach(timeout).map_err(|error| self.explain(error, None))
    }

    /// Takes physical memory for all live blocks, and maps it at their addresses. Its contents are undefined.
    ///
    /// Returns `None` if the arena is not detached. The bytes are granted by its limit and its
    /// [`Ledger`](crate::Ledger) before the first call of the device.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device fails; [`Error::OutOfMemory`] if it has too little memory, or if the limit or
    /// the ledger has no room. The arena is then detached, and a later call can succeed.
    pub fn attach(&self) -> Result<Option<Attaching<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_attach().map_err(|error| self.explain(error, None))
    }

    /// Returns whether the arena has its physical memory: never in a forked child.
    #[must_use]
    pub fn attachment(&self) -> Attachment {
        if fork::is_forked() {
            return Attachment::Detached;
        }
        match self.core.state.lock().phase {
            Phase::Attached => Attachment::Attached,
            Phase::Changing => Attachment::Changing,
            Phase::Detached(_) => Attachment::Detached,
        }
    }
}
