//! Pools below a pool: how they are made, and their shares of its limit.

use crate::error::{Error, Shortage};
use crate::heap::{Borrowed, Position, device_pools, reserve_share};
use crate::pool::Pool;
use crate::pool::builder::PoolBuilder;
use crate::streams::Need;
use vrampool_backend::{Backend, BackendError, fork};

impl<B: Backend> Pool<B> {
    /// Returns the settings of a pool below this one: of a tenant, a tag, or a graph.
    ///
    /// A child is a separate pool, with every call, statistic and metric of one. It has the device, the source, the
    /// settings and the hooks of this pool, unless its builder sets others. What it has counts against the limits of
    /// all pools above it, so `limit` of the root bounds the tree. The caps on idle bytes and the budget hold for the
    /// tree; a child's own are ignored. This pool's [statistics](Self::stats) include the child's.
    ///
    /// * [`limit`](PoolBuilder::limit) caps the child's bytes, and those of its children.
    /// * [`share`](PoolBuilder::share) reserves bytes of the limits above for the child.
    /// * [`private`](PoolBuilder::private) keeps its idle memory for its own requests until it is dropped, as graphs
    ///   need it.
    ///
    /// Idle memory beyond a share serves the whole tree: it is released before a limit refuses a request. Over an
    /// arena of fixed size children have memory of that arena; over virtual memory each has separate
    /// addresses.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let tenant = pool.child("tenant").limit(512 << 10).share(256 << 10).build()?;
    /// let _rest: Vec<_> = (0..3).map(|_| pool.allocate(256 << 10, &stream)).collect::<Result<_, _>>()?;
    /// assert!(pool.allocate(1000, &stream).is_err());
    /// let _own = tenant.allocate(256 << 10, &stream)?;
    /// assert_eq!((tenant.stats().live_bytes, pool.stats().live_bytes), (256 << 10, 1 << 20));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn child(&self, name: impl Into<String>) -> PoolBuilder<B> {
        PoolBuilder::below(self, name.into())
    }

    /// Changes the [share](PoolBuilder::share) of the limits above. Idle memory of others is released for it. The end
    /// of the pool ends the share.
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let tenant = pool.child("tenant").build()?;
    /// tenant.set_share(256 << 10)?;
    /// assert!(pool.child("other").share(1 << 20).build().is_err());
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a limit has no room for the unused part of the share beside live memory and other
    /// shares; [`Error::Configuration`] if the share is above the child's limit, or the pool is no child;
    /// [`Error::Closed`]. The share is then unchanged.
    pub fn set_share(&self, bytes: u64) -> Result<(), Error> {
        fork::check()?;
        let core = &self.handle.core;
        if bytes < self.share() {
            // First, so that it is never more than the accounts reserve.
            self.reserve_pages(bytes)?;
        }
        let before = reserve_share::<B>(core, bytes)?;
        let set = self.reserve_pages(bytes).map_err(|error| {
            let (need, position) = (Need { requested: bytes, class: bytes }, Position::new(core));
            let error = position.lack::<B>(need, Shortage::Device(error), None);
            position.count_out_of_memory(&error, false);
            error.into()
        });
        let mut depot = core.depot();
        // Unless another thread has changed it since, for which the limits above may have changed, too.
        if set.is_err() && depot.accounts.share == bytes {
            depot.accounts.share = before;
        }
        drop(depot);
        core.notify_freed();
        set
    }

    /// Returns its share of the limits above, bytes; 0 without one.
    #[must_use]
    pub fn share(&self) -> u64 {
        if fork::is_forked() { 0 } else { self.handle.core.depot().accounts.share }
    }

    /// Orders the launch of a graph on another stream than the captured one; call it before the launch.
    ///
    /// `stream` waits for earlier work on the idle memory of the pool, and is a user of it. So the next user of that
    /// memory waits for the graph.
    ///
    /// # Errors
    /// As [`Buffer::used_on`](crate::Buffer::used_on).
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        let core = &self.handle.core;
        core.check_device(stream)?;
        let is_private = self.handle.settings.private == Some(true);
        if let Some(arena) = core.supply::<B>().exclusive_arena().filter(|_| is_private) {
            arena.use_free_on(stream)?;
        }
        let idle = core.depot().buckets.idle_counts();
        let mut waits = 0;
        let used: Result<(), Error> = idle.into_iter().try_for_each(|(key, count)| {
            (0..count).try_for_each(|_| {
                let Some(block) = Borrowed::oldest(core, key) else { return Ok(()) };
                waits += block.use_on::<B>(stream)?;
                Ok(())
            })
        });
        core.count_waits(waits);
        used?;
        Ok(self.device().flush(stream)?)
    }

    /// Reserves memory of the device for a share, of virtual memory whole pages. Others release what is idle for it.
    fn reserve_pages(&self, bytes: u64) -> Result<(), BackendError> {
        let supply = self.handle.core.supply::<B>();
        let page = match (supply.own_growing_arena(), supply.device.virtual_memory()) {
            (Some(_), Some(device)) => device.granularity(self.kind())?,
            // The arena has the memory already.
            _ if supply.is_of_parent => return Ok(()),
            _ => 1,
        };
        let bytes = bytes.checked_next_multiple_of(page).unwrap_or(bytes);
        supply.ledger.set_share(bytes).or_else(|error| match device_pools::trim(&self.handle.core) {
            0 => Err(error),
            _ => supply.ledger.set_share(bytes),
        })
    }
}
