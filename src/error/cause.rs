//! The cause of a lack of memory, as its figures show it, and the remedy.

use crate::error::out_of_memory::{OutOfMemory, Owner, Shortage};
use crate::heap::space::ArenaError;
use bytesize::ByteSize;
use std::fmt;
use vrampool_backend::{BackendError, Scarce};

/// The cause of a lack of memory: [`OutOfMemory::cause`]. Its remedy is in the error's text.
///
/// ```
/// use vrampool::errors::Cause;
/// use vrampool::{Backend, Pool, host::HostDevice};
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(8 << 20).build()?;
/// let live = pool.allocate(5 << 20, &stream)?;
/// let error = pool.allocate(5 << 20, &stream).unwrap_err();
/// assert_eq!(error.out_of_memory().map(|error| error.cause()), Some(Cause::Live));
/// # drop(live);
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The request is larger than all that the limit or the arena allows.
    Request,
    /// The request would fit, but its size class does not, beside the classes of live memory.
    Rounding,
    /// Live memory of the holder.
    Live,
    /// Idle memory in the magazines of threads that make no call of the pool; of a private child, what it keeps for
    /// graphs.
    Idle,
    /// Children of the pool have [shares](crate::Pool::set_share) of its limit, for which the memory is reserved.
    Shares,
    /// Earlier requests wait for the memory.
    Waiting,
    /// Other threads are releasing or allocating it at this moment.
    Transit,
    /// Enough is free, but not in one piece.
    Fragmentation,
    /// Other pools of this process on the same device.
    OtherPools,
    /// The device: other memory of this process, or other processes.
    Device,
    /// The driver, which took longer than the request waits.
    Driver,
    /// A limit that several pools or arenas have together: [`Pool::child`](crate::Pool::child).
    SharedLimit,
    /// The memory mappings that the system permits: `vm.max_map_count` on Linux.
    Mappings,
    /// The addresses of the process: `ulimit -v` on Linux.
    Addresses,
    /// Another reason, which the text of the source states.
    Other,
}

