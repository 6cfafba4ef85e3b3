//! The blocks of a tag: in a growing arena, or as separate allocations.

use super::separate_blocks::{
    Falling as SeparateFalling, SeparateBlocks, SeparateBuffer, Waking as SeparateWaking,
};
use super::{Offload, SleepReport, SleepState, SleepUsage, WakeReport};
use crate::arena::{ArenaBuffer, DeviceArena, Falling as ArenaFalling, Waking as ArenaWaking};
use crate::error::Error;
use vrampool_backend::Backend;

/// A handle to the blocks of a tag.
#[derive(Debug)]
pub(super) enum Group<B: Backend> {
    Arena(DeviceArena<B>),
    Separate(SeparateBlocks<B>),
}

#[derive(Debug)]
pub(super) enum GroupBlock<B: Backend> {
    Arena(ArenaBuffer<B>),
    Separate(SeparateBuffer<B>),
}

/// A group whose contents are saved. A drop restores it.
#[derive(Debug)]
pub(super) enum Falling<'a, B: Backend> {
    Arena(ArenaFalling<'a, B>),
    Separate(SeparateFalling<'a, B>),
}

/// A group whose contents are restored. A drop puts it to sleep.
#[derive(Debug)]
pub(super) enum Waking<'a, B: Backend> {
    Arena(ArenaWaking<'a, B>),
    Separate(SeparateWaking<'a, B>),
}

impl<B: Backend> Clone for Group<B> {
    fn clone(&self) -> Self {
        match self {
            Self::Arena(arena) => Self::Arena(arena.clone()),
            Self::Separate(blocks) => Self::Separate(blocks.clone()),
        }
    }
}

impl<B: Backend> Group<B> {
    pub(super) fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<GroupBlock<B>, Error> {
        match self {
            Self::Arena(arena) => arena.allocate(bytes, stream).map(GroupBlock::Arena),
            Self::Separate(blocks) => blocks.allocate(bytes, stream).map(GroupBlock::Separate),
        }
    }

    pub(super) fn begin_sleep(&self, offload: Offload) -> Result<Option<Falling<'_, B>>, Error> {
        Ok(match self {
            Self::Arena(arena) => arena.begin_sleep(offload)?.map(Falling::Arena),
            Self::Separate(blocks) => blocks.begin_sleep(offload)?.map(Falling::Separate),
        })
    }

    pub(super) fn begin_wake(&self) -> Result<Option<Waking<'_, B>>, Error> {
        Ok(match self {
            Self::Arena(arena) => arena.begin_wake()?.map(Waking::Arena),
            Self::Separate(blocks) => blocks.begin_wake()?.map(Waking::Separate),
        })
    }

    /// Releases free memory and returns the number of bytes.
    pub(super) fn trim(&self) -> Result<u64, Error> {
        match self {
            Self::Arena(arena) => arena.release(0),
            // Free memory has already returned to the device.
            Self::Separate(_) => Ok(0),
        }
    }

    pub(super) fn state(&self) -> SleepState {
        match self {
            Self::Arena(arena) => arena.state(),
            Self::Separate(blocks) => blocks.state(),
        }
    }

    /// Returns the storage of its contents; `None` while it is awake.
    pub(super) fn offload(&self) -> Option<Offload> {
        match self {
            Self::Arena(arena) => arena.offload(),
            Self::Separate(blocks) => blocks.offload(),
        }
    }

    pub(super) fn usage(&self) -> SleepUsage {
        match self {
            Self::Separate(blocks) => blocks.usage(),
            Self::Arena(arena) => {
                let (used, is_asleep) = (arena.used(), arena.state() == SleepState::Asleep);
                SleepUsage {
                    mapped_bytes: arena.reserved_bytes(),
                    live_bytes: if is_asleep { 0 } else { used },
                    asleep_bytes: if is_asleep { used } else { 0 },
                    backup_bytes: arena.backup_bytes(),
                    address_bytes: arena.address_bytes(),
                }
            }
        }
    }
}

impl<B: Backend> Falling<'_, B> {
    pub(super) fn commit(self) -> SleepReport {
        match self {
            Self::Arena(falling) => falling.commit(),
            Self::Separate(falling) => falling.commit(),
        }
    }
}

impl<B: Backend> Waking<'_, B> {
    pub(super) fn commit(self) -> WakeReport {
        match self {
            Self::Arena(waking) => waking.commit(),
            Self::Separate(waking) => waking.commit(),
        }
    }
}
