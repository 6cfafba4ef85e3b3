//! Trim, decay, compaction, changes of the limits, and the end of all requests.

use crate::environment::{as_cap, as_limit};
use crate::error::Error;
use crate::heap::arena::{Compaction, DeviceArena, Moved};
use crate::heap::{Asked, Life, PoolCore, poll_in_flight};
use crate::pool::Pool;
use std::mem;
use vrampool_backend::{Backend, fork};

impl<B: Backend> Pool<B> {
    /// Releases all idle memory to the device, and returns its bytes.
    ///
    /// With [`Source::Virtual`](crate::Source::Virtual) idle memory goes back to the arena. The arena
    /// [releases](DeviceArena::release) each piece of physical memory without a live block, after the host
    /// has waited for the work that used it. The device also [releases](Backend::reclaim) the dropped memory
    /// that it keeps: wgpu waits for submitted work. Memory in the magazines of other threads is released at
    /// their next call, or at the next trim if the thread has ended.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device refuses to release physical memory: the arena keeps it. All other
    /// idle memory is released.
    #[doc(alias = "clear")]
    #[doc(alias = "empty_cache")]
    pub fn trim(&self) -> Result<u64, Error> {
        self.trim_to(0)
    }

    /// Releases idle memory of the pool and its children until at most `idle_bytes` remain, and returns the released
    /// bytes. [Private](crate::PoolBuilder::private) memory stays.
    ///
    /// Size classes whose last request is longest ago are released first. With
    /// [`Source::Virtual`](crate::Source::Virtual) `idle_bytes` also bounds the arena's physical memory
    /// beyond the live bytes, as far as whole pieces of it are free. Else as [`trim`](Self::trim).
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn trim_to(&self, idle_bytes: u64) -> Result<u64, Error> {
        fork::check()?;
        let core = self.core();
        let (mut released, mut left, mut outcome) = (0, idle_bytes, Ok(()));
        for core in core.descendants().iter().chain([core]) {
            match core.trim_own_to(left) {
                Ok(bytes) => released += bytes,
                Err(error) => outcome = Err(error),
            }
            left = core.beside_cached(left);
        }
        outcome.map(|()| released)
    }

    /// Returns to the device what a pool with [`Source::Virtual`](crate::Source::Virtual) did not need
    /// since the last call, as [`DeviceArena::decay`]: for calling once in a while. What is idle in the pool
    /// counts as needed. Returns the released bytes of physical memory; 0 with another source.
    ///
    /// # Errors
    /// As [`DeviceArena::decay`].
    pub fn decay(&self) -> Result<u64, Error> {
        fork::check()?;
        self.arena().map_or(Ok(0), DeviceArena::decay)
    }

    /// Makes idle memory of other streams usable by `stream` without a wait on the device, which is forbidden to a
    /// captured stream: idle memory goes back to the pool's arena, and the host waits for the work that used it
    /// ([`DeviceArena::synchronize_freed`]). Has no effect without an arena.
    ///
    /// # Errors
    /// As [`DeviceArena::synchronize_freed`].
    pub fn synchronize_freed(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        let Some(arena) = self.arena() else { return Ok(()) };
        self.core().trim_to(0);
        arena.synchronize_freed(stream)
    }

    /// Closes holes of the pool's arena, as [`DeviceArena::compact`], after releasing all idle memory to
    /// it. Live buffers follow their data. Moves nothing where the source is direct, virtual or the driver's,
    /// or where [addresses stay](crate::PoolBuilder::addresses_stay).
    ///
    /// # Errors
    /// As [`DeviceArena::compact`].
    pub fn compact(
        &self,
        budget_bytes: impl Into<Option<u64>>,
        stream: &B::Stream,
        on_move: impl FnMut(Moved),
    ) -> Result<Compaction, Error> {
        fork::check()?;
        if self.arena().is_some() {
            self.core().trim_to(0);
        }
        let Some(arena) = self.core().supply::<B>().movable() else { return Ok(Compaction::default()) };
        arena.compact(budget_bytes, stream, on_move)
    }

