//! A growing arena sleeps: its physical memory goes back to the device, its addresses stay.
//!
//! * `view`: a memory in which pieces are mapped, the arena's range or a stitched one;
//! * `backup`: what blocks hold; `stored`: host memory that holds it;
//! * `falling` and `waking`: the two ways, each in a part that can be taken back and one that cannot fail.
//!
//! What it promises: a call that fails leaves the arena as it was, with all contents; blocks keep their
//! addresses. Both ways keep the handles of physical memory, or the backups, until nothing can fail any more.
//! If even the way back fails (a second fault in one call), the arena is asleep with its physical memory
//! kept, and the next wake maps it again.

mod backup;
mod falling;
mod view;
mod waking;

pub(crate) use crate::staging::stored::{Stored, can_pin, on_a_stream};
pub(crate) use falling::Falling;
pub(crate) use waking::Waking;

use super::mapping::pages::Extent;
use super::state::State;
use super::{ArenaBuffer, ArenaCore, DeviceArena};
use crate::arena::engine::BlockId;
use crate::error::Error;
use crate::sync::MutexGuard;
use backup::Backups;
pub(super) use backup::GivingBack;
use std::sync::Weak;
use view::View;
use vrampool_backend::{Backend, Physical, fork};

/// What becomes of the contents of memory that goes to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Offload {
    /// Copied to pinned memory of the host, which the device reaches at its full rate. Where host and device
    /// share one memory, where there is no pinned memory, and when it runs out, it is pageable memory.
    #[default]
    Pinned,
    /// Copied to pageable memory of the host: slower, and the system may swap it out.
    Pageable,
    /// Not kept: undefined after waking.
    Discard,
}

/// Whether memory can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SleepState {
    /// It is mapped, and can be.
    Awake,
    /// A sleep or a wake is under way.
    Changing,
    /// Its physical memory is the device's again.
    Asleep,
}

/// Where the contents of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In the device's memory.
    Mapped,
    /// In the host's memory; they come back with a wake.
    AsleepBackedUp,
    /// Nowhere: undefined after a wake.
    AsleepDiscarded,
}

/// What a sleep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SleepReport {
    /// Bytes of physical memory that the device has back.
    pub freed: u64,
    /// Bytes of blocks that were copied to the host.
    pub backed_up: u64,
    /// Bytes of blocks that were not.
    pub discarded: u64,
    /// Nothing was done, because it was asleep; its backups are as they were.
    pub was_asleep: bool,
}

/// What a wake did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct WakeReport {
    /// Bytes of physical memory that were taken from the device.
    pub mapped: u64,
    /// Bytes of blocks that were copied back from the host.
    pub restored: u64,
    /// Nothing was done, because it was awake.
    pub was_awake: bool,
}

/// What an arena's state knows of its sleep.
#[derive(Debug)]
pub(super) enum Sleep<B: Backend> {
    Awake,
    /// Whoever finds this waits for the lock of changes and looks again; a free does not wait.
    Changing,
    Asleep(Box<Asleep<B>>),
}

/// An arena without its memory.
#[derive(Debug)]
pub(super) struct Asleep<B: Backend> {
    /// By offset.
    pieces: Vec<SleepingPiece>,
    /// The range and the stitched ranges that buffers have.
    views: Vec<View<Weak<B::Memory>>>,
    backups: Backups<B>,
    offload: Offload,
}

/// Where a piece of physical memory was, and it itself if it could not be let go.
#[derive(Debug)]
struct SleepingPiece {
    extent: Extent,
    physical: Option<Physical>,
}

impl<B: Backend> Asleep<B> {
    /// Bytes of addresses of stitched ranges.
    pub(super) fn stitched_bytes(&self) -> u64 {
        let stitched = self.views.iter().filter(|view| !view.is_range && view.memory.strong_count() > 0);
        stitched.map(View::bytes).sum()
    }

    /// Bytes of host memory that hold contents.
    fn backup_bytes(&self) -> u64 {
        self.backups.bytes()
    }

    /// Forgets what those extents held. Answers memory that is to be dropped without the lock.
    fn forget(&mut self, extents: &[Extent]) -> Vec<Stored<B>> {
        self.backups.forget(extents)
    }

    /// Bytes of physical memory that it could not let go.
    fn kept(&self) -> u64 {
        let kept = self.pieces.iter().filter(|piece| piece.physical.is_some());
        kept.map(|piece| piece.extent.bytes).sum()
    }
}

