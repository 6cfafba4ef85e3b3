//! Requests that wait for memory for a bounded time, first come, first served.

use crate::error::{Error, OutOfMemory, Shortage};
use crate::heap::magazine::left_blocks;
use crate::heap::stats::times;
use crate::heap::{Awaited, Depot, GRACE, PoolCore, Position, Queue, Recall, is_releasing, magazine};
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::streams::Need;
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
    /// wait included, get only what the limit leaves beside the bytes of earlier waiting ones: what is freed
    /// for the first one stays its own. So it is served within the longest time that a buffer is held, if that is
    /// less than 90 seconds. Where the device, not the limit, is short of memory, that holds among waiting requests
    /// alone. Meanwhile the pool keeps no magazines, so each request and each free takes its lock.
    ///
    /// A pool and its [children](Self::child) have one order: a request of any of them leaves what earlier ones need of
    /// the limits that both have. A request within its [share](Self::set_share) needs no more of a limit above that.
    ///
    /// If the first waiting request is not served within 90 seconds, all requests that fit may pass it for 90
    /// seconds, and so on in turns. A request that is never served blocks others for at most half of the time, 90
    /// seconds at a time.
    ///
    /// The request ends at most 5 ms after its timeout, however long the device and the driver take. Memory that may
    /// need a call which blocks is therefore allocated and released by another thread, and [hooks](crate::hooks) around
    /// such a call are called there. After the timeout no further call begins. A call that ends later has its memory
    /// kept for later requests. With a timeout of 0 the request makes the calls of `allocate`, within 2 ms.
    ///
    /// A request counts once, when it is served, as a hit or a miss, or when it is refused.
    ///
    /// A request of more than the limit does not wait. Neither does one in a destructor that runs while memory
    /// is released.
    ///
    /// ```
    /// # use std::{thread, time::Duration};
    /// # use vrampool::{Backend, Pool, host::HostDevice};
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
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`Error::OutOfMemory`] after the timeout, with
    /// [`Shortage::Deadline`](crate::Shortage) if the driver had not answered; [`Error::Closed`] if the
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
        let began = times::begin();
        let served = self.allocate_waiting(bytes, stream, timeout);
        began.into_iter().for_each(|began| core.count_time(began));
        served
    }

    #[track_caller]
    fn allocate_waiting(
        &self,
        bytes: u64,
        stream: &B::Stream,
        timeout: Duration,
    ) -> Result<Buffer<B>, Error> {
        let core = self.core();
        let began = Instant::now();
        let deadline = began.checked_add(timeout);
        let until = deadline.map(|deadline| deadline.max(began + GRACE));
        let _deferral = until.map(|_| left_blocks::defer());
        let (position, mut refused) = (Position::with_deadline(core, until), None);
        let mut wait = TimedWait::new(core, &position, bytes, deadline);
        loop {
            // Behind others it would be refused.
            if wait.is_none() || !position.is_behind_waiter(bytes) {
                match self.allocate_by_depot(bytes, core.kind, stream, &position) {
                    Err(Error::OutOfMemory(error)) => refused = Some(error),
                    answer => return answer,
                }
            }
            if cfg!(target_family = "wasm") && !timeout.is_zero() {
                return Err(BackendError::would_block("waiting for memory").into());
            }
            if !wait.as_mut().is_some_and(|wait| wait.wait(refused.as_deref())) {
                break;
            }
        }
        let refused = refused.unwrap_or_else(|| {
            let class = core.class_of(bytes).unwrap_or(bytes);
            Box::new(position.lack_of_room::<B>(Need { requested: bytes, class }))
        });
        position.count_out_of_memory(&refused, wait.is_some());
        Err(Error::OutOfMemory(refused))
    }

    /// Number of requests that wait in [`allocate_timeout`](Self::allocate_timeout) at this moment.
    #[must_use]
    pub fn waiting_requests(&self) -> u64 {
        if fork::is_forked() { 0 } else { self.core().depot().queue.deadlines }
    }
}

/// The wait of a request until a deadline.
#[derive(Debug)]
struct TimedWait<'a> {
    pool: &'a PoolCore,
    position: &'a Position<'a>,
    bytes: u64,
    class: u64,
    /// `None`: no clock shows that time.
    deadline: Option<Instant>,
    /// Whether it has asked since it is first.
    has_asked: bool,
    /// Since when it is the first one that waits.
    first_since: Option<Instant>,
}

impl<'a> TimedWait<'a> {
    /// Returns `None` for a request that must not wait, or that the limit never allows.
    fn new(
        pool: &'a PoolCore,
        position: &'a Position<'a>,
        bytes: u64,
        deadline: Option<Instant>,
    ) -> Option<Self> {
        let class = pool.class_of(bytes).filter(|_| !is_releasing())?;
        let is_possible = class <= pool.depot().accounts.least_limit();
        is_possible.then_some(Self {
            pool,
            position,
            bytes,
            class,
            deadline,
            has_asked: false,
            first_since: None,
        })
    }

