//! Sleep of a growing arena: its physical memory returns to the device, its addresses stay.
//!
//! * `asleep`: an arena without its physical memory; `offload` and `reports`: parameters and results;
//! * `view`: memory in which pieces are mapped, the arena's range or a stitched range; `map_views`: maps them;
//! * `backups`: contents of blocks in host memory; `copies`: copies them there and back; `release_backups`:
//!   releases that memory;
//! * `fall_asleep` and `wake_up`: the two directions, each with a reversible part and a part that cannot fail.
//!
//! A failed call leaves the arena as it was, with all contents. Blocks keep their addresses. Both directions
//! keep the handles of physical memory, or the backups, until nothing can fail any more. If the reversal
//! fails too (a second fault in one call), the arena is asleep and keeps its physical memory, and the next
//! wake maps it again.

mod asleep;
mod backups;
mod copies;
mod fall_asleep;
mod map_views;
mod offload;
mod release_backups;
mod reports;
mod view;
mod wake_up;

pub(crate) use crate::staging::stored::{Stored, can_pin, on_a_stream};
pub(crate) use fall_asleep::Falling;
pub(crate) use wake_up::Waking;

use super::core::ArenaCore;
use super::mapping::pages::Extent;
use super::state::State;
use super::{ArenaBuffer, DeviceArena};
use crate::arena::engine::BlockId;
use crate::error::Error;
use crate::sync::MutexGuard;
pub(super) use asleep::Sleep;
pub use offload::Offload;
pub(super) use release_backups::GivingBack;
pub use reports::{BlockState, SleepReport, SleepState, WakeReport};
use vrampool_backend::{Backend, fork};

impl<B: Backend> DeviceArena<B> {
    /// Releases all physical memory to the device, and keeps the addresses.
    ///
    /// Only a [growing](super::ArenaBuilder::growing) arena can sleep. Waits on the host for all work that
    /// uses the blocks. Blocks stay live at their addresses, and [`wake`](Self::wake) restores them; with
    /// [`Offload::Discard`] their contents are undefined then.
    ///
    /// While the arena sleeps, allocations and uses of blocks fail with [`Error::Asleep`]; during a sleep or
    /// a wake they wait for its end. Dropping a block frees it and its backup (a small one together with its
    /// neighbours'). [`reserved_bytes`](Self::reserved_bytes) is 0. A second sleep does nothing and reports
    /// that.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice, arena::DeviceArena, sleep::Offload};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().build()?;
    /// let mut weights = arena.allocate(4 << 20, &stream)?;
    /// weights.write(&[7; 100], &stream)?;
    /// let report = arena.sleep(Offload::Pinned)?;
    /// assert_eq!((report.freed_bytes, report.backed_up_bytes, arena.reserved_bytes()), (4 << 20, 4 << 20, 0));
    /// assert!(weights.on(&stream).is_err());
    /// assert_eq!(arena.wake()?.restored_bytes, 4 << 20);
    /// let mut bytes = [0; 100];
    /// weights.read(&mut bytes, &stream)?;
    /// assert_eq!(bytes, [7; 100]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Arena`] while a region of a block exists; [`Error::Capture`] while a captured stream uses a
    /// block; [`Error::OutOfMemory`] if the host has no memory for the backup; [`Error::Backend`] if the device
    /// fails, or the arena is not a growing one. The arena is then awake, with all contents. If the device fails again during the
    /// reversal, it is asleep with them.
    pub fn sleep(&self, offload: Offload) -> Result<SleepReport, Error> {
        Ok(match self.begin_sleep(offload).map_err(|error| self.explain(error, None))? {
            Some(falling) => falling.commit(),
            None => SleepReport { was_asleep: true, ..SleepReport::default() },
        })
    }

    /// Maps physical memory for all live blocks at their addresses, and restores backed-up contents.
    ///
    /// A second wake does nothing and reports that. Pinned memory of the backups is released after the call
    /// by a separate thread, because releasing many GiB takes longer than the copy.
    /// [`backup_bytes`](Self::backup_bytes) returns the bytes that remain.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device fails; [`Error::OutOfMemory`] if it has too little memory, or if the
    /// arena's limit is below the memory of its blocks. The arena is then asleep with
    /// all backups, and a later wake can succeed.
    pub fn wake(&self) -> Result<WakeReport, Error> {
        Ok(match self.begin_wake().map_err(|error| self.explain(error, None))? {
            Some(waking) => waking.commit(),
            None => WakeReport { was_awake: true, ..WakeReport::default() },
        })
    }

