//! The limit and the budget: whether a miss may ask the source, what must be released or waited for first, and the
//! bytes that are reserved for it meanwhile.

use crate::heap::request::{NoRoom, Position, Reservation};
use crate::heap::{Admission, Block, Depot, PoolCore};
use crate::source::Key;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use vrampool_backend::MemoryKind;

impl Depot {
    /// Whether a miss of `class` bytes cannot be reserved at once, because memory must be released or awaited first,
    /// requests wait, or the pool is closed.
    #[inline]
    pub(crate) fn is_short_of(&self, class: u64) -> bool {
        self.queue.awaits_release() || self.is_guarded() || !self.accounts.admits_at_once(class)
    }

    /// Whether `class` bytes are reserved for requests with a deadline that are earlier than the one at `position`, of
    /// any pool of the tree.
    #[inline]
    pub(crate) fn is_reserved_for_waiter(&self, class: u64, position: &Position<'_>) -> bool {
        self.queue.has_deadlines() && {
            let number = position.number();
            let before = self.queue.reserved_before(number);
            before > 0 && self.accounts.is_over_limit_with(class.saturating_add(before))
                || self.accounts.reserved_at(class, self.queue.others_before(number)).is_some()
        }
    }

    /// Whether a block is idle for a miss of `key` that would have to release memory: one was freed since its search.
    pub(crate) fn has_idle_instead(&mut self, key: Key, position: &Position<'_>) -> bool {
        !self.refuses()
            && !self.is_reserved_for_waiter(key.class, position)
            && !self.accounts.admits_at_once(key.class)
            && self.accounts.now.cached > 0
            && self.keys_for(key).iter().any(|key| self.buckets.has_idle(key))
    }

    /// Decides whether a miss of `class` bytes may ask the device, and evicts what it must release first. Returns the
    /// blocks to drop without the lock, and the surplus bytes to report as freed, both before the device is asked.
    /// With `may_wait`, earlier requests that wait for memory that is being released come first.
    pub(crate) fn permit(
        &mut self,
        class: u64,
        position: &Position<'_>,
        may_wait: bool,
    ) -> Result<(Vec<Box<Block>>, u64), NoRoom> {
        if self.is_reserved_for_waiter(class, position) {
            return Err(NoRoom::Reserved);
        }
        let before = if may_wait { self.queue.released_before(position.number()) } else { 0 };
        let admission = self.accounts.admission(class);
        let is_behind = before > 0 && admission != Admission::Full;
        if is_behind && !self.accounts.admits(class.saturating_add(before)) {
            return Err(NoRoom::Wait);
        }
        match admission {
            Admission::Wait => Err(NoRoom::Wait),
            Admission::Full => Err(NoRoom::Limit),
            Admission::Evict(bytes) => {
                let evicted = self.evict(bytes);
                if !evicted.is_empty() {
                    self.counters.rungs.evict += 1;
                }
                let bytes = evicted.iter().map(|block| block.key.class).sum();
                let surplus = self.accounts.reserve(class, bytes);
                Ok((evicted, surplus))
            }
        }
    }
}

impl Reservation {
    /// Of `class` bytes that are reserved.
    pub(crate) fn new(pool: Arc<PoolCore>, class: u64) -> Self {
        Self { pool, class, record: None }
    }

    /// Reserves bytes under the lock, unless memory has to be released or waited for first. It must be dropped without
    /// the lock.
    #[inline]
    pub(crate) fn at_once(pool: &Arc<PoolCore>, depot: &mut Depot, key: Key) -> Option<Self> {
        let Key { kind, class } = key;
        if depot.is_short_of(class) {
            return None;
        }
        depot.accounts.reserve(class, 0);
        let mut reservation = Self::new(Arc::clone(pool), class);
        reservation.record = depot.take_record(kind);
        Some(reservation)
    }

    /// Commits the bytes that the source delivered; `time` is set if it called the driver. `end` is the end of the
    /// highest block in an arena of fixed size. Its record must have been taken.
    pub(crate) fn commit(mut self, kind: MemoryKind, requested: u64, end: u64, time: Option<Duration>) {
        let key = Key { kind, class: mem::take(&mut self.class) };
        self.pool.depot().commit_reservation(key, requested, end, time);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.class > 0 {
            self.pool.depot().accounts.cancel(self.class);
            self.pool.notify_freed();
        }
    }
}

/// The turns of a waiting request against an exact model, on a clock of the test: it is served within the longest hold,
/// and one that is never served shuts out others for one turn at a time. That holds in one pool, and in all pools of a
/// tree.
#[cfg(all(test, feature = "host", not(model)))]
mod tests {
    use super::*;
    use crate::heap::size_class::SizeClasses;
    use crate::heap::{Awaited, TURN};
    use crate::host::{HostDevice, HostStream};
    use crate::{Backend, Buffer, Pool};
    use fastrand::Rng;
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// The limit, in units.
    const LIMIT: u64 = 64;
    const UNIT: u64 = 4096;
    /// One step of the clock.
    const TICK: Duration = Duration::from_millis(100);

    /// Requests in all, by `VRAMPOOL_TEST_REQUESTS`.
    fn operations() -> u64 {
        let count = std::env::var("VRAMPOOL_TEST_REQUESTS").ok().and_then(|count| count.parse().ok());
        count.unwrap_or(20_000)
    }

    /// Programs that take and free small buffers all the time, beside one request that waits.
    struct Scene {
        /// A pool, and, in half of the scenes, a child, a child of that, and another child.
        pools: Vec<Pool<HostDevice>>,
        stream: HostStream,
        random: Rng,
        now: Duration,
        /// Small buffers by the time of their free.
        live: BTreeMap<(Duration, u64), Buffer<HostDevice>>,
        /// Bytes of all live buffers, in units.
        live_units: u64,
        requests: u64,
        /// Since when requests are refused that would fit.
        shut_out_since: Option<Duration>,
    }

