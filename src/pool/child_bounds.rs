//! The limit of a child, and its share of the limit of its pool.

use crate::error::{Error, OutOfMemory, Owner, Shortage};
use crate::heap::child_blocks::ChildFigures;
use crate::heap::queue_position::Position;
use crate::heap::reservation::{NoRoom, Reservation};
use crate::pool::child::Child;
use crate::source::Key;
use crate::streams::order::Need;
use vrampool_backend::{Backend, fork};

impl<B: Backend> Child<B> {
    /// Limits the bytes of the child: live and idle ones, rounded to classes. `None`, as at first, is no limit.
    ///
    /// A request that would exceed the limit releases idle buffers of the child that do not serve it, oldest first. If
    /// that is not enough, it fails and releases nothing. Live memory above a lowered limit remains, and nothing is
    /// allocated until enough is freed.
    ///
    /// **Graphs.** Idle memory that a graph may use is never released: all of it, once the child served a captured
    /// stream or [`used_on`](Self::used_on) was called. Set the limit before the first request: without a limit and a
    /// share the child does not check whether a stream is captured, so once it has reused memory it releases none. During its
    /// capture, a graph must request at least one buffer of a child with a limit, so that the child keeps its memory.
    ///
    /// ```
    /// # use vrampool::{Backend, Error, Pool, errors::Owner, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// # let pool = Pool::new(&device)?;
    /// let tenant = pool.child("tenant");
    /// tenant.set_limit(64 << 10)?;
    /// drop(tenant.allocate(16 << 10, &stream)?);
    /// let _live = tenant.allocate(64 << 10, &stream)?; // the idle 16 KiB were released
    /// let error = tenant.allocate(1000, &stream).unwrap_err();
    /// assert_eq!(error.out_of_memory().map(|error| error.owner), Some(Owner::Child));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Configuration`] if the limit is below the [share](Self::set_share). It is then unchanged.
    pub fn set_limit(&self, bytes: impl Into<Option<u64>>) -> Result<(), Error> {
        fork::check()?;
        let bytes = bytes.into();
        self.kept.set_limit(bytes).map_err(|share| {
            let reason = format!("the child's share is {share} bytes; lower the share first");
            Error::configuration("limit", bytes.unwrap_or(u64::MAX).to_string(), reason)
        })
    }

    /// Returns its limit, bytes; `None` if there is none.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        if fork::is_child() { None } else { self.kept.figures().limit }
    }

    /// Reserves bytes of the pool's [limit](crate::PoolBuilder::limit) for the child: for its live and idle memory,
    /// rounded to classes. At first it has no share.
    ///
    /// The unused part of the share counts against the limit for requests of others: idle memory is released for it,
    /// and requests that do not fit beside it wait or fail. So the limit refuses no request of the child within its
    /// share. The device or an arena may still refuse one: a share reserves no memory. Dropping the child ends the
    /// share.
    ///
    /// ```
    /// # use vrampool::{Backend, Error, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let tenant = pool.child("tenant");
    /// tenant.set_share(256 << 10)?;
    /// let _rest: Vec<_> = (0..3).map(|_| pool.allocate(256 << 10, &stream)).collect::<Result<_, _>>()?;
    /// assert!(pool.allocate(1000, &stream).is_err());
    /// let _own = tenant.allocate(256 << 10, &stream)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the pool's limit has no room for the unused part of the share beside live memory and
    /// other shares; [`Error::Configuration`] if the share is above the child's limit; [`Error::Closed`]. The share is
    /// then unchanged.
    pub fn set_share(&self, bytes: u64) -> Result<(), Error> {
        fork::check()?;
        let (core, share) = (&self.pool.handle.core, &self.kept.share);
        let invalid = |reason: &str| Err(Error::configuration("share", bytes.to_string(), reason));
        let mut reservation: Option<Reservation<'_>> = None;
        loop {
            // The child's lock first: its limit stays as it is.
            let kept = self.kept.lock();
            if kept.limit.is_some_and(|limit| bytes > limit) {
                return invalid("the child's limit is lower; raise it first");
            }
            let mut depot = core.depot();
            let reserved = reservation.as_ref().map_or(0, Reservation::bytes);
            let Err(needed) = depot.accounts.set_share(share, bytes, reserved) else {
                reservation.into_iter().for_each(Reservation::forget);
                break;
            };
            drop((depot, kept));
            drop(reservation.take());
            reservation = Some(self.reserve_share(bytes, needed)?);
        }
        core.notify_freed();
        Ok(())
    }

    /// Returns its share of the pool's limit, bytes; 0 if it has none.
    #[must_use]
    pub fn share(&self) -> u64 {
        if fork::is_child() { 0 } else { self.kept.share.bytes() }
    }
}

impl<B: Backend> Child<B> {
    /// Reserves `needed` bytes of the pool's limit for a share of `bytes`.
    fn reserve_share(&self, bytes: u64, needed: u64) -> Result<Reservation<'_>, Error> {
        let core = &self.pool.handle.core;
        let position = Position::for_share(core, &self.kept.share);
        let key = Key { kind: core.kind, class: needed };
        core.make_room(key, (&position, false), || Ok(())).map_err(|refused| match refused {
            NoRoom::Closed => Error::Closed,
            NoRoom::Forbidden(error) => error,
            NoRoom::Limit(_) | NoRoom::Idle => {
                let need = Need { requested: bytes, class: needed };
                let limit = core.depot().accounts.caps.limit;
                core.shortage_of::<B>(need, &position, Shortage::Limit(limit)).into()
            }
        })
    }

    /// Describes a request that the limit refuses, and counts it.
    pub(super) fn over_limit(&self, need: Need, figures: &ChildFigures) -> Error {
        let error = OutOfMemory {
            requested_bytes: need.requested,
            class_bytes: need.class,
            live_bytes: figures.live_bytes,
            live_requested_bytes: figures.live_requested,
            idle_bytes: figures.idle_bytes,
            held_bytes: figures.charged,
            unused_share_bytes: 0,
            beside_bytes: 0,
            waiting_bytes: 0,
            other_pools: Vec::new(),
            owner: Owner::Child,
            shortage: Shortage::Limit(figures.limit.unwrap_or(u64::MAX)),
            can_compact: false,
        };
        self.pool.handle.core.count_out_of_memory(&error, false);
        error.into()
    }
}