    /// Starts a sleep that a drop of the result reverses. Returns `None` if the arena is asleep.
    pub(crate) fn begin_sleep(&self, offload: Offload) -> Result<Option<Falling<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_sleep(offload)
    }

    /// Starts a wake that a drop of the result reverses. Returns `None` if the arena is awake.
    pub(crate) fn begin_wake(&self) -> Result<Option<Waking<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_wake()
    }

    /// Whether the memory is usable at this moment: never in a forked child.
    #[must_use]
    pub fn state(&self) -> SleepState {
        if fork::is_child() {
            return SleepState::Asleep;
        }
        match self.core.state.lock_with_deferred().sleep {
            Sleep::Awake => SleepState::Awake,
            Sleep::Changing => SleepState::Changing,
            Sleep::Asleep(_) => SleepState::Asleep,
        }
    }

    /// Bytes of host memory that hold contents, or are being released.
    #[must_use]
    pub fn backup_bytes(&self) -> u64 {
        if fork::is_child() {
            return 0;
        }
        let held = match &self.core.state.lock_with_deferred().sleep {
            Sleep::Asleep(asleep) => asleep.backup_bytes(),
            _ => 0,
        };
        held + self.core.giving_back.bytes()
    }

    /// The treatment of contents during this sleep; `None` if awake. Waits for a change in progress.
    pub(crate) fn offload(&self) -> Option<Offload> {
        if fork::is_child() {
            return None;
        }
        match &self.core.unchanging().sleep {
            Sleep::Asleep(asleep) => Some(asleep.offload),
            _ => None,
        }
    }
}

impl<B: Backend> ArenaBuffer<B> {
    /// The location of the contents, after any sleep or wake in progress. Discarded in a forked child.
    #[must_use]
    pub fn state(&self) -> BlockState {
        if fork::is_child() {
            return BlockState::AsleepDiscarded;
        }
        match &self.arena.unchanging().sleep {
            Sleep::Asleep(asleep) if asleep.offload == Offload::Discard => BlockState::AsleepDiscarded,
            Sleep::Asleep(_) => BlockState::AsleepBackedUp,
            _ => BlockState::Mapped,
        }
    }

    /// Returns an error if the buffer is not usable now.
    pub(crate) fn check_awake(&self) -> Result<(), Error> {
        fork::check()?;
        self.arena.awake(self.block, self.len).map(drop)
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Locks the state while neither a sleep nor a wake is in progress.
    fn unchanging(&self) -> MutexGuard<'_, State<B>> {
        loop {
            let state = self.state.lock_with_deferred();
            if !matches!(state.sleep, Sleep::Changing) {
                return state;
            }
            drop(state);
            drop(self.changing.lock());
        }
    }

    /// Locks the state once no move of the block is in progress. Fails while the arena sleeps.
    #[inline]
    pub(super) fn awake(&self, block: BlockId, bytes: u64) -> Result<MutexGuard<'_, State<B>>, Error> {
        let state = self.settled(block);
        if matches!(state.sleep, Sleep::Awake) {
            return Ok(state);
        }
        drop(state);
        self.wait_awake(block, bytes)
    }

    #[cold]
    fn wait_awake(&self, block: BlockId, bytes: u64) -> Result<MutexGuard<'_, State<B>>, Error> {
        loop {
            drop(self.unchanging());
            let state = self.settled(block);
            match &state.sleep {
                Sleep::Awake => return Ok(state),
                Sleep::Asleep(_) => return Err(state.asleep(bytes)),
                Sleep::Changing => {}
            }
        }
    }
}

impl<B: Backend> State<B> {
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        matches!(self.sleep, Sleep::Awake)
    }

    /// The error of a request to a sleeping arena.
    #[cold]
    pub(super) fn asleep(&self, requested: u64) -> Error {
        Error::Asleep { requested_bytes: requested, live_bytes: self.engine.used() }
    }

    /// Forgets the backup of a block to be freed. Returns memory to be dropped without the lock.
    #[cold]
    pub(super) fn forget_backup(&mut self, block: BlockId) -> Vec<Stored<B>> {
        let Self { engine, slots, sleep: Sleep::Asleep(asleep), .. } = self else { return Vec::new() };
        let Some(slot) = slots.get(block) else { return Vec::new() };
        let extents: Vec<_> = [block].iter().chain(slot.more()).map(|&block| extent(engine, block)).collect();
        asleep.forget(&extents)
    }

    /// The extents of the blocks of all buffers, by offset.
    fn live(&self) -> Vec<Extent> {
        let blocks = self
            .slots
            .named()
            .flat_map(|(block, slot)| std::iter::once(block).chain(slot.more().iter().copied()));
        let mut live: Vec<_> = blocks.map(|block| extent(&self.engine, block)).collect();
        live.sort_unstable_by_key(|extent| extent.start);
        live
    }
}

fn extent(engine: &crate::arena::engine::Arena, block: BlockId) -> Extent {
    let (start, bytes) = engine.extent(block);
    Extent { start, bytes }
}