    /// Waits until the request may succeed. Returns `false` after the deadline. `refused`: the last refusal, if any.
    fn wait(&mut self, refused: Option<&OutOfMemory>) -> bool {
        let began = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= began) {
            return false;
        }
        // The device is not asked twice for the same memory.
        self.has_asked |= refused.is_some_and(|refused| !matches!(refused.shortage, Shortage::Limit(_)));
        // This thread makes no other call meanwhile, and earlier requests may need what it keeps.
        magazine::leave(self.pool);
        let mut depot = self.pool.depot();
        let is_new = self.position.number() == Queue::LAST && depot.node.is_some();
        self.position.set(&mut depot, self.class, Awaited::Memory);
        if is_new {
            drop(depot);
            // For this request. They get no new ones until it is served.
            self.pool.others().iter().for_each(|other| other.recall(&mut other.depot(), Recall::Slots));
            depot = self.pool.depot();
        }
        let seen = depot.accounts.changes;
        loop {
            if depot.refuses() {
                return true;
            }
            // The limit may have changed.
            if let Some(class) = self.pool.class_of(self.bytes).filter(|&class| class != self.class) {
                self.class = class;
                self.position.set(&mut depot, class, Awaited::Memory);
            }
            let now = Instant::now();
            let (others_may_ask, turn) = self.take_turns(&mut depot, now);
            if others_may_ask {
                drop(depot);
                self.pool.notify_freed();
                depot = self.pool.depot();
                continue;
            }
            let may_ask = depot.queue.may_ask(self.position.number())
                && !depot.accounts.is_over_limit_with(self.class)
                && !depot.is_reserved_for_waiter(self.class, self.position);
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
            depot = self.position.sleep(depot, Some(time.min(turn)));
        }
    }

    /// As the first request that waits, lets others pass in turns. Returns whether they may from now on, and when it is
    /// to look again.
    fn take_turns(&mut self, depot: &mut Depot, now: Instant) -> (bool, Duration) {
        if cfg!(model) {
            // A model has no time to wait for, except for ever.
            return (false, Duration::MAX);
        }
        if !depot.queue.is_first_with_deadline(self.position.number()) {
            // It may be the first one by then.
            return (false, depot.queue.turn);
        }
        let since = *self.first_since.get_or_insert(now);
        depot.queue.take_turns(now - since)
    }
}

#[cfg(all(test, feature = "host", not(model)))]
mod tests {
    use super::*;
    use crate::heap::size_class::SizeClasses;
    use crate::host::{HostDevice, HostStream};
    use std::thread;

    const MIB: u64 = 1 << 20;

    /// Waits until so many requests wait.
    fn until_waiting(pool: &Pool<HostDevice>, requests: u64) {
        while pool.waiting_requests() < requests {
            thread::yield_now();
        }
    }

    /// A pool of 8 MiB with short turns, and a buffer of 4 MiB of it.
    fn half_full() -> (Pool<HostDevice>, HostStream, Buffer<HostDevice>) {
        let device = HostDevice::new();
        let stream = device.create_stream().expect("a stream");
        let builder = Pool::builder(&device).limit(8 * MIB).size_classes(SizeClasses::EXACT);
        let pool = builder.build().expect("a pool");
        pool.core().depot().queue.turn = Duration::from_millis(5);
        let live = pool.allocate(4 * MIB, &stream).expect("memory");
        (pool, stream, live)
    }

    #[test]
    fn a_request_that_is_never_served_does_not_block_others_for_ever() {
        let (pool, stream, live) = half_full();
        thread::scope(|scope| {
            let endless = scope.spawn(|| pool.allocate_timeout(6 * MIB, &stream, Duration::MAX));
            until_waiting(&pool, 1);
            // In one of its turns.
            let refused = loop {
                if let Err(refused) = pool.allocate(MIB, &stream) {
                    break refused;
                }
            };
            assert!(refused.to_string().contains("earlier requests wait for 6.0 MiB"), "{refused}");
            // One that waits is served, and so is, at times, one that does not.
            for _ in 0..3 {
                drop(pool.allocate_timeout(MIB, &stream, Duration::MAX).expect("its turn comes"));
                while pool.allocate(MIB, &stream).is_err() {
                    thread::yield_now();
                }
            }
            // Nor does it starve: in its turns memory is reserved for it.
            while pool.allocate(MIB, &stream).is_ok() {
                thread::yield_now();
            }
            assert_eq!(pool.waiting_requests(), 1);
            drop(live);
            endless.join().expect("no panic").expect("memory");
        });
    }

    #[test]
    fn a_request_that_becomes_the_first_while_it_sleeps_takes_turns_too() {
        let (pool, stream, live) = half_full();
        thread::scope(|scope| {
            let first = scope.spawn(|| pool.allocate_timeout(6 * MIB, &stream, Duration::from_millis(300)));
            until_waiting(&pool, 1);
            let endless = scope.spawn(|| pool.allocate_timeout(6 * MIB, &stream, Duration::MAX));
            // On a busy machine the time of the first may be over before.
            while pool.waiting_requests() < 2 && !first.is_finished() {
                thread::yield_now();
            }
            first.join().expect("no panic").expect_err("its time is over");
            let began = Instant::now();
            while pool.allocate(MIB, &stream).is_err() {
                if began.elapsed() > Duration::from_secs(60) {
                    pool.close();
                    panic!("it blocks all other requests");
                }
                thread::yield_now();
            }
            drop(live);
            endless.join().expect("no panic").expect("memory");
        });
    }
}