impl OutOfMemory {
    /// Returns the cause, by the figures.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match &self.shortage {
            Shortage::Limit(limit) => self.cause_within(*limit),
            &Shortage::Arena(ArenaError::NoSpace { available_bytes, .. }) => {
                self.cause_in_arena(available_bytes)
            }
            Shortage::Arena(_) => Cause::Other,
            Shortage::Device(BackendError::OutOfMemory { free_bytes, scarce, .. }) => match scarce {
                Scarce::Limit { .. } => Cause::SharedLimit,
                Scarce::Mappings => Cause::Mappings,
                Scarce::Addresses => Cause::Addresses,
                _ => self.cause_on_device(*free_bytes),
            },
            Shortage::Device(_) => Cause::Other,
            Shortage::Deadline => Cause::Driver,
        }
    }

    fn cause_within(&self, limit: u64) -> Cause {
        let fits = |bytes: u64, beside: u64| bytes.saturating_add(beside) <= limit;
        let (requested, class) = (self.requested_bytes, self.class_bytes);
        let live = self.live_bytes.saturating_add(self.beside_bytes);
        let taken = live.saturating_add(self.unused_share_bytes);
        let transit = self.held_bytes.saturating_sub(self.live_bytes).saturating_sub(self.idle_bytes);
        match () {
            () if requested > limit => Cause::Request,
            () if !fits(class, self.live_bytes) && fits(requested, self.live_requested_bytes) => {
                Cause::Rounding
            }
            () if !fits(class, self.live_bytes) => Cause::Live,
            () if !fits(class, live) => Cause::SharedLimit,
            () if !fits(class, taken) => Cause::Shares,
            () if !fits(class, taken.saturating_add(self.waiting_bytes)) => Cause::Waiting,
            () if self.idle_bytes > 0 && fits(class, taken.saturating_add(transit)) => Cause::Idle,
            () => Cause::Transit,
        }
    }

    fn cause_in_arena(&self, available: u64) -> Cause {
        match () {
            () if available >= self.class_bytes => Cause::Fragmentation,
            () if available >= self.requested_bytes => Cause::Rounding,
            () if self.owner == Owner::Pool && self.frees_enough(available) => Cause::Idle,
            () if self.live_bytes == 0 => Cause::Request,
            () => Cause::Live,
        }
    }

    fn cause_on_device(&self, free: Option<u64>) -> Cause {
        match (free, self.owner) {
            (Some(free), Owner::Pool | Owner::Device) if free >= self.class_bytes => Cause::Fragmentation,
            (Some(free), Owner::Pool) if free >= self.requested_bytes => Cause::Rounding,
            (_, Owner::Pool) if self.frees_enough(free.unwrap_or(0)) => Cause::Idle,
            _ if self.other_pools.iter().any(|other| other.held_bytes >= self.live_bytes.max(1)) => {
                Cause::OtherPools
            }
            _ if self.live_bytes == 0 => Cause::Device,
            _ => Cause::Live,
        }
    }

    /// Whether the request would fit if idle memory were free as well.
    fn frees_enough(&self, free: u64) -> bool {
        self.idle_bytes > 0 && self.idle_bytes.saturating_add(free) >= self.class_bytes
    }

    /// Writes the action to take.
    pub(super) fn write_remedy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_device = matches!(self.shortage, Shortage::Device(_));
        let (limit, of_owner) = match self.owner {
            Owner::Child => ("the child's limit by `Pool::set_limit`", " of the child"),
            _ => ("`limit`", ""),
        };
        match self.cause() {
            Cause::Request if is_device => f.write_str("request less at a time"),
            Cause::Request if matches!(self.shortage, Shortage::Arena(_)) => f.write_str(
                "raise `limit`, or request less at a time; an arena of fixed size takes a new limit only when it is built",
            ),
            Cause::Request => write!(f, "raise {limit}, or request less at a time"),
            Cause::Rounding if matches!(self.shortage, Shortage::Limit(_)) => {
                write!(f, "choose size classes that round up less, or raise {limit}")
            }
            Cause::Rounding => f.write_str("choose size classes that round up less"),
            Cause::Live if is_device => {
                f.write_str("drop live buffers, use smaller batches, or set a `limit` that leaves room for others")
            }
            Cause::Live if self.owner == Owner::Pool && matches!(self.shortage, Shortage::Arena(_)) => {
                f.write_str(
                    "drop live buffers, raise `limit`, or give the pool a larger arena; one of fixed size takes a new limit only when it is built",
                )
            }
            Cause::Live => write!(f, "drop live buffers{of_owner}, or raise {limit}"),
            Cause::Idle if self.is_private => {
                write!(f, "graphs may use its idle memory, so drop the child, or raise {limit}")
            }
            Cause::Idle => f.write_str(
                "threads that make no call keep idle memory in their magazines; let them end or call the pool, or lower \
                 `magazine_bytes`",
            ),
            Cause::Shares => write!(
                f,
                "{} are reserved for shares of children; lower a share, or raise {limit}",
                ByteSize(self.unused_share_bytes)
            ),
            Cause::Waiting => write!(
                f,
                "earlier requests wait for {}; wait as well, with `allocate_timeout`",
                ByteSize(self.waiting_bytes)
            ),
            Cause::Transit if self.owner == Owner::Child => {
                f.write_str("other threads are releasing or allocating memory of the child; retry")
            }
            Cause::Transit => f.write_str("other threads are releasing memory; wait for it with `allocate_timeout`"),
            Cause::Fragmentation if is_device => {
                f.write_str("request smaller buffers, or choose the virtual source, which joins free memory")
            }
            Cause::Fragmentation if self.can_compact && self.owner != Owner::Pool => {
                f.write_str("compact the arena, or make it a growing one, which joins free memory")
            }
            Cause::Fragmentation if self.can_compact => f.write_str(
                "drop regions that keep blocks in place, or choose the virtual source, which joins free memory",
            ),
            Cause::Fragmentation => f.write_str("request smaller buffers, or drop live buffers"),
            Cause::OtherPools => f.write_str("drop buffers of theirs, or give each pool a `limit`"),
            Cause::Device => f.write_str(
                "release other memory of the device, in this process or another one, or request less at a time",
            ),
            Cause::Driver => f.write_str("allow more time, or have memory mapped before by `initial`"),
            Cause::SharedLimit => f.write_str("drop live buffers of the pools that have it together, or raise it"),
            Cause::Mappings | Cause::Addresses | Cause::Other => {
                let scarce = match &self.shortage {
                    Shortage::Device(error) => error.scarce(),
                    _ => None,
                };
                f.write_str(scarce.and_then(Scarce::remedy).unwrap_or("drop live buffers"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a request of 64 KiB saw it beside a request whose deadline had passed in the driver.
    #[test]
    fn idle_memory_that_is_too_little_is_not_the_cause() {
        let limit = Shortage::Limit(235 << 10);
        let of = |idle_bytes| OutOfMemory {
            idle_bytes,
            live_bytes: 128 << 10,
            held_bytes: 208 << 10,
            ..OutOfMemory::of_device(64 << 10, limit.clone())
        };
        assert_eq!([16 << 10, 80 << 10].map(|idle| of(idle).cause()), [Cause::Transit, Cause::Idle]);
    }
}
