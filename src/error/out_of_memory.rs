//! A lack of memory, its figures and its cause.

use crate::arena::engine::ArenaError;
use bytesize::ByteSize;
use std::fmt;
use vrampool_backend::BackendError;

/// The cause of a lack of memory.
///
/// ```
/// # use vrampool::{Backend, Pool, Shortage, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// let error = pool.allocate(2 << 20, &stream).unwrap_err();
/// let shortage = &error.out_of_memory().expect("more than the limit").shortage;
/// assert_eq!(*shortage, Shortage::Limit(1 << 20));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// The `limit` of the pool, bytes.
    Limit(u64),
    /// The device.
    Device(BackendError),
    /// The arena; its text states the largest hole.
    Arena(ArenaError),
}

/// The holder of the memory that the figures of [`OutOfMemory`] count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// A pool.
    Pool,
    /// An arena.
    Arena,
    /// A sleeper, all its tags together.
    Sleeper,
    /// The device alone: memory that belongs to no pool, arena or sleeper was requested. The figures are 0.
    Device,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool => "pool",
            Self::Arena => "arena",
            Self::Sleeper => "sleeper",
            Self::Device => "device",
        })
    }
}

/// The figures of a lack of memory. Its text states the action to take, and includes the cause; so it has no
/// [`source`](std::error::Error::source).
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// let _live = pool.allocate(300 << 10, &stream)?;
/// let error = pool.allocate(2 << 20, &stream).unwrap_err();
/// let figures = error.out_of_memory().expect("more than the limit");
/// assert_eq!(figures.requested_bytes, 2 << 20);
/// assert!(figures.live_bytes >= 300 << 10);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The requested bytes.
    pub requested_bytes: u64,
    /// The requested bytes, rounded up to a size class or the alignment.
    pub class_bytes: u64,
    /// Bytes handed out by the holder.
    pub live_bytes: u64,
    /// Bytes of the holder that are idle: in a pool's buckets, or free in an arena.
    pub idle_bytes: u64,
    /// Bytes counted against the holder's limit. Of a pool: live, idle, reserved for other requests, and in
    /// transit to the source.
    pub held_bytes: u64,
    /// The holder of those bytes.
    pub owner: Owner,
    /// The limit or the device that caused the failure.
    pub shortage: Shortage,
}

impl OutOfMemory {
    pub(super) fn of_device(requested: u64, shortage: Shortage) -> Self {
        let (class, owner) = (requested, Owner::Device);
        Self {
            requested_bytes: requested,
            class_bytes: class,
            live_bytes: 0,
            idle_bytes: 0,
            held_bytes: 0,
            owner,
            shortage,
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: {} bytes were requested", self.requested_bytes)?;
        if self.owner != Owner::Device {
            write!(
                f,
                " (class {}); the {} holds {} ({} live, {} idle)",
                ByteSize(self.class_bytes),
                self.owner,
                ByteSize(self.held_bytes),
                ByteSize(self.live_bytes),
                ByteSize(self.idle_bytes),
            )?;
        }
        match &self.shortage {
            Shortage::Limit(limit) if self.class_bytes > *limit => {
                write!(f, " and its limit is {}; raise `limit`, or request less at a time", ByteSize(*limit))
            }
            Shortage::Limit(limit) => write!(
                f,
                " and its limit is {}; drop live buffers, raise `limit`, or choose size classes that round up less",
                ByteSize(*limit)
            ),
            Shortage::Arena(cause) if self.owner == Owner::Pool => {
                write!(
                    f,
                    "; the arena has {cause}; drop live buffers, raise `limit`, or give the pool a larger arena"
                )
            }
            Shortage::Arena(cause) => write!(f, "; {cause}"),
            Shortage::Device(cause) => write!(
                f,
                "; {cause}; drop live buffers, use smaller batches, set a `limit` that leaves room for others, or \
                 choose size classes that round up less"
            ),
        }
    }
}

impl std::error::Error for OutOfMemory {}
