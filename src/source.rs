//! Sources of a pool's misses.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;
use vrampool_backend::MemoryKind;

/// The key of a bucket: kind and class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) kind: MemoryKind,
    pub(crate) class: u64,
}

/// Where a pool gets the memory that its buckets do not have.
///
/// ```
/// # use vrampool::{Backend, Pool, Source, host::HostDevice};
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).source(Source::Arena).limit(1 << 20).build()?;
/// let _buffer = pool.allocate(1000, &stream)?;
/// assert_eq!(pool.stats().source.kind, Source::Arena);
/// assert_eq!("virtual".parse::<Source>()?, Source::Virtual);
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Source {
    /// Each block is an allocation of the device's own.
    #[default]
    Direct,
    /// Blocks of one range that is reserved once ([`DeviceArena`](crate::arena::DeviceArena)). A miss makes no
    /// driver call, blocks over a cap coalesce, and holes can be closed. Requests for another kind of memory than
    /// the arena's go to the device.
    Arena,
    /// Blocks of a [growing](crate::arena::ArenaBuilder::growing) arena: addresses are reserved once, and physical
    /// memory is mapped as it is needed, stitched where holes are too small, and released by
    /// [`Pool::trim`](crate::Pool::trim). Before more is mapped for a request of a class that is kept idle,
    /// all that is idle for its stream goes back to the arena. Uses the least memory, and needs a device with
    /// virtual memory (CUDA, the host on Linux). Its `limit` bounds physical bytes.
    ///
    /// A request waits on the host for the device only where memory, addresses or mappings run out, and without
    /// a lock: for the work that used the released memory,
    /// and for that of other devices of the process that can access it.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, Source, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).source(Source::Virtual).limit(1 << 30).build()?;
    /// drop(pool.allocate(5 << 20, &stream)?);
    /// assert_eq!(pool.stats().reserved_bytes, 6 << 20); // whole pages of 2 MiB
    /// pool.trim()?;
    /// assert_eq!(pool.stats().reserved_bytes, 0);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    Virtual,
    /// Blocks of the driver's own pool, which come and go in the order of a stream
    /// ([`Backend::allocate_on`](vrampool_backend::Backend::allocate_on)): neither a miss nor a release waits for the
    /// device. The `limit` bounds what the pool has; the driver may keep more: freed memory until the work on it is
    /// complete, and then as much as its threshold says.
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
            let names: Vec<_> = Self::ALL.iter().map(|source| source.name()).collect();
            Error::configuration("source", text, format!("known are {}", names.join(", ")))
        })
    }
}
