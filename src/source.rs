//! What serves misses.

use crate::buckets::Key;
use crate::device_arena::{ArenaBuffer, DeviceArena};
use crate::error::Error;
use std::fmt;
use std::str::FromStr;
use vrampool_backend::{Backend, Region, RegionMut};

/// Where a pool gets the memory that its buckets do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Source {
    /// Each block is an allocation of the device's own.
    #[default]
    Direct,
    /// Blocks of one range that is reserved once ([`DeviceArena`]): a miss makes no call of the driver, what is over a
    /// cap coalesces, and holes can be closed. Requests for another kind of memory than the arena's go to the device.
    Arena,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Arena];

    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Arena => "arena",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|source| source.name() == text).ok_or_else(|| Error::Configuration {
            field: "source",
            value: text.into(),
            reason: format!("known are {}", Self::ALL.map(Self::name).join(", ")),
        })
    }
}

/// A device, and the arena on it that serves misses, if one does.
#[derive(Debug)]
pub(crate) struct Supply<B: Backend> {
    pub(crate) device: B,
    arena: Option<DeviceArena<B>>,
}

impl<B: Backend> Supply<B> {
    pub(crate) fn new(device: B, arena: Option<DeviceArena<B>>) -> Self {
        Self { device, arena }
    }

    pub(crate) fn source(&self) -> Source {
        if self.arena.is_some() { Source::Arena } else { Source::Direct }
    }

    pub(crate) fn arena(&self) -> Option<&DeviceArena<B>> {
        self.arena.as_ref()
    }

    pub(crate) fn allocate(&self, key: Key, stream: &B::Stream) -> Result<Extent<B>, Error> {
        match &self.arena {
            Some(arena) if arena.kind() == key.kind => Ok(Extent::Arena(arena.allocate(key.class, stream)?)),
            _ => Ok(Extent::Direct(self.device.allocate(key.class, key.kind)?)),
        }
    }
}

/// Memory that a source gave.
#[derive(Debug)]
pub(crate) enum Extent<B: Backend> {
    Direct(B::Memory),
    Arena(ArenaBuffer<B>),
}

impl<B: Backend> Extent<B> {
    pub(crate) fn memory(&self) -> &B::Memory {
        match self {
            Self::Direct(memory) => memory,
            Self::Arena(buffer) => buffer.memory(),
        }
    }

    /// Its first `len` bytes for reading. Who uses direct memory is its block's to know; an arena's block knows itself.
    pub(crate) fn region(&self, len: u64, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        match self {
            Self::Direct(memory) => Ok(Region::new(memory, 0, len, stream)?),
            Self::Arena(buffer) => buffer.region(len, stream),
        }
    }

    /// Its first `len` bytes for writing; else as [`region`](Self::region).
    pub(crate) fn region_mut(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        match self {
            Self::Direct(memory) => Ok(RegionMut::new(memory, 0, len, stream)?),
            Self::Arena(buffer) => buffer.region_mut(len, stream),
        }
    }
}
