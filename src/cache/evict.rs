//! Takes idle blocks out of the depot, and grants misses permission to ask the source.

use crate::cache::accounts::Admission;
use crate::cache::block::Block;
use crate::cache::depot::Depot;
use crate::cache::oom_rung::Rung;
use crate::source::Key;
use std::mem;
use vrampool_backend::{MemoryKind, StreamId};

/// The outcome of a miss's request for permission.
#[derive(Debug)]
#[must_use]
pub(crate) enum Permit {
    /// Drop the blocks without the lock, report `surplus` bytes as freed, then ask the device.
    Granted { evicted: Vec<Box<Block>>, surplus: u64 },
    /// Wait until memory is freed, then ask again.
    Wait,
    /// The limit does not allow it.
    Refused,
    /// The limit allows it only beside fewer bytes than earlier requests wait for.
    Promised,
    /// The program has closed the pool.
    Closed,
}

impl Depot {
    /// Whether a miss of `class` bytes has to release memory first.
    #[inline]
    pub(crate) fn is_short_of(&self, class: u64) -> bool {
        !self.waiting.is_empty() || self.is_guarded() || self.accounts.admission(class) != Admission::Evict(0)
    }

    /// Whether `class` bytes are for requests that came before. `waiter` is the request's own number, if it
    /// waits.
    pub(crate) fn is_promised(&self, class: u64, waiter: Option<u64>) -> bool {
        let before = self.waiters.bytes_before(waiter);
        before > 0 && self.is_over_limit_with(class.saturating_add(before))
    }

    /// Queues a waiting request of `class` bytes. Returns its number.
    pub(crate) fn begin_wait(&mut self, class: u64) -> u64 {
        self.waited += 1;
        self.waiting.push_back((self.waited, class));
        self.waited
    }

    /// Removes a request that no longer waits. Returns whether others still wait.
    pub(crate) fn end_wait(&mut self, number: u64) -> bool {
        self.waiting.retain(|(waiting, _)| *waiting != number);
        !self.waiting.is_empty()
    }

    /// Returns the bytes of requests that have waited longer than `number`.
    fn waited_for_before(&self, number: u64) -> u64 {
        let before = self.waiting.iter().take_while(|(waiting, _)| *waiting < number);
        before.fold(0, |sum, (_, class)| sum.saturating_add(*class))
    }

    /// Whether `class` bytes exceed the limit even if the depot releases all idle memory.
    pub(crate) fn is_over_limit_with(&self, class: u64) -> bool {
        !matches!(self.accounts.admission(class), Admission::Evict(_))
    }

    /// Decides whether a miss of `class` bytes may ask the device, and evicts what it must release first.
    /// Requests that wait for memory in transit have a `number` and are served in order. With `may_wait`,
    /// earlier ones come first. `waiter` is the number of a request that waits until a deadline.
    pub(crate) fn permit(
        &mut self,
        class: u64,
        waiter: Option<u64>,
        number: Option<u64>,
        may_wait: bool,
    ) -> Permit {
        if self.is_shut {
            return Permit::Closed;
        }
        if self.is_promised(class, waiter) {
            return Permit::Promised;
        }
        let before = if may_wait { self.waited_for_before(number.unwrap_or(u64::MAX)) } else { 0 };
        let admission = self.accounts.admission(class);
        let is_behind = before > 0 && admission != Admission::Full;
        if is_behind && !matches!(self.accounts.admission(class.saturating_add(before)), Admission::Evict(_))
        {
            return Permit::Wait;
        }
        match admission {
            Admission::Wait => Permit::Wait,
            Admission::Full => Permit::Refused,
            Admission::Evict(bytes) => {
                let evicted = self.evict(bytes);
                if !evicted.is_empty() {
                    self.count(Rung::Evict);
                }
                let bytes = evicted.iter().map(|block| block.key.class).sum();
                let surplus = self.accounts.reserve(class, bytes);
                waiter.into_iter().for_each(|number| self.waiters.set_bytes(number, 0));
                Permit::Granted { evicted, surplus }
            }
        }
    }

    /// Takes out at least `bytes` of idle memory, or all. Order: least recently requested classes, then
    /// larger classes, then the oldest release in a class.
    pub(crate) fn evict(&mut self, bytes: u64) -> Vec<Box<Block>> {
        if bytes == 0 {
            return Vec::new();
        }
        self.note_hits();
        let (mut evicted, mut gone) = (Vec::new(), 0);
        for key in self.buckets.stalest() {
            let Some(bucket) = self.buckets.find(&key) else { continue };
            while gone < bytes
                && let Some(block) = bucket.idle.pop_front()
            {
                gone += key.class;
                evicted.push(block);
            }
        }
        self.counters.evictions += evicted.len() as u64;
        self.accounts.evict(gone);
        evicted
    }

    /// Takes out all idle memory of one kind that needs no wait for `stream`.
    pub(crate) fn evict_ready(&mut self, kind: MemoryKind, stream: StreamId) -> Vec<Box<Block>> {
        let evicted = self.buckets.take_all_ready(kind, stream);
        self.counters.evictions += evicted.len() as u64;
        self.accounts.evict(evicted.iter().map(|block| block.key.class).sum());
        evicted
    }

    /// Updates the stamps of buckets whose classes magazines have served, bypassing the depot.
    fn note_hits(&mut self) {
        for tally in &self.tallies {
            for class in tally.hit_classes() {
                if let Some(bucket) = self.buckets.find(&Key { kind: self.kind, class }) {
                    bucket.last_request = self.clock;
                }
            }
        }
    }

    /// Stops keeping blocks. Returns idle blocks, and recycled records to be dropped.
    pub(crate) fn close(&mut self) -> (Vec<Box<Block>>, Vec<Box<Block>>) {
        self.closed = true;
        (self.evict(u64::MAX), mem::take(&mut self.records))
    }

    /// Starts a new generation after the source forgot all its blocks. Returns the idle ones.
    pub(crate) fn begin_generation(&mut self) -> Vec<Box<Block>> {
        self.generation += 1;
        let idle = self.evict(u64::MAX);
        self.forgotten = self.counters.live_buffers;
        idle
    }
}
