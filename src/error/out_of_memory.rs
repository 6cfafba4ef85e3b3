//! A lack of memory and its figures.

use crate::heap::space::ArenaError;
use bytesize::ByteSize;
use std::fmt;
use vrampool_backend::{BackendError, Scarce};

/// The limit or component that refused memory.
///
/// ```
/// # use vrampool::{Backend, Pool, Shortage, host::HostDevice};
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// let error = pool.allocate(2 << 20, &stream).unwrap_err();
/// let shortage = &error.out_of_memory().expect("more than the limit").shortage;
/// assert_eq!(*shortage, Shortage::Limit(1 << 20));
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// The `limit` of the pool, or of a child, bytes.
    Limit(u64),
    /// The device, a limit that several pools or arenas have together, or the process: by the error's
    /// [resource](Scarce).
    Device(BackendError),
    /// The arena, with its free bytes and its largest hole.
    Arena(ArenaError),
    /// The deadline: a call of the driver for the request was not done by then. What it returns later serves later
    /// requests.
    Deadline,
}

/// The holder of the memory that the figures of [`OutOfMemory`] count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// A pool.
    Pool,
    /// A child of a pool, whose limit refused memory.
    Child,
    /// An arena.
    Arena,
    /// The device alone: memory that belongs to no pool or arena was requested. The figures are 0.
    Device,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool => "pool",
            Self::Child => "child",
            Self::Arena => "arena",
            Self::Device => "device",
        })
    }
}

/// The figures of a lack of memory. Its text states the action to take, and includes the cause; so it has no
/// [`source`](std::error::Error::source).
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// let _live = pool.allocate(300 << 10, &stream)?;
/// let error = pool.allocate(2 << 20, &stream).unwrap_err();
/// let figures = error.out_of_memory().expect("more than the limit");
/// assert_eq!(figures.requested_bytes, 2 << 20);
/// assert!(figures.live_bytes >= 300 << 10);
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The requested bytes.
    pub requested_bytes: u64,
    /// The requested bytes, rounded up to a size class or the alignment.
    pub class_bytes: u64,
    /// Live bytes of the holder.
    pub live_bytes: u64,
    /// The part of those bytes that callers requested, without rounding.
    pub live_requested_bytes: u64,
    /// Bytes of the holder that are idle: in a pool's buckets, or free in an arena.
    pub idle_bytes: u64,
    /// Bytes counted against the holder's limit. Of a pool: live, idle, reserved for other requests, and in
    /// transit to the source.
    pub held_bytes: u64,
    /// Unused bytes of the [shares](crate::Pool::set_share) of children, without that of the child that requests.
    pub unused_share_bytes: u64,
    /// Live bytes of other pools with the [same limit](crate::Pool::child), if a limit refused.
    pub beside_bytes: u64,
    /// Bytes of earlier requests, which [wait](crate::Pool::allocate_timeout) for them.
    pub waiting_bytes: u64,
    /// Other pools of this process on the same device that hold memory, if the device refused, or a limit of a pool
    /// that has children or is one; most bytes first.
    pub other_pools: Vec<OtherPool>,
    /// What refused: a pool, a child by its limit, an arena, or the device.
    pub owner: Owner,
    /// The limit or the device that caused the failure.
    pub shortage: Shortage,
    /// Whether blocks of the arena may move.
    pub(crate) can_compact: bool,
    /// Whether idle memory of the pool is private.
    pub(crate) is_private: bool,
    /// Whether the limit is that of a pool above the one that requests, whose bytes the figures count.
    pub(crate) is_limit_above: bool,
}

/// Another pool of this process, and its bytes: [`OutOfMemory::other_pools`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherPool {
    /// Its name.
    pub name: String,
    /// Bytes that it holds: live and idle.
    pub held_bytes: u64,
    /// The part of them that is idle, in magazines of its threads.
    pub idle_bytes: u64,
}

impl OutOfMemory {
    pub(super) fn of_device(requested: u64, shortage: Shortage) -> Self {
        let (class, owner) = (requested, Owner::Device);
        Self {
            requested_bytes: requested,
            class_bytes: class,
            live_bytes: 0,
            live_requested_bytes: 0,
            idle_bytes: 0,
            held_bytes: 0,
            unused_share_bytes: 0,
            beside_bytes: 0,
            waiting_bytes: 0,
            other_pools: Vec::new(),
            owner,
            shortage,
            can_compact: false,
            is_private: false,
            is_limit_above: false,
        }
    }

    /// Names other pools, the largest ones.
    fn write_other_pools(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Number of pools that are named.
        const NAMED: usize = 3;
        for (index, pool) in self.other_pools.iter().take(NAMED).enumerate() {
            let (held, idle) = (ByteSize(pool.held_bytes), ByteSize(pool.idle_bytes));
            f.write_str(if index == 0 { "; of this process, " } else { ", " })?;
            write!(f, "pool `{}` holds {held} ({idle} idle)", pool.name.escape_debug())?;
        }
        match self.other_pools.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more pools hold less"),
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: {} bytes were requested", self.requested_bytes)?;
        if self.owner != Owner::Device {
            write!(
                f,
                " (class {} bytes); the {} holds {} ({} live, {} idle)",
                self.class_bytes,
                self.owner,
                ByteSize(self.held_bytes),
                ByteSize(self.live_bytes),
                ByteSize(self.idle_bytes),
            )?;
        }
        match &self.shortage {
            Shortage::Limit(limit) if self.is_limit_above => {
                let (limit, beside) = (ByteSize(*limit), ByteSize(self.beside_bytes));
                write!(f, "; the limit of a pool above it is {limit}, of which other pools use {beside}")?;
            }
            Shortage::Limit(limit) => write!(f, " and its limit is {}", ByteSize(*limit))?,
            Shortage::Arena(ArenaError::NoSpace {
                available_bytes: free,
                largest_bytes: largest,
                zone,
                ..
            }) => {
                let (free, largest) = (ByteSize(*free), ByteSize(*largest));
                write!(f, "; {free} are free in the {zone} zone of the arena, {largest} in one piece")?;
            }
            Shortage::Device(BackendError::OutOfMemory {
                scarce: Scarce::Limit { of, limit_bytes, charged_bytes, .. },
                ..
            }) => {
                let (limit, charged) = (ByteSize(*limit_bytes), ByteSize(*charged_bytes));
                match &**of {
                    "" => write!(f, "; the common limit is {limit}")?,
                    of => write!(f, "; the limit of `{}` is {limit}", of.escape_debug())?,
                }
                write!(f, ", of which {charged} are in use")?;
            }
            Shortage::Device(BackendError::OutOfMemory { free_bytes, scarce, .. }) => {
                write!(f, "; {scarce}")?;
                free_bytes.map_or(Ok(()), |free| write!(f, ", {} are free", ByteSize(free)))?;
            }
            Shortage::Deadline => f.write_str("; the driver had not answered by the deadline")?,
            // Their texts have remedies.
            Shortage::Arena(cause) => return write!(f, "; {cause}"),
            Shortage::Device(cause) => return write!(f, "; {cause}"),
        }
        self.write_other_pools(f)?;
        f.write_str("; ")?;
        self.write_remedy(f)
    }
}

impl std::error::Error for OutOfMemory {}
