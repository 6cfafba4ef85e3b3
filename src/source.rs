//! What serves misses.

use crate::arena::{ArenaBuffer, DeviceArena};
use crate::error::{Error, names};
use crate::streams::markers::Markers;
use parking_lot::Mutex;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use vrampool_backend::{
    AllocationRequest, Backend, HeldMemory, Memory, MemoryKind, Region, RegionMut, logging,
};

/// Under what idle memory is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) kind: MemoryKind,
    pub(crate) class: u64,
}

/// Where a pool gets the memory that its buckets do not have.
///
/// ```
/// # use vrampool::{Backend, Pool, Source, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).source(Source::Arena).limit(1 << 20).build()?;
/// let _buffer = pool.allocate(1000, &stream)?;
/// assert_eq!(pool.stats().source.kind, Source::Arena);
/// assert_eq!("virtual".parse::<Source>()?, Source::Virtual);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Source {
    /// Each block is an allocation of the device's own.
    #[default]
    Direct,
    /// Blocks of one range that is reserved once ([`DeviceArena`]): a miss makes no call of the driver, what
    /// is over a cap coalesces, and holes can be closed. Requests for another kind of memory than the arena's
    /// go to the device.
    Arena,
    /// Blocks of a [growing](crate::arena::ArenaBuilder::growing) arena: addresses are reserved once, and physical
    /// memory is mapped as it is needed, stitched where holes are too small, and released by
    /// [`Pool::trim`](crate::Pool::trim). Before more is mapped for a request of a class that is kept idle,
    /// all that is idle for its stream goes back to the arena. The tightest; it takes a device with virtual
    /// memory (CUDA, the host on Linux). Its `limit` bounds physical bytes.
    ///
    /// A request waits on the host for the device only on the last rung of the out-of-memory ladder, where
    /// memory, addresses or mappings run out, and without a lock: for the work that used the released memory,
    /// and for that of other devices of the process that can access it.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, Source, host::HostDevice};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).source(Source::Virtual).limit(1 << 30).build()?;
    /// drop(pool.allocate(5 << 20, &stream)?);
    /// assert_eq!(pool.stats().reserved_bytes, 6 << 20); // whole pages of 2 MiB
    /// pool.trim()?;
    /// assert_eq!(pool.stats().reserved_bytes, 0);
    /// # Ok(())
    /// # }
    /// ```
    Virtual,
    /// Blocks of the driver's own pool, which come and go in the order of a stream
    /// ([`Backend::allocate_on`]): neither a miss nor a release waits for the device. The
    /// `limit` bounds what the pool has; the driver may keep more: freed memory until the work on it is complete, and
    /// then as much as its threshold says.
    Driver,
}

impl Source {
    /// All sources.
    pub const ALL: &'static [Self] = &[Self::Direct, Self::Arena, Self::Virtual, Self::Driver];

    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Arena => "arena",
            Self::Virtual => "virtual",
            Self::Driver => "driver",
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
        Self::ALL.iter().copied().find(|source| source.name() == text).ok_or_else(|| {
            Error::configuration("source", text, format!("known are {}", names(Self::ALL, Self::name)))
        })
    }
}

/// A device, and the arena on it that serves misses, if one does.
#[derive(Debug)]
pub(crate) struct Supply<B: Backend> {
    pub(crate) device: B,
    source: Source,
    arena: Option<DeviceArena<B>>,
    /// Markers of idle blocks of the pool. Locked after the depot.
    pub(crate) markers: Mutex<Markers<B>>,
    /// Whether the arena was built for the pool, and not by the program.
    owns_arena: bool,
    /// Whether nothing of the arena is moved for the pool.
    addresses_stay: bool,
}

impl<B: Backend> Supply<B> {
    /// `arena`: the one that [`Source::Arena`] and [`Source::Virtual`] are about; `owns_arena`: it was built for
    /// the pool.
    pub(crate) fn new(
        device: B,
        source: Source,
        arena: Option<DeviceArena<B>>,
        owns_arena: bool,
        addresses_stay: bool,
    ) -> Self {
        let markers = Mutex::new(Markers::new());
        Self { device, source, arena, markers, owns_arena, addresses_stay }
    }

    /// The end of the highest live block of an arena of fixed size; 0 for other sources.
    pub(crate) fn highest_end(&self) -> u64 {
        self.arena.as_ref().filter(|arena| !arena.is_growing()).map_or(0, DeviceArena::highest_end)
    }

    /// The arena, if its holes may be closed by moving blocks.
    pub(crate) fn movable(&self) -> Option<&DeviceArena<B>> {
        self.arena.as_ref().filter(|arena| !arena.is_growing() && !self.addresses_stay)
    }