impl<B: Backend> DeviceArena<B> {
    /// Gives all physical memory of a [growing](super::ArenaBuilder::growing) arena back to the device, and
    /// keeps its addresses: blocks stay live where they are, and are as they were after [`wake`](Self::wake),
    /// those of [`Offload::Discard`] with undefined contents. Waits on the host for all work that uses them.
    ///
    /// Asleep, an allocation and the use of a block are [`Error::Asleep`] (who asks while a sleep or a wake
    /// is under way waits for its end); a block that is dropped is free, and so is its backup (together with
    /// those of its neighbours, if it is small). [`reserved_bytes`](Self::reserved_bytes) is 0. To sleep
    /// twice does nothing, and says so.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice, arena::DeviceArena, sleep::Offload};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().build()?;
    /// let mut weights = arena.allocate(4 << 20, &stream)?;
    /// weights.write(&stream, &[7; 100])?;
    /// let report = arena.sleep(Offload::Pinned)?;
    /// assert_eq!((report.freed, report.backed_up, arena.reserved_bytes()), (4 << 20, 4 << 20, 0));
    /// assert!(weights.on(&stream).is_err());
    /// assert_eq!(arena.wake()?.restored, 4 << 20);
    /// let mut bytes = [0; 100];
    /// weights.read(&stream, &mut bytes)?;
    /// assert_eq!(bytes, [7; 100]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Arena`] while a zone of a block exists; [`Error::Capture`] while a stream is captured that
    /// uses one; [`Error::Backend`] when the device fails, the host has no memory for the backup, or the
    /// arena is not a growing one. The arena is then awake, with all contents; or, when the device fails a
    /// second time on the way back, asleep with them.
    pub fn sleep(&self, offload: Offload) -> Result<SleepReport, Error> {
        Ok(match self.begin_sleep(offload)? {
            Some(falling) => falling.commit(),
            None => SleepReport { was_asleep: true, ..SleepReport::default() },
        })
    }

    /// Takes physical memory for all live blocks again, at the addresses that they have, and copies back what
    /// [`sleep`](Self::sleep) copied to the host. To wake twice does nothing, and says so.
    ///
    /// Pinned memory of the backups is given back behind the call, by a thread of its own: letting go of many
    /// GiB takes the system longer than the copy. [`backup_bytes`](Self::backup_bytes) tells how much is
    /// left.
    ///
    /// # Errors
    /// [`Error::Backend`] when the device fails, or has not enough memory, or the arena's limit is below what
    /// its blocks take ([`is_out_of_memory`](Error::is_out_of_memory)). The arena is then asleep with all
    /// backups, and a later wake works.
    pub fn wake(&self) -> Result<WakeReport, Error> {
        Ok(match self.begin_wake()? {
            Some(waking) => waking.commit(),
            None => WakeReport { was_awake: true, ..WakeReport::default() },
        })
    }

    /// Sleeps, but can be taken back still: by a drop. `None` when it is asleep.
    pub(crate) fn begin_sleep(&self, offload: Offload) -> Result<Option<Falling<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_sleep(offload)
    }

    /// Wakes, but can be taken back still: by a drop. `None` when it is awake.
    pub(crate) fn begin_wake(&self) -> Result<Option<Waking<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_wake()
    }

    /// Whether its memory can be used at this moment: never in a forked child.
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

    /// Bytes of host memory that hold contents, or did and are being given back.
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

    /// What its contents became when it fell asleep; `None` when it is awake. Waits for a change that is
    /// under way.
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
    /// Where its contents are. Waits for a sleep or a wake that is in progress. In a forked child they are
    /// discarded.
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

    /// Says whether it can be used now.
    pub(crate) fn check_awake(&self) -> Result<(), Error> {
        fork::check()?;
        self.arena.awake(self.block, self.len).map(drop)
    }
}

impl<B: Backend> ArenaCore<B> {
    /// The state, while neither a sleep nor a wake is under way.
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

    /// The state, once nothing moves the block, if its memory is there.
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

    /// What a request of an arena that is asleep gets.
    #[cold]
    pub(super) fn asleep(&self, requested: u64) -> Error {
        Error::Asleep { requested, live: self.engine.used() }
    }

    /// Forgets the backup of a block that is about to be freed. Answers memory that is to be dropped without
    /// the lock.
    #[cold]
    pub(super) fn forget_backup(&mut self, block: BlockId) -> Vec<Stored<B>> {
        let Self { engine, slots, sleep: Sleep::Asleep(asleep), .. } = self else { return Vec::new() };
        let Some(slot) = slots.get(block) else { return Vec::new() };
        let extents: Vec<_> = [block].iter().chain(slot.more()).map(|&block| extent(engine, block)).collect();
        asleep.forget(&extents)
    }

    /// Where the blocks of all buffers are, by offset.
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
