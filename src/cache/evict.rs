//! Takes idle blocks out of the depot, and grants misses permission to ask the source.

use crate::cache::accounts::Admission;
use crate::cache::block::Block;
use crate::cache::depot::Depot;
use crate::cache::oom_rung::Rung;
use crate::source::Key;
use std::mem;
use vrampool_backend::{MemoryKind, StreamId};

/// What a miss may do.
#[derive(Debug)]
#[must_use]
pub(crate) enum Permit {
    /// Drop these outside the lock, report `surplus` bytes as freed, then ask the device.
    Granted { evicted: Vec<Box<Block>>, surplus: u64 },
    /// Wait until memory was freed, then ask again.
    Wait,
    /// The limit does not allow it.
    Refused,
}

impl Depot {
    /// Whether a miss of `class` bytes has to give anything back.
    #[inline]
    pub(crate) fn is_short_of(&self, class: u64) -> bool {
        !self.waiting.is_empty() || self.accounts.admission(class) != Admission::Evict(0)
    }

    /// A request of `class` bytes begins to wait. Returns its number.
    pub(crate) fn begin_wait(&mut self, class: u64) -> u64 {
        self.waited += 1;
        self.waiting.push_back((self.waited, class));
        self.waited
    }

    /// It has what it waited for, or nothing to wait for. Returns whether others wait still.
    pub(crate) fn end_wait(&mut self, number: u64) -> bool {
        self.waiting.retain(|(waiting, _)| *waiting != number);
        !self.waiting.is_empty()
    }

    /// Bytes that those wait for who began to before that number.
    fn waited_for_before(&self, number: u64) -> u64 {
        let before = self.waiting.iter().take_while(|(waiting, _)| *waiting < number);
        before.fold(0, |sum, (_, class)| sum.saturating_add(*class))
    }

    /// Whether `class` bytes do not fit within the limit even when the depot gives back all it has.
    pub(crate) fn is_over_limit_with(&self, class: u64) -> bool {
        !matches!(self.accounts.admission(class), Admission::Evict(_))
    }

    /// Whether a miss of `class` bytes may ask the device, and what it must give back first. One that waits
    /// has a number: first come, first served. `may_wait`: others who wait come first.
    pub(crate) fn permit(&mut self, class: u64, number: Option<u64>, may_wait: bool) -> Permit {
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
                Permit::Granted { evicted, surplus }
            }
        }
    }

    /// Takes at least `bytes` of idle memory out, or all there is: classes that were asked for longest ago
    /// first, of two the larger first, in a class the oldest release first.
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

    /// Takes all idle memory of one kind out that needs no wait for `stream`.
    pub(crate) fn evict_ready(&mut self, kind: MemoryKind, stream: StreamId) -> Vec<Box<Block>> {
        let evicted = self.buckets.take_all_ready(kind, stream);
        self.counters.evictions += evicted.len() as u64;
        self.accounts.evict(evicted.iter().map(|block| block.key.class).sum());
        evicted
    }

    /// Stamps the buckets whose classes magazines handed out since this was last done: their hits did not
    /// come by here.
    fn note_hits(&mut self) {
        for tally in &self.tallies {
            for class in tally.hit_classes() {
                if let Some(bucket) = self.buckets.find(&Key { kind: self.kind, class }) {
                    bucket.last_request = self.clock;
                }
            }
        }
    }

    /// Nothing is kept from now on. Answers idle blocks, and recycled records to be dropped.
    pub(crate) fn close(&mut self) -> (Vec<Box<Block>>, Vec<Box<Block>>) {
        self.closed = true;
        (self.evict(u64::MAX), mem::take(&mut self.records))
    }

    /// The source forgot all its blocks. Returns the idle ones.
    pub(crate) fn begin_generation(&mut self) -> Vec<Box<Block>> {
        self.generation += 1;
        let idle = self.evict(u64::MAX);
        self.forgotten = self.counters.live_buffers;
        idle
    }
}