    /// Changes the [limit](crate::PoolBuilder::limit) of the pool and its children together; `None` removes it. Idle
    /// memory above the limit is released. Live memory above it remains, and nothing more is allocated until enough
    /// is freed. The pool's own arena of fixed size keeps its size, so a limit below that is refused. An arena that
    /// the program made keeps its own limit.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let buffer = pool.allocate(1 << 20, &stream)?;
    /// pool.set_limit(1 << 16)?;
    /// assert!(pool.allocate(1, &stream).unwrap_err().is_out_of_memory());
    /// drop(buffer);
    /// assert!(pool.allocate(1 << 16, &stream).is_ok());
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Arena`] if the pool's own arena of fixed size is larger than `bytes`. [`Error::Configuration`] if
    /// `bytes` is less than the pool's [share](Self::set_share), or has no room for the shares of children beside the
    /// other live memory. The limit is then unchanged; idle memory may have been released.
    pub fn set_limit(&self, bytes: impl Into<Option<u64>>) -> Result<(), Error> {
        let bytes = as_cap(bytes);
        fork::check()?;
        let (core, below) = (self.core(), self.core().descendants());
        let (has_shares, ledger) = (core.depot().accounts.has_shares_below(), &core.supply::<B>().ledger);
        let arenas = below.iter().filter_map(|of| Some((of, of.supply::<B>().own_growing_arena()?)));
        let arenas: Vec<_> = arenas.collect();
        let surplus = || {
            let charged = core.depot().accounts.charged_together();
            charged.max(ledger.charged()).saturating_sub(bytes)
        };
        let trim = || {
            while surplus() > 0 && core.trim_others(0, surplus(), Asked::default()) > 0 {}
            if surplus() > 0 {
                let own = core.cached_bytes().saturating_sub(surplus());
                core.log_kept(core.trim_own_to(own).map(drop));
            }
            for (_, arena) in arenas.iter().filter(|_| ledger.charged() > bytes) {
                core.log_kept(arena.release(0).map(drop));
            }
        };
        if has_shares {
            trim();
        }
        // It is never less than that of the accounts, which refuse first.
        let of_ledger = ledger.limit();
        ledger.set_limit(as_limit(bytes.max(as_cap(of_ledger))));
        let before = core.replace_limit(bytes).inspect_err(|_| ledger.set_limit(of_ledger))?;
        if !has_shares {
            trim();
        }
        let least = |core: &PoolCore| core.depot().accounts.least_limit();
        let set = core.supply::<B>().set_limit(least(core));
        match set {
            Ok(()) => {
                ledger.set_limit(as_limit(bytes));
                arenas.iter().try_for_each(|(of, arena)| arena.set_limit(least(of), true))?;
            }
            Err(_) => {
                // Unless another thread has changed it since.
                if core.depot().accounts.caps.limit == bytes {
                    core.replace_limit(before)?;
                }
                ledger.set_limit(of_ledger);
            }
        }
        // A waiting request may be within it now.
        core.notify_freed();
        set
    }

    /// Changes the [cap on idle bytes](crate::PoolBuilder::max_cached_bytes) of all pools of the tree. Idle memory
    /// above the cap is released; memory in the magazines of other threads is released at their next call or end.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::new(&device)?;
    /// drop(pool.allocate(1 << 20, &stream)?);
    /// pool.set_max_cached_bytes(1 << 16);
    /// assert_eq!(pool.stats().idle_bytes, 0);
    /// drop(pool.allocate(1 << 20, &stream)?);
    /// assert_eq!(pool.stats().idle_bytes, 0);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn set_max_cached_bytes(&self, bytes: impl Into<Option<u64>>) {
        let bytes = as_cap(bytes);
        if fork::is_forked() {
            return;
        }
        let core = self.core();
        let mut depot = core.depot();
        if depot.accounts.is_private {
            return;
        }
        depot.accounts.caps.max_cached_bytes = bytes;
        drop(depot);
        core.others().iter().chain([core]).for_each(|core| {
            let beside = core.depot().accounts.others_idle;
            core.trim_to(bytes.saturating_sub(beside));
        });
    }

    /// Changes the [cap on idle buffers in a bucket](crate::PoolBuilder::max_buffers_per_bucket). Where a
    /// bucket has more, the pool's idle memory is released; memory in the magazines of other threads is
    /// released at their next call or end. A [private](crate::PoolBuilder::private) pool has no cap.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::new(&device)?;
    /// let two = [pool.allocate(4096, &stream)?, pool.allocate(4096, &stream)?];
    /// pool.set_max_buffers_per_bucket(1);
    /// drop(two);
    /// assert_eq!(pool.stats().buckets.iter().map(|bucket| bucket.idle_buffers).max(), Some(1));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn set_max_buffers_per_bucket(&self, count: impl Into<Option<u64>>) {
        let count = as_cap(count);
        if fork::is_forked() {
            return;
        }
        let core = self.core();
        let mut depot = core.depot();
        if depot.accounts.is_private {
            return;
        }
        let before = mem::replace(&mut depot.accounts.caps.max_buffers_per_bucket, count);
        drop(depot);
        if count < before {
            core.trim_to(0);
        }
    }

    /// Starts the peaks in [`stats`](Self::stats) anew from what is there now.
    pub fn reset_peaks(&self) {
        if fork::is_forked() {
            return;
        }
        let supply = self.core().supply::<B>();
        supply.arena.iter().for_each(DeviceArena::restart_reserved_peak);
        poll_in_flight::<B>(self.core());
        self.core().reset_peaks(supply.highest_end());
    }

    /// Closes the pool for all its handles: from now on requests, those that wait included, fail with
    /// [`Error::Closed`](crate::Error::Closed), idle memory is released, and buffers that are still live release theirs
    /// when they are dropped. The pool's children are closed, too; [private](crate::PoolBuilder::private) ones keep
    /// their memory until they are dropped. A pool that is closed stays closed.
    ///
    /// ```
    /// # use vrampool::{Backend, Error, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::new(&device)?;
    /// let live = pool.allocate(4096, &stream)?;
    /// drop(pool.allocate(4096, &stream)?);
    /// pool.close();
    /// assert_eq!(pool.stats().idle_bytes, 0);
    /// assert!(matches!(pool.allocate(4096, &stream), Err(Error::Closed)));
    /// drop(live);
    /// assert_eq!(pool.stats().held_bytes, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn close(&self) {
        if fork::is_forked() {
            return;
        }
        let core = self.core();
        core.close();
        // This pool first, so that children that are made later are closed, too.
        core.descendants().iter().for_each(|core| core.close());
        core.log_kept(self.trim_to(0).map(drop));
    }

    /// Whether the pool was [closed](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // In a forked child the lock may be held for ever.
        !fork::is_forked() && self.core().depot().life == Life::Closed
    }
}
