//! Requests that wait for memory for a bounded time, first come, first served; and the end of all requests.

use crate::cache::core::{PoolCore, Recall};
use crate::cache::magazine;
use crate::cache::release::is_giving_back;
use crate::cache::waiters::Waiters;
use crate::error::Error;
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::sync::Instant;
use std::time::Duration;
use vrampool_backend::{Backend, BackendError, Stream, fork};

/// How often the first waiting request asks a device that refused it: other pools, other processes and work
/// on streams free memory that the pool does not see.
const RETRY: Duration = Duration::from_millis(10);

impl<B: Backend> Pool<B> {
    /// As [`allocate`](Self::allocate), but waits up to `timeout` for memory that other owners release, where
    /// it would fail for a lack of memory. `Duration::MAX` waits for ever.
    ///
    /// Waiting requests are served in order of arrival, large and small. Later requests, those that do not
    /// wait included, get only what the limit leaves beside the bytes of earlier waiting ones: so none starves.
    /// Where the device, not the limit, is short of memory, that holds among waiting requests alone. Meanwhile
    /// the pool keeps no magazines, so each request and each free takes its lock.
    ///
    /// A request counts as failed once, if it is refused in the end; each time that it asks again counts as a hit
    /// or a miss.
    ///
    /// A request of more than the limit does not wait. Neither does one in a destructor that runs while memory
    /// is given back.
    ///
    /// ```
    /// # use std::{thread, time::Duration};
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let all = pool.allocate(1 << 20, &stream)?;
    /// assert!(pool.allocate_timeout(4096, &stream, Duration::from_millis(1)).is_err());
    /// thread::scope(|scope| {
    ///     let waiting = scope.spawn(|| pool.allocate_timeout(4096, &stream, Duration::from_secs(60)));
    ///     drop(all);
    ///     waiting.join().expect("no panic")
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`Error::OutOfMemory`] after the timeout; [`Error::Closed`] if the
    /// pool is [closed](Self::close) before or meanwhile; [`BackendError::WouldBlock`] in a browser, where
    /// nothing can wait, instead of waiting.
    #[track_caller]
    pub fn allocate_timeout(
        &self,
        bytes: u64,
        stream: &B::Stream,
        timeout: Duration,
    ) -> Result<Buffer<B>, Error> {
        fork::check()?;
        let core = self.core();
        if let Some(block) = magazine::take(core, bytes, stream.id()) {
            return Ok(Buffer::new(block));
        }
        let mut waiter = None;
        let refused = loop {
            let number = waiter.as_ref().map_or(Waiters::LAST, |waiter: &Waiter<'_>| waiter.number);
            let refused = match self.allocate_by_depot(bytes, core.kind, stream, Some(number)) {
                Err(Error::OutOfMemory(refused)) => refused,
                answer => return answer,
            };
            if cfg!(target_family = "wasm") && !timeout.is_zero() {
                return Err(BackendError::would_block("waiting for memory").into());
            }
            if waiter.is_none() && !is_giving_back() {
                waiter = Waiter::begin(core, bytes, timeout);
            }
            if !waiter.as_mut().is_some_and(Waiter::wait) {
                break refused;
            }
        };
        core.count_out_of_memory(&refused.shortage);
        Err(Error::OutOfMemory(refused))
    }

    /// Number of requests that wait in [`allocate_timeout`](Self::allocate_timeout) at this moment.
    #[must_use]
    pub fn waiting_requests(&self) -> u64 {
        if fork::is_child() { 0 } else { self.core().depot().waiters.count() }
    }

    /// Closes the pool for all its handles: from now on requests, those that wait included, fail with
    /// [`Error::Closed`], idle memory is released, and buffers that are still live release theirs when they
    /// are dropped. A pool that is closed stays closed.
    ///
    /// ```
    /// # use vrampool::{Backend, Error, Pool, host::HostDevice};
    /// # fn main() -> Result<(), Error> {
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
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self) {
        if fork::is_child() {
            return;
        }
        let core = self.core();
        let mut depot = core.depot();
        depot.is_shut = true;
        core.recall(&mut depot, Recall::Memory);
        drop(depot);
        core.notify_freed();
        self.trim_to_or_log(0);
    }

    /// Whether the pool was [closed](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // In a forked child the lock may be held for ever.
        !fork::is_child() && self.core().depot().is_shut
    }
}

/// The position of a request among those that wait. Dropping it, also by a panic, lets the next one be first.
#[derive(Debug)]
struct Waiter<'a> {
    pool: &'a PoolCore,
    number: u64,
    class: u64,
    /// `None`: no clock shows that time.
    deadline: Option<Instant>,
    /// Whether it has asked since it is first.
    has_asked: bool,
}

impl<'a> Waiter<'a> {
    /// Queues a request behind all others; `None` if the limit never allows it.
    fn begin(pool: &'a PoolCore, bytes: u64, timeout: Duration) -> Option<Self> {
        let class = pool.classes.round(bytes)?;
        let deadline = Instant::now().checked_add(timeout);
        let mut depot = pool.depot();
        if class > depot.accounts.caps.limit {
            return None;
        }
        if depot.waiters.is_empty() {
            // Each thread gives up its magazines at its next call.
            pool.recall(&mut depot, Recall::Slots);
        }
        let number = depot.waiters.begin(class);
        Some(Self { pool, number, class, deadline, has_asked: false })
    }

    /// Waits until the request may succeed. Returns `false` after the deadline.
    fn wait(&mut self) -> bool {
        let began = Instant::now();
        let mut depot = self.pool.depot();
        depot.waiters.set_bytes(self.number, self.class);
        let seen = depot.accounts.changes;
        loop {
            if depot.is_shut {
                return true;
            }
            let may_ask = depot.waiters.is_first(self.number) && !depot.is_over_limit_with(self.class);
            let now = Instant::now();
            let is_due = !self.has_asked || depot.accounts.changes != seen || now - began >= RETRY;
            if may_ask && is_due {
                self.has_asked = true;
                return true;
            }
            let left =
                self.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() {
                return false;
            }
            let time = if may_ask { left.min(RETRY) } else { left };
            depot = self.pool.wait_for_freed_at_most(depot, time);
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.pool.depot().waiters.end(self.number);
        self.pool.notify_freed();
    }
}
