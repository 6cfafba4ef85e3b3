//! Sleep of one arena: its contents are copied to the host, and its memory is detached.

use crate::backups::{Backups, bytes_of};
use crate::error::Error;
use crate::offload::Offload;
use crate::progress::Progress;
use crate::released::Released;
use crate::reports::SleepReport;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use vrampool::Backend;
use vrampool::arena::{Attaching, Detaching, DeviceArena, Unmapped};
use vrampool::backend::fork;
use vrampool::backend::fork::ForkArc;

/// A growing arena that sleeps: its physical memory returns to the device, and its addresses stay.
///
/// A sleep copies contents to the host, [detaches](DeviceArena::detach) the memory, and a wake restores both. While the
/// arena sleeps, allocations and uses of blocks fail with [`Asleep`](vrampool::Error::Asleep); during a sleep or a wake
/// they wait for its end. Dropping a block frees it and its backup (a small one together with its neighbours').
/// A clone is a handle to the same object. An arena has one, which owns the contents: without it they are lost.
///
/// ```
/// # use vrampool::{Backend, host::HostDevice, arena::DeviceArena};
/// # use vrampool_sleep::{Error, Offload, SleepArena};
/// # fn main() -> Result<(), Error> {
/// # let device = HostDevice::new();
/// # if device.virtual_memory().is_none() { return Ok(()) }
/// let stream = device.create_stream()?;
/// let arena = SleepArena::new(DeviceArena::builder(&device).growing().build()?);
/// let mut weights = arena.arena().allocate(4 << 20, &stream)?;
/// weights.write(&[7; 100], &stream)?;
/// let report = arena.sleep(Offload::Pinned)?;
/// assert_eq!((report.physical_bytes, report.copied_bytes), (4 << 20, 4 << 20));
/// assert_eq!(arena.arena().reserved_bytes(), 0);
/// assert!(weights.on(&stream).is_err());
/// assert_eq!(arena.wake()?.copied_bytes, 4 << 20);
/// let mut bytes = [0; 100];
/// weights.read(&mut bytes, &stream)?;
/// assert_eq!(bytes, [7; 100]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SleepArena<B: Backend> {
    shared: ForkArc<Shared<B>>,
}

#[derive(Debug)]
struct Shared<B: Backend> {
    arena: DeviceArena<B>,
    /// The contents of a sleeping arena. Locked during a sleep or a wake.
    kept: Mutex<Arc<Backups<B>>>,
    released: Released,
}

/// An arena that no thread can use, with its contents. A drop makes it usable again.
#[derive(Debug)]
pub(super) struct Detached<'a, B: Backend> {
    arena: &'a DeviceArena<B>,
    detaching: Detaching<'a, B>,
    kept: MutexGuard<'a, Arc<Backups<B>>>,
}

/// An arena whose contents are saved and whose memory is unmapped. A drop makes it usable again.
#[derive(Debug)]
pub(super) struct Falling<'a, B: Backend> {
    unmapped: Unmapped<'a, B>,
    backups: Backups<B>,
    live: u64,
    offload: Offload,
    kept: MutexGuard<'a, Arc<Backups<B>>>,
}

/// An arena that has memory and contents again, and still its backups. A drop puts it to sleep.
#[derive(Debug)]
pub(super) struct Waking<'a, B: Backend> {
    attaching: Attaching<'a, B>,
    restored: u64,
    released: &'a Released,
    kept: MutexGuard<'a, Arc<Backups<B>>>,
}

impl<B: Backend> Clone for SleepArena<B> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<B: Backend> SleepArena<B> {
    /// Returns an object by which a [growing](vrampool::arena::ArenaBuilder::growing) arena sleeps.
    #[must_use]
    pub fn new(arena: DeviceArena<B>) -> Self {
        let (kept, released) = (Mutex::default(), Released::default());
        Self { shared: ForkArc::new(Shared { arena, kept, released }) }
    }

    /// Returns the arena.
    #[must_use]
    pub fn arena(&self) -> &DeviceArena<B> {
        &self.shared.arena
    }

    /// A number of its own among the arenas that exist.
    pub(super) fn rank(&self) -> usize {
        std::ptr::from_ref(&*self.shared).addr()
    }

    /// Starts a sleep that a drop of the result reverses. Returns `None` if the arena is asleep.
    pub(super) fn begin_sleep(&self, timeout: Duration) -> Result<Option<Detached<'_, B>>, Error> {
        fork::check()?;
        let Shared { arena, kept, released } = &*self.shared;
        let mut kept = kept.lock();
        let Some(detaching) = arena.detach(timeout)? else { return Ok(None) };
        // A sleep that fails, and whose reversal fails, keeps the physical memory and so all contents.
        *kept = Arc::default();
        released.wait();
        Ok(Some(Detached { arena, detaching, kept }))
    }

    /// Starts a wake that a drop of the result reverses. Returns `None` if the arena is awake.
    pub(super) fn begin_wake(&self, progress: &Progress<'_>) -> Result<Option<Waking<'_, B>>, Error> {
        fork::check()?;
        let Shared { arena, kept, released } = &*self.shared;
        let kept = kept.lock();
        let Some(attaching) = arena.attach()? else { return Ok(None) };
        let restored = kept.restore(arena.device(), attaching.memory(), attaching.live(), progress)?;
        Ok(Some(Waking { attaching, restored, released, kept }))
    }

    /// Bytes of live blocks that a wake restores.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.shared.kept.lock().live()
    }

    /// Bytes of host memory that hold contents, or are being released. Without the former during a sleep or a wake.
    #[must_use]
    pub fn backup_bytes(&self) -> u64 {
        if fork::is_forked() {
            return 0;
        }
        let kept = self.shared.kept.try_lock();
        kept.map_or(0, |kept| kept.bytes()) + self.shared.released.bytes()
    }
}

impl<'a, B: Backend> Detached<'a, B> {
    /// Bytes of live blocks.
    pub(super) fn live(&self) -> u64 {
        self.detaching.live().iter().map(bytes_of).sum()
    }

    pub(super) fn save(self, offload: Offload, progress: &Progress<'_>) -> Result<Falling<'a, B>, Error> {
        let (live, Self { arena, detaching, kept }) = (self.live(), self);
        let backups = Backups::save(arena.device(), detaching.memory(), detaching.live(), offload, progress)?;
        Ok(Falling { unmapped: detaching.unmap()?, backups, live, offload, kept })
    }
}

impl<B: Backend> Falling<'_, B> {
    /// Releases the physical memory to the device. Never fails.
    pub(super) fn commit(mut self) -> SleepReport {
        let is_discarded = self.offload == Offload::Discard;
        let backups = Arc::new(self.backups);
        *self.kept = Arc::clone(&backups);
        let physical_bytes = self.unmapped.commit(move |freed| drop(backups.forget(freed)));
        let (copied_bytes, discarded_bytes) = if is_discarded { (0, self.live) } else { (self.live, 0) };
        SleepReport { physical_bytes, copied_bytes, discarded_bytes, ..SleepReport::default() }
    }
}

impl<B: Backend> Waking<'_, B> {
    /// Completes the wake. Never fails.
    pub(super) fn commit(self) -> SleepReport {
        let physical_bytes = self.attaching.commit();
        self.released.take(self.kept.take());
        SleepReport { physical_bytes, copied_bytes: self.restored, ..SleepReport::default() }
    }
}