    /// No handle of the pool is left: what is free of an arena of its own goes back to the device now, not
    /// when the last buffer does.
    pub(crate) fn close(&self) {
        self.release_arena();
        self.reclaim();
    }

    fn release_arena(&self) {
        if let Some(arena) = self.arena.as_ref().filter(|arena| arena.is_growing() && self.owns_arena)
            && arena.used() > 0
            && let Err(error) = arena.release(0)
        {
            logging::warn!("arena of {} bytes: {error}", arena.reserved_bytes());
        }
    }

    /// Lets the device release memory that it keeps for work.
    pub(crate) fn reclaim(&self) {
        if let Err(error) = self.device.reclaim()
            && !error.is_device_lost()
            && !error.is_would_block()
        {
            logging::warn!("device {}: dropped memory is not released: {error}", self.device.id());
        }
    }

    /// An own arena that grows may have so much.
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        match self.arena.as_ref().filter(|arena| arena.is_growing() && self.owns_arena) {
            Some(arena) => arena.resize(bytes),
            None => Ok(()),
        }
    }

    pub(crate) fn source(&self) -> Source {
        self.source
    }

    pub(crate) fn arena(&self) -> Option<&DeviceArena<B>> {
        self.arena.as_ref()
    }

    /// Whether memory of `key` is the driver's, rather than an arena's.
    pub(crate) fn asks_driver(&self, key: Key) -> bool {
        self.arena.as_ref().is_none_or(|arena| arena.kind() != key.kind)
    }

    /// Memory of `key`. Before an arena maps more for it, `reclaim` may return to it the memory that serves
    /// instead.
    pub(crate) fn allocate(
        &self,
        key: Key,
        label: &str,
        stream: &B::Stream,
        reclaim: impl FnMut() -> bool,
    ) -> Result<SourceMemory<B>, Error> {
        let request = AllocationRequest::new(key.class, key.kind).with_label(label);
        match &self.arena {
            Some(arena) if arena.kind() == key.kind => {
                Ok(SourceMemory::Arena(arena.allocate_reclaiming(key.class, stream, reclaim)?))
            }
            _ if self.source == Source::Driver => {
                let memory = self.device.allocate_on(&request, stream)?;
                Ok(SourceMemory::Driver(Some(memory), self.device.clone()))
            }
            _ => Ok(SourceMemory::Direct(self.device.allocate(&request)?)),
        }
    }
}

/// Memory that a source gave.
#[derive(Debug)]
pub(crate) enum SourceMemory<B: Backend> {
    Direct(B::Memory),
    Arena(ArenaBuffer<B>),
    /// And the device that takes it back in the order of a stream. `None` only while dropping.
    Driver(Option<B::Memory>, B),
}

impl<B: Backend> SourceMemory<B> {
    /// The memory, which keeps an arena's block where it is.
    pub(crate) fn memory(&self) -> HeldMemory<'_, B::Memory> {
        match self {
            Self::Arena(buffer) => buffer.memory(),
            Self::Direct(_) | Self::Driver(..) => HeldMemory::new(self.range(), None),
        }
    }

    /// The memory, whether or not a block of it may move.
    pub(crate) fn range(&self) -> &B::Memory {
        match self {
            Self::Direct(memory) | Self::Driver(Some(memory), _) => memory,
            Self::Arena(buffer) => buffer.range(),
            Self::Driver(None, _) => unreachable!("a block has its memory until it is dropped"),
        }
    }

    /// Where it is at this moment, where the device has addresses, and whether it stays there.
    pub(crate) fn address(&self) -> Option<(u64, bool)> {
        match self {
            Self::Arena(buffer) => buffer.place(),
            Self::Direct(_) | Self::Driver(..) => Some((self.range().address()?, true)),
        }
    }

    /// Where in its arena its bytes are, in order; nothing elsewhere.
    pub(crate) fn parts(&self) -> Vec<Range<u64>> {
        match self {
            Self::Arena(buffer) => buffer.parts(),
            Self::Direct(_) | Self::Driver(..) => Vec::new(),
        }
    }

    /// Its first `len` bytes for reading. Who uses memory of a device or a driver's pool is its block's to
    /// know; an arena's block knows itself.
    pub(crate) fn region(&self, len: u64, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        match self {
            Self::Arena(buffer) => buffer.region(len, stream),
            Self::Direct(_) | Self::Driver(..) => Ok(Region::new(self.range(), 0, len, stream)?),
        }
    }

    /// Its first `len` bytes for writing; else as [`region`](Self::region).
    pub(crate) fn region_mut(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        match self {
            Self::Arena(buffer) => buffer.region_mut(len, stream),
            // All of it is the borrower's.
            Self::Direct(_) | Self::Driver(..) => {
                Ok(RegionMut::new(self.range(), 0, len, stream)?.with_room(u64::MAX))
            }
        }
    }
}