    impl Scene {
        fn new(seed: u64) -> Self {
            let (device, mut random) = (HostDevice::new(), Rng::with_seed(seed));
            let stream = device.create_stream().expect("a stream");
            let builder =
                Pool::builder(&device).limit(LIMIT * UNIT).size_classes(SizeClasses::EXACT).magazine_bytes(0);
            let builder = if random.bool() { builder.max_cached_bytes(0) } else { builder };
            let mut pools = vec![builder.build().expect("a pool")];
            if random.bool() {
                for parent in [0, 1, 0] {
                    let child = pools[parent].child("tenant").build().expect("a pool");
                    pools.push(child);
                }
            }
            let (now, live, live_units, requests) = (Duration::ZERO, BTreeMap::new(), 0, 0);
            Self { pools, stream, random, now, live, live_units, requests, shut_out_since: None }
        }

        fn pool(&mut self) -> Pool<HostDevice> {
            let at = self.random.usize(..self.pools.len());
            self.pools[at].clone()
        }

        /// Frees what was held long enough.
        fn free(&mut self) {
            while let Some(first) = self.live.first_entry().filter(|first| first.key().0 <= self.now) {
                self.live_units -= first.remove().len() / UNIT;
            }
        }

        /// Makes small requests beside `reserved` units until one is refused, as the model says.
        fn take(&mut self, longest: Duration, reserved: u64) {
            loop {
                let units = self.random.u64(1..=4);
                self.requests += 1;
                let answer = self.pool().allocate(units * UNIT, &self.stream);
                let fits = self.live_units + units + reserved <= LIMIT;
                let live = self.live_units;
                assert_eq!(answer.is_ok(), fits, "{live} units live, {reserved} reserved: {units}");
                let Ok(buffer) = answer else {
                    let would_fit = self.live_units + units <= LIMIT;
                    self.shut_out_since = would_fit.then(|| self.shut_out_since.unwrap_or(self.now));
                    return;
                };
                self.shut_out_since = None;
                let hold = if self.random.bool() { longest } else { longest.mul_f64(self.random.f64()) };
                self.live.insert((self.now + hold, self.requests), buffer);
                self.live_units += units;
            }
        }

        /// Lets one request of so many units wait for at most `turns` turns. Returns how long it waited, if it was
        /// served, and the longest time in which no small request was served that would fit.
        fn wait(&mut self, units: u64, longest: Duration, turns: u32) -> (Option<Duration>, Duration) {
            let (pool, stream) = (self.pool(), self.stream.clone());
            let (core, since) = (&pool.handle.core, self.now);
            let position = Position::with_deadline(core, None);
            position.set(&mut core.depot(), units * UNIT, Awaited::Memory);
            let mut shut_out = Duration::ZERO;
            while self.now < since + TURN * turns {
                self.now += TICK;
                self.free();
                let waited = self.now - since;
                core.depot().queue.take_turns(waited);
                let is_open = waited.as_nanos() / TURN.as_nanos() % 2 == 1;
                let reserved = if is_open { 0 } else { units };
                let are_first = self.random.bool();
                if are_first {
                    self.take(longest, reserved);
                }
                let fits = self.live_units + units <= LIMIT;
                assert_eq!(!core.depot().accounts.is_over_limit_with(units * UNIT), fits);
                if fits {
                    let buffer =
                        core.allocate::<HostDevice>(units * UNIT, core.kind, &stream, (None, &position));
                    drop(Buffer::<HostDevice>::new(buffer.expect("it fits")));
                    return (Some(waited), shut_out);
                }
                if !are_first {
                    self.take(longest, reserved);
                }
                shut_out = shut_out.max(self.now - self.shut_out_since.unwrap_or(self.now));
            }
            (None, shut_out)
        }
    }

    #[test]
    fn a_waiting_request_is_served_within_the_longest_hold() {
        let (mut requests, mut seed) = (0, 0);
        while requests < operations() {
            for seconds in [2, 20, 60, 89] {
                let longest = Duration::from_secs(seconds);
                seed += 1;
                let mut scene = Scene::new(seed);
                // It comes at any moment.
                for _ in 0..scene.random.u64(0..seconds * 20) {
                    scene.now += TICK;
                    scene.free();
                    scene.take(longest, 0);
                }
                for units in [40, 48, LIMIT] {
                    let (waited, _) = scene.wait(units, longest, 4);
                    assert!(
                        waited.is_some_and(|waited| waited <= longest + TICK),
                        "{seconds} s, {units}: {waited:?}"
                    );
                }
                requests += scene.requests;
            }
        }
    }

    #[test]
    fn a_request_that_is_never_served_shuts_others_out_for_one_turn_at_a_time() {
        let (mut requests, mut seed) = (0, 0);
        while requests < operations() {
            seed += 1;
            let mut scene = Scene::new(seed);
            let units = scene.random.u64(LIMIT / 2..=LIMIT);
            // It stays.
            let live = scene.pool().allocate((LIMIT - units + 1) * UNIT, &scene.stream).expect("memory");
            scene.live_units = LIMIT - units + 1;
            let (waited, shut_out) = scene.wait(units, Duration::from_secs(20), 6);
            assert!(waited.is_none() && shut_out <= TURN + TICK, "{units}: {waited:?} {shut_out:?}");
            requests += scene.requests;
            drop(live);
        }
    }
}
